#!/usr/bin/env python3
"""Records what Hugging Face's `tokenizers` library makes of texts, as expectations for tests/serving/tokenizer_*_test.cc.

    pip install tokenizers==0.23.3
    python tools/record_tokenizer_expectations.py

Writes tests/serving/data/tokenizer/:
  tutor-*.jsonl    the two tutor checkpoints: text, ids, and what the ids decode to where that is not the text
  splits.jsonl     pre-tokenizers of every kind and the pieces they cut texts into, in the byte-level spelling
  encodings.jsonl  small made-up tokenizers (normalizers, added-token flags, merges, unknown bytes) and their ids; the
                   vocabulary is the byte symbols in order but those `missing`, then each merge's result, then `extra`
  trained.jsonl    small tokenizers trained here, SentencePiece-style BPE and Unigram: the whole file and its ids
"""
import json
import pathlib
import random
import unicodedata

from tokenizers import Tokenizer, trainers

ROOT = pathlib.Path(__file__).parent.parent
TARGET = ROOT / "tests/serving/data/tokenizer"
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
BEHAVIORS = ["Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"]

TEXTS = [
    "", " ", "  ", "\n", "\r\n\r\n", "\t\tx", "Hello, world!", "don't WON'T I'LL you're we've", "price: 1234567.89 USD",
    "   leading and trailing   ", "a\u00a0b\u2003c\u3000d\u1680e\u180ef", "Größe naïve café cafe\u0301 coöperate",
    "今天天气很好,我们去公园吧。", "東京都は日本の首都です。ひらがなカタカナ", "한국어 문장입니다. 각", "Привет, как дела?",
    "مرحبا بالعالم ١٢٣", "שלום עולם", "नमस्ते दुनिया १२३ हिन्दी", "สวัสดีชาวโลก", "Γειά σου Κόσμε", "ქართული ენა", "Tiếng Việt có dấu",
    "አማርኛ", "தமிழ் மொழி", "తెలుగు", "ខ្មែរ", "မြန်မာ", "ລາວ", "Հայերեն", "বাংলা ভাষা", "བོད་ཡིག", "Монгол ᠮᠣᠩᠭᠣᠯ", "ᏣᎳᎩ", "ᚠᚢᚦ", "𐎀𐎁𐎂",
    "👍🏽👩\u200d👩\u200d👧\u200d👦🏳️\u200d🌈🇺🇳 🩷you 🫨", "\u200b\u200d\ufeffzero", "\x01\x02\x7f\x1b[0m", "a\x00b",
    "def f(x):\n    return x**2  # comment\n\n\nclass A:\n\tpass\n", "for (int i = 0; i < n; ++i) { a[i] += b[i]; }",
    "https://example.org/a?b=c&d=%20e#f", '{"k": [1, 2.5e-3, null, true], "s": "\\u00e9"}', "<b>x</b>&amp;<!-- y -->",
    "SELECT * FROM t WHERE a >= 3 -- no", "x = [[0]*9 for _ in range(9)]", "² Ⅷ ① ½ ٣", "ﬁ ﬂ Å Å Ω ſ K ß ẞ",
    "\ufffd\ufffd \ufffdx", "a" * 300, " " * 300, "\n" * 300 + "x", " " * 100 + "y", "1" * 100, "好" * 150, "ab" * 150, "?!" * 100,
    "Z\u0351\u036b\u0343a\u0328\u0308l\u0323\u0307g\u0348o\u031a!", "e\u0301\u0323 \u1100\u1161\u11a8 \u0958 \u2126 \ufb1d",
    "end in space ", "end in newline\n", "\u2028line\u2029paragraph\u0085next", "tab\tseparated\tvalues\r\nrow\r\n",
    "Eli finds 21 books at home and 21 at a farm. Eli loses 14 of them.", "21 + 21 = 42\n42 - 14 = 28\n28 / 2 = 14\n",
    "The quick brown fox jumps over the lazy dog. THE QUICK BROWN FOX.", "camelCaseHTTPServer snake_case kebab-case",
]

PATTERNS = [
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"\p{N}{1,3}", "[一-龥\u3040-ゟ゠-ヿ]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s",
    r"[\r\n]", r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿḀ-ỿ]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", "[一-龥ࠀ-一가-퟿]+",
    r" ?[^(\s|[.,!?…。，、।۔،])]+", r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+", r"\p{Han}+", r"[^\p{L}&&[^a-f]]",
    r"[a-z&&[aeiou]&&[^e]]+", r"a{1,2}+b", r"a{2,3}+b", r"a{,2}b?", r"^.", r".$", r"^", r"$", r"(?m:a.b)", r"(?i)ab|CD",
    r"a|(?i)B|c", r"\h+", r"\H", r"[\H]+x?", r"(?<=a)b+", r"(?<!a)b+", r"(?<=\s)\S", r"(?>a+)b", r"a+?", r"(a|b)+c",
    r"(?:ab)*", "", r"a*", r"\d+\D", r"[\d\s]+", r"[^\d\s]+", r"\u4f60|\x61", r"\x{1F600}+", r"[\x{1F600}-\x{1F64F}]",
    r"\A\s+", r"\s+\z", r"\s+\Z", r"(?=[A-Z])", r"(?!a)\p{L}", r"\P{L}+", r"\p{^N}+", r"[\P{L}a]+", r"[^\P{L}]+",
    r"(?i:k|s)+", r"\p{Letter}+|\p{Number}", r"[-a]+", r"[a-]+", r"[]x]+", r"[^]x]+", r"\p{Hiragana}+|\p{Katakana}+|\p{Greek}+",
    r"{a}|a{|x{2", r"\{\}\.\*", r"[\-\]\\]+", r"(?:a{2}){2}", r"[^\S\r\n]+", "(?-i:a)", "(?i:a(?-i:b))", r"(|a)+b",
    r"\p{L}+(?:\tb)?+a", r"\p{So}|\p{Sm}|\p{Sc}", r"\p{P}+", r"\p{S}+", r"\p{Nd}|\p{Nl}|\p{No}", r"\p{M}+", "\\s", "\\S+",
]

POOL = (["a", "b", "ab", "c", "e", "x", "A", "B", "S", "k", "K", "'", "'s", "'LL", "don't", " ", "  ", "   ", "\n", "\r\n", "\n\n", "\t"]
        + ["\u00a0", "\u3000", "\u180e", "\u200b", "\u0085", "1", "12", "1234", "²", "Ⅷ", "٣", "!", "?!", ".", "-", "(", "[", "]", "{"]
        + ["}", "/", "|", "\\", "é", "e\u0301", "ß", "ſ", "K", "ñ", "n\u0303", "你好", "漢", "ひら", "カナ", "한국", "각", "हिन्दी", "مر", "Пр"]
        + ["😀", "🩷", "👍🏽", "\u0301", "\u0323\u0301", "\u0897", "\U00031350", "ﬁ", "Å", "\u0958", "。", "\x00", "\x7f", "<x>", "<y>"]
        + ["<|im|>", "mask", "zz"])
ADDED = ["<x>", "<y>", "<x>y", "<|im|>", "<|im", "  ", "a b", " <y>", "\n", "mask", "e\u0301", "é", "zz", "漢", "'s", "\t"]


def byte_symbols():
    printable = [b for b in range(256) if 0x21 <= b <= 0x7E or 0xA1 <= b <= 0xAC or b >= 0xAE]
    others = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


SYMBOLS = byte_symbols()


def spell(text):
    return "".join(SYMBOLS[b] for b in text.encode())


def tokenizer_json(config):
    vocab = {}
    for symbol in SYMBOLS:
        if symbol not in config["missing"]:
            vocab[symbol] = len(vocab)
    for left, right in config["merges"]:
        vocab.setdefault(left + right, len(vocab))
    for entry in config["extra"]:
        vocab.setdefault(entry, len(vocab))
    added = [dict(token, id=len(vocab) + i) for i, token in enumerate(config["added_tokens"])]
    model = {"type": "BPE", "dropout": None, "unk_token": config["unk_token"], "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": config["fuse_unk"], "byte_fallback": False,
             "ignore_merges": config["ignore_merges"], "vocab": vocab, "merges": config["merges"]}
    return json.dumps({"version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
                       "normalizer": config["normalizer"], "pre_tokenizer": config["pre_tokenizer"], "post_processor": None,
                       "decoder": dict(BYTE_LEVEL, add_prefix_space=True), "model": model})


def config_of(pre_tokenizer, **fields):
    config = {"normalizer": None, "pre_tokenizer": pre_tokenizer, "added_tokens": [], "merges": [], "extra": [], "missing": [],
              "ignore_merges": False, "unk_token": None, "fuse_unk": False}
    return dict(config, **fields)


def sequence(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def split(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def case(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    entry = {"text": text, "ids": ids}
    decoded = tokenizer.decode(ids, skip_special_tokens=False)
    skipped = tokenizer.decode(ids, skip_special_tokens=True)
    if decoded != text:
        entry["decoded"] = decoded
    if skipped != decoded:
        entry["skipped"] = skipped
    return entry


def write(name, lines):
    text = "".join(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n" for line in lines)
    (TARGET / name).write_text(text, newline="")
    print(f"{name}: {len(lines)} lines, {len(text.encode())} bytes")


def random_text(rng, longest=16):
    return "".join(rng.choice(POOL) for _ in range(rng.choice([2, 5, 9, longest])))


def record_tutor(name):
    tokenizer = Tokenizer.from_file(str(ROOT / "models" / name / "tokenizer.json"))
    rng = random.Random(name)
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()]
    texts = list(TEXTS)
    texts += [f"{a}Hello {b}\n{c} x" for a, b, c in zip(added, added[1:] + added[:1], reversed(added))]
    texts += ["".join(added), " ".join(added), added[0][:-1], added[0][1:], added[0] + added[0][:3]]
    texts += [random_text(rng, 40) for _ in range(100)]
    texts += [bytes(rng.randrange(256) for _ in range(40)).decode("utf-8", errors="replace") for _ in range(20)]
    write(f"{name}.jsonl", [case(tokenizer, text) for text in texts])


def record_splits():
    rng = random.Random(11)
    steps = [sequence(split(pattern), BYTE_LEVEL) for pattern in PATTERNS]
    for behavior in BEHAVIORS:
        for invert in (False, True):
            for pattern, kind in ((r"\s+", "Regex"), (r"\p{N}{1,3}", "Regex"), (" ", "String"), ("a", "String"), (r"a*", "Regex")):
                steps.append(sequence(split(pattern, behavior, invert, kind), BYTE_LEVEL))
    steps.append(sequence(*[split(pattern) for pattern in PATTERNS[3:6]], BYTE_LEVEL))
    steps.append(sequence(*[split(pattern) for pattern in PATTERNS[8:13]], BYTE_LEVEL))
    for one_by_one in (True, False):
        digits = {"type": "Digits", "individual_digits": one_by_one}
        steps.append(sequence(digits, dict(BYTE_LEVEL, use_regex=True)))
    for prefix in (True, False):
        for use_regex in (True, False):
            steps.append(dict(BYTE_LEVEL, add_prefix_space=prefix, use_regex=use_regex))
    steps.append(sequence(split(r"\s+"), dict(BYTE_LEVEL, add_prefix_space=True, use_regex=True)))
    lines = []
    for pre_tokenizer in steps:
        cutter = Tokenizer.from_str(tokenizer_json(config_of(pre_tokenizer))).pre_tokenizer
        texts = [random_text(rng) for _ in range(5)]
        pieces = [[text] + [piece for piece, _ in cutter.pre_tokenize_str(text)] for text in texts]
        lines.append({"pre_tokenizer": pre_tokenizer, "cases": pieces})
    write("splits.jsonl", lines)


def random_config(rng):
    pre_tokenizer = rng.choice([BYTE_LEVEL, sequence(split(PATTERNS[0]), BYTE_LEVEL), sequence(split(PATTERNS[6]), BYTE_LEVEL),
                                dict(BYTE_LEVEL, add_prefix_space=True, use_regex=True)])
    normalizer = rng.choice([None, {"type": "NFC"}, {"type": "NFD"}, {"type": "NFKC"}, {"type": "NFKD"},
                             {"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "NFC"}]}])
    missing = rng.sample(SYMBOLS, 20) if rng.random() < 0.2 else []
    known = set(SYMBOLS) - set(missing)
    merges = []
    for _ in range(rng.choice([0, 20, 60])):
        word = spell(rng.choice(POOL + ["aaaa", "abab", "  \n"]))
        cuts = [(word[:i], word[i:]) for i in range(1, len(word)) if word[:i] in known and word[i:] in known]
        cuts += [(word[0], word[1])] if len(word) > 1 and {word[0], word[1]} <= known else []
        if cuts:
            merges.append(list(rng.choice(cuts)))
            known.add("".join(merges[-1]))
    added = []
    for content in rng.sample(ADDED, rng.choice([0, 3, 6])):
        normalized = rng.random() < 0.4
        flags = {name: rng.random() < 0.25 for name in ("single_word", "lstrip", "rstrip")}
        # A special token whose content normalization changes is not skipped by the library, an oversight not copied.
        special = rng.random() < 0.5 and (not normalized or content.isascii())
        if content not in known:
            added.append({"content": content, "normalized": normalized, "special": special} | flags)
    return config_of(pre_tokenizer, normalizer=normalizer, added_tokens=added, merges=merges, missing=missing,
                     extra=[spell(random_text(rng, 3))] if rng.random() < 0.3 else [], ignore_merges=rng.random() < 0.3,
                     unk_token="a" if missing and "a" in known and rng.random() < 0.6 else None, fuse_unk=rng.random() < 0.5)


def characters_of_every_block(rng):
    """Texts that together hold characters of every block of Unicode: each line a few blocks, each a few characters."""
    blocks = []
    for begin in range(0, 0x110000, 0x100):
        known = [c for c in map(chr, range(begin, begin + 0x100)) if unicodedata.category(c) not in ("Cn", "Cs", "Co")]
        if known:
            blocks.append("".join(rng.choice(known) + rng.choice(["", "", " "]) for _ in range(4)))
    return ["".join(blocks[i:i + 12]) for i in range(0, len(blocks), 12)]


def string_step(step, pattern, content):
    return {"type": step, "pattern": {"String": pattern}, "content": content}


def chain(kind, *parts):
    return {"type": "Sequence", kind: list(parts)}


MARK = "\u2581"
FALLBACK, FUSE = {"type": "ByteFallback"}, {"type": "Fuse"}
STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
PREPEND = {"type": "Prepend", "prepend": MARK}


def metaspace(scheme="always", split=True):
    return {"type": "Metaspace", "replacement": MARK, "prepend_scheme": scheme, "split": split}


# name: model, whether bytes are entries, normalizer, pre-tokenizer, decoder
TRAINED = {
    "llama2": ("BPE", True, chain("normalizers", PREPEND, string_step("Replace", " ", MARK)), None,
               chain("decoders", string_step("Replace", MARK, " "), FALLBACK, FUSE, STRIP)),
    "mistral": ("BPE", True, None, metaspace("first", False),
                chain("decoders", string_step("Replace", MARK, " "), FALLBACK, FUSE, STRIP)),
    "gemma": ("BPE", True, string_step("Replace", " ", MARK),
              {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
              chain("decoders", string_step("Replace", MARK, " "), FALLBACK, FUSE)),
    "plain-bpe": ("BPE", False, chain("normalizers", {"type": "NFKC"}, {"type": "Strip", "strip_left": True, "strip_right": True}),
                  sequence({"type": "Digits", "individual_digits": True},
                           metaspace("never")),
                  {"type": "Metaspace", "replacement": MARK, "prepend_scheme": "never", "split": True}),
    "unigram": ("Unigram", False, chain("normalizers", {"type": "NFKC"}, {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}),
                metaspace(), metaspace()),
    "unigram-bytes": ("Unigram", True, None, sequence({"type": "WhitespaceSplit"}, metaspace("first")), chain(
        "decoders", string_step("Replace", MARK, " "), FALLBACK, FUSE, STRIP)),
}
TRAINED_ADDED = [("<s>", {}), ("</s>", {}), ("<x>", {"special": False, "lstrip": True}), ("<y>", {"special": False, "rstrip": True}),
                 ("mask", {"special": False, "single_word": True, "normalized": True}), ("[INST]", {"special": False, "normalized": True})]


def trained_json(kind, with_bytes, normalizer, pre_tokenizer, decoder):
    document = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": normalizer,
                "pre_tokenizer": pre_tokenizer, "post_processor": None, "decoder": decoder}
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None, "end_of_word_suffix": None,
             "fuse_unk": True, "byte_fallback": with_bytes, "ignore_merges": False, "vocab": {"<unk>": 0}, "merges": []}
    special = ["<unk>", "<s>", "</s>"]
    special += [f"<0x{byte:02X}>" for byte in range(256)] if with_bytes else []
    if kind == "Unigram":
        model = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0]], "byte_fallback": with_bytes}
        trainer = trainers.UnigramTrainer(vocab_size=len(special) + 450, special_tokens=special, unk_token="<unk>", show_progress=False)
    else:
        trainer = trainers.BpeTrainer(vocab_size=len(special) + 450, special_tokens=special, show_progress=False, limit_alphabet=180)
    # Trained with pieces that do not cross spaces, whatever the finished file says.
    tokenizer = Tokenizer.from_str(json.dumps(document | {"model": model, "pre_tokenizer": sequence(metaspace())}))
    tokenizer.train_from_iterator([text for text in TEXTS if len(set(text)) > 2] * 3, trainer)
    trained = json.loads(tokenizer.to_str())["model"]
    trained["byte_fallback"] = with_bytes
    if kind == "BPE":
        trained |= {"unk_token": "<unk>", "fuse_unk": True}
    known = {entry[0]: i for i, entry in enumerate(trained["vocab"])} if kind == "Unigram" else trained["vocab"]
    added = [{"id": 0, "content": "<unk>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}]
    new = [content for content, _ in TRAINED_ADDED if content not in known]  # the library numbers them without gaps
    for content, flags in TRAINED_ADDED:
        plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        number = known[content] if content in known else len(known) + new.index(content)
        added.append({"id": number, "content": content} | plain | flags)
    return document | {"model": trained, "added_tokens": added}


def trained_texts(rng):
    pool = POOL + ["<s>", "</s>", "[INST]", MARK, "mask", "<0x41>", "<unk>", "fox", "the", "books", " the", "\U0001F1FA"]
    texts = [text for text in TEXTS if len(text) < 120]
    texts += ["".join(rng.choice(pool) for _ in range(rng.choice([2, 5, 9, 20]))) for _ in range(120)]
    texts += [bytes(rng.randrange(256) for _ in range(24)).decode("utf-8", errors="replace") for _ in range(10)]
    return texts + characters_of_every_block(rng)


def record_trained():
    lines = []
    for name, recipe in TRAINED.items():
        rng = random.Random(name)
        document = trained_json(*recipe)
        tokenizer = Tokenizer.from_str(json.dumps(document))
        cases = []
        for text in trained_texts(rng):
            try:
                cases.append(case(tokenizer, text))
            except BaseException as failure:  # as in record_encodings
                print("skipped one:", str(failure)[:60])
        # Ids in any order, as a model may sample them.
        sampled = [[rng.randrange(tokenizer.get_vocab_size()) for _ in range(12)] for _ in range(40)]
        sampled += [[rng.randrange(3, 259) for _ in range(6)] for _ in range(10)]
        decoded = [[ids, tokenizer.decode(ids, skip_special_tokens=False), tokenizer.decode(ids, skip_special_tokens=True)]
                   for ids in sampled]
        lines.append({"name": name, "tokenizer": document, "cases": cases, "decoded": decoded})
    write("trained.jsonl", lines)


def record_encodings():
    rng = random.Random(5)
    lines = []
    while len(lines) < 45:
        config = random_config(rng)
        tokenizer = Tokenizer.from_str(tokenizer_json(config))
        try:
            cases = [case(tokenizer, random_text(rng)) for _ in range(6)]
        except BaseException as failure:  # the library panics where lstrip and rstrip of neighbours overlap
            print("skipped one:", str(failure)[:60])
            continue
        defaults = config_of(config["pre_tokenizer"])
        config = {name: value for name, value in config.items() if name == "pre_tokenizer" or value != defaults[name]}
        lines.append(config | {"cases": cases})
    write("encodings.jsonl", lines)


if __name__ == "__main__":
    TARGET.mkdir(parents=True, exist_ok=True)
    record_tutor("tutor-deepseek-v3")
    record_tutor("tutor-qwen3.5-moe")
    record_splits()
    record_encodings()
    record_trained()
