// Files that are wrong, hostile, or ask for what is not supported: each is refused with the field and the
// value named.
#include <functional>

#include "tests/serving/tokenizer_fixture.h"

namespace lockstep::serving {
namespace {

std::string refusal_of_text(std::string_view json) {
  const auto tokenizer = Tokenizer::from_json(json);
  return tokenizer.ok() ? "loaded" : tokenizer.error().message;
}

std::string refusal(const std::function<void(Json&)>& change) {
  Json file = made_up({{"merges", merge_list({{"a", "b"}, {"ab", "c"}})}});
  change(file);
  return refusal_of_text(to_text(file));
}

TEST(TokenizerLoad, ReadsBothSpellingsOfMerges) {
  Json file = made_up({{"merges", merge_list({{"a", "b"}, {"ab", "c"}})}});
  EXPECT_EQ(refusal_of_text(to_text(file)), "loaded");
  file["model"]["merges"] = {"a b", "ab c"};
  const auto tokenizer = Tokenizer::from_json(to_text(file));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(tokenizer->encode("abcab", AddedTokens::kParse), (std::vector<int32_t>{257, 256}));
}

TEST(TokenizerLoad, ReadsAFileWithoutWhatMayBeLeftOut) {
  EXPECT_EQ(refusal([](Json& file) {
              for (const char* field : {"added_tokens", "normalizer", "post_processor"}) file.erase(field);
              for (const char* field :
                   {"type", "dropout", "unk_token", "fuse_unk", "byte_fallback", "ignore_merges"})
                file["model"].erase(field);
            }),
            "loaded");
}

TEST(TokenizerLoad, NamesTheFileThatIsNotThere) {
  const auto tokenizer = Tokenizer::load("/nowhere");
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kNotFound);
  EXPECT_NE(tokenizer.error().message.find("/nowhere/tokenizer.json"), std::string::npos);
}

TEST(TokenizerLoad, RefusesWhatIsNotJson) {
  const std::string file =
      to_text(made_up({{"merges", merge_list({{"a", "b"}})}, {"added_tokens", {added_token(257, "<s>")}}}));
  for (size_t size = 0; size < file.size(); size += 7)
    EXPECT_NE(refusal_of_text(std::string_view(file).substr(0, size)).find("not JSON at byte"),
              std::string::npos)
        << size;
  EXPECT_EQ(refusal_of_text("[1]"), "tokenizer.json is an array of 1 entries, not an object");
  EXPECT_EQ(refusal_of_text("3"), "tokenizer.json is 3, not an object");
  EXPECT_EQ(refusal_of_text(std::string(100'000, '[')), "tokenizer.json: nested deeper than 64 levels");
  EXPECT_EQ(refusal_of_text(R"({"model":{"vocab":{"a":{"b":[]}}}})"),
            "tokenizer.json: model.vocab: the id of \"a\" is an object, not an integer");
  EXPECT_EQ(refusal_of_text(R"({"a":1,"a":2})"), "tokenizer.json: the key \"a\" stands twice in one object");
}

TEST(TokenizerLoad, RefusesAnObjectOfTooManyFields) {
  std::string file = "{";
  for (int i = 0; i < 1025; ++i) file += fmt::format("{}\"k{}\":1", i == 0 ? "" : ",", i);
  EXPECT_EQ(refusal_of_text(file + "}"), "tokenizer.json: an object of more than 1024 fields");
}

TEST(TokenizerLoad, NamesWhatIsWrongInTheModel) {
  EXPECT_EQ(refusal([](Json& f) { f.erase("model"); }), "model is null, not an object");
  EXPECT_EQ(refusal([](Json& f) { f["model"] = {1}; }), "model is an array of 1 entries, not an object");
  EXPECT_EQ(refusal([](Json& f) { f["model"].erase("vocab"); }),
            "model.vocab is missing: it must be an object");
  EXPECT_EQ(refusal([](Json& f) { f["model"]["vocab"] = {{"a", 1}, {"b", 2}}; }),
            "model.merges[0] names the token \"ab\", which is not in model.vocab");
  EXPECT_EQ(refusal([](Json& f) { f["model"].erase("merges"); }),
            "model.merges is missing: it must be an array");
  EXPECT_EQ(refusal([](Json& f) { f["model"]["merges"] = "a b"; }),
            "model.merges is missing: it must be an array");
  EXPECT_EQ(refusal([](Json& f) { f["model"]["type"] = "Unigram"; }),
            "model.vocab is missing: it must be an array of tokens and their scores");
  EXPECT_EQ(refusal([](Json& f) { f["model"]["type"] = "WordPiece"; }),
            "model.type is \"WordPiece\": the types supported are BPE and Unigram");
  EXPECT_EQ(refusal([](Json& f) { f["model"]["type"] = 5; }), "model.type is 5: it must be text");
  EXPECT_EQ(refusal([](Json& f) { f["model"]["byte_fallback"] = true; }),
            "model.byte_fallback is true: with ByteLevel, every byte of 256 has a symbol");
  EXPECT_EQ(refusal([](Json& f) { f["model"]["dropout"] = 0.1; }),
            "model.dropout is 0.1: it must be null, for ids must not be random");
  EXPECT_EQ(refusal([](Json& f) { f["model"]["end_of_word_suffix"] = "</w>"; }),
            "model.end_of_word_suffix is \"</w>\": it must be null or empty");
  EXPECT_EQ(refusal([](Json& f) { f["model"]["unk_token"] = "<unk>"; }),
            "model.unk_token is \"<unk>\", which is not in model.vocab");
  EXPECT_EQ(refusal([](Json& f) { f["model"]["ignore_merges"] = "no"; }),
            "model.ignore_merges is \"no\": it must be true or false");
}

TEST(TokenizerLoad, NamesWhatIsWrongInTheVocabulary) {
  const auto with_entry = [](const char* token, const Json& id) {
    return refusal([&](Json& file) { file["model"]["vocab"][token] = id; });
  };
  EXPECT_EQ(with_entry("zz", -1),
            "model.vocab: the token \"zz\" has the id -1, which is not between 0 and 4194304");
  EXPECT_EQ(with_entry("zz", 2147483648),
            "model.vocab: the token \"zz\" has the id 2147483648, which is not between 0 and 4194304");
  EXPECT_EQ(
      with_entry("zz", uint64_t{1} << 63),
      "model.vocab: the token \"zz\" has the id 9223372036854775807, which is not between 0 and 4194304");
  EXPECT_EQ(with_entry("zz", 97), "model.vocab: the token \"zz\" has the id 97, which another token has too");
  EXPECT_EQ(with_entry("zz", "5"), "tokenizer.json: model.vocab: the id of \"zz\" is text, not an integer");
  EXPECT_EQ(with_entry("zz", 1.5),
            "tokenizer.json: model.vocab: the id of \"zz\" is a fraction, not an integer");
  EXPECT_EQ(with_entry("zz", nullptr),
            "tokenizer.json: model.vocab: the id of \"zz\" is null, not an integer");
  EXPECT_EQ(refusal_of_text(R"({"model":{"vocab":{"a":0,"a":1},"merges":[]},"pre_tokenizer":)" +
                            to_text(byte_level_step()) + R"(,"decoder":)" + to_text(byte_level_step()) + "}"),
            "model.vocab: the token \"a\" stands twice, with the ids 0 and 1");
}

TEST(TokenizerLoad, NamesWhatIsWrongInTheMerges) {
  const auto with_merge = [](const Json& merge) {
    return refusal([&](Json& file) { file["model"]["merges"].push_back(merge); });
  };
  EXPECT_EQ(with_merge({"a", "zz"}), "model.merges[2] names the token \"zz\", which is not in model.vocab");
  EXPECT_EQ(with_merge({"a", "c"}), "model.merges[2] names the token \"ac\", which is not in model.vocab");
  EXPECT_EQ(with_merge("a b c"),
            "tokenizer.json: model.merges[2] is \"a b c\", not two tokens with one space between");
  EXPECT_EQ(with_merge("ab"),
            "tokenizer.json: model.merges[2] is \"ab\", not two tokens with one space between");
  EXPECT_EQ(with_merge({"a"}), "tokenizer.json: model.merges[2] has 1 parts instead of 2");
  EXPECT_EQ(with_merge({"a", "b", "c"}), "tokenizer.json: model.merges[2] has 3 parts instead of 2");
  EXPECT_EQ(with_merge({"a", 5}), "tokenizer.json: model.merges[2] holds a number where text must be");
  EXPECT_EQ(with_merge(5), "tokenizer.json: model.merges[2] holds a number where text must be");
  EXPECT_EQ(with_merge(Json::array({Json::array({"a", "b"})})),
            "tokenizer.json: model.merges[2] holds an array where text must be");
}

TEST(TokenizerLoad, NamesWhatIsWrongInTheAddedTokens) {
  const auto with_token = [](const Json& token) {
    return refusal([&](Json& file) { file["added_tokens"] = {added_token(258, "<s>"), token}; });
  };
  EXPECT_EQ(with_token(added_token(259, "<t>")), "loaded");
  EXPECT_EQ(with_token(5), "added_tokens[1] is 5, not an object");
  EXPECT_EQ(with_token(added_token(-1, "<t>")), "added_tokens[1].id is -1: it must be between 0 and 4194304");
  EXPECT_EQ(with_token(added_token(1 << 30, "<t>")),
            "added_tokens[1].id is 1073741824: it must be between 0 and 4194304");
  EXPECT_EQ(with_token(added_token(258, "<t>")),
            "added_tokens[1]: \"<t>\" has the id 258, which another token has too");
  EXPECT_EQ(with_token(added_token(97, "<t>")),
            "added_tokens[1]: \"<t>\" has the id 97, which another token has too");
  EXPECT_EQ(with_token(added_token(259, "a")),
            "added_tokens[1]: \"a\" has the id 259, but 97 in model.vocab");
  EXPECT_EQ(with_token(added_token(97, "a")), "loaded");
  EXPECT_EQ(with_token(added_token(259, "<s>")),
            "added_tokens[1]: \"<s>\" is added twice, with the ids 258 and 259");
  EXPECT_EQ(with_token(added_token(259, "")),
            "added_tokens[1].content has 0 bytes: it must have between 1 and 1024");
  EXPECT_EQ(with_token(added_token(259, std::string(1025, 'x'))),
            "added_tokens[1].content has 1025 bytes: it must have between 1 and 1024");
  EXPECT_EQ(with_token(added_token(259, "<t>", {{"special", 1}})),
            "added_tokens[1].special is 1: it must be true or false");
  EXPECT_EQ(with_token({{"id", 259}}), "added_tokens[1].content is missing: it must be text");
  EXPECT_EQ(refusal([](Json& f) { f["added_tokens"] = 3; }), "added_tokens is 3: it must be an array");
}

TEST(TokenizerLoad, NamesOtherPartsThatAreNotSupported) {
  const std::string decoders =
      "the decoders supported are ByteLevel, Replace, Strip, Metaspace, ByteFallback, Fuse and Sequence";
  const auto with_decoder = [](const Json& decoder) {
    return refusal([&](Json& f) { f["decoder"] = decoder; });
  };
  const auto chain = [](std::vector<Json> parts) { return Json{{"type", "Sequence"}, {"decoders", parts}}; };
  const Json fuse = {{"type", "Fuse"}}, bytes = {{"type", "ByteFallback"}};
  const auto strip = [](int stop) {
    return Json{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", stop}};
  };
  EXPECT_EQ(with_decoder(nullptr), "decoder is null: " + decoders);
  EXPECT_EQ(with_decoder({{"type", "WordPiece"}}), "decoder is WordPiece: " + decoders);
  EXPECT_EQ(with_decoder(chain({byte_level_step()})), "loaded");
  EXPECT_EQ(with_decoder(chain({})),
            "decoder is a Sequence of 0 decoders: tokens would be joined with spaces");
  EXPECT_EQ(with_decoder(chain({byte_level_step(), fuse})),
            "decoder.decoders[0]: ByteLevel is one of 2 decoders: it must be the only one");
  EXPECT_EQ(with_decoder(chain({strip(1), bytes, fuse, strip(0)})), "loaded");
  EXPECT_EQ(with_decoder(chain({fuse, strip(1)})),
            "decoder.decoders[1].stop is 1: behind Fuse one Strip at the start is supported");
  EXPECT_EQ(with_decoder(chain({bytes, strip(0)})),
            "decoder.decoders[1]: Strip between ByteFallback and Fuse is not supported, of 1 before");
  EXPECT_EQ(
      with_decoder(chain({fuse, bytes})),
      "decoder.decoders[1]: the decoder \"ByteFallback\" comes after Fuse: only Strip is supported there");
  EXPECT_EQ(with_decoder({{"type", "Strip"}, {"content", "ab"}, {"start", 1}, {"stop", 0}}),
            "decoder strips \"ab\" at 1 places before and 0 after: one character, 0 to 1024 places");
  EXPECT_EQ(with_decoder({{"type", "Replace"}, {"pattern", {{"Regex", "a"}}}, {"content", ""}}),
            "decoder.pattern.Regex is \"a\": only a String is supported here");
  EXPECT_EQ(with_decoder({{"type", "Replace"}, {"pattern", {{"String", ""}}}, {"content", ""}}),
            "decoder.pattern.String has 0 characters: it must have one or more");
  EXPECT_EQ(with_decoder({{"type", "Metaspace"}, {"replacement", "ab"}}),
            "decoder.replacement has 2 bytes: it must be one character");
  EXPECT_EQ(with_decoder({{"type", "Metaspace"}, {"replacement", "_"}, {"prepend_scheme", "last"}}),
            "decoder.prepend_scheme is \"last\": it must be always, first or never");
  EXPECT_EQ(refusal([](Json& f) { f["post_processor"] = {{"type", "BertProcessing"}}; }),
            "post_processor: the post-processor \"BertProcessing\" is not supported (supported: ByteLevel, "
            "TemplateProcessing, "
            "Sequence)");
  EXPECT_EQ(refusal([](Json& f) {
              f["post_processor"] = {
                  {"type", "TemplateProcessing"},
                  {"single", {{{"SpecialToken", {{"id", "<s>"}}}}, {{"Sequence", {{"id", "A"}}}}}},
                  {"special_tokens", {{"<s>", {{"ids", {900}}}}}}};
            }),
            "post_processor.special_tokens.<s>.ids holds 900: it must hold ids between 0 and 257");
  EXPECT_EQ(refusal([](Json& f) { f["normalizer"] = {{"type", "Precompiled"}}; }),
            "normalizer: the normalizer \"Precompiled\" is not supported (supported: NFC, NFD, NFKC, NFKD, "
            "Prepend, Replace, Strip, Sequence)");
  EXPECT_EQ(refusal([](Json& f) { f["normalizer"] = {{"type", "Replace"}, {"content", ""}}; }),
            "normalizer.pattern is null, not an object");
  EXPECT_EQ(refusal([](Json& f) { f["normalizer"] = {{"type", "Strip"}, {"strip_left", 1}}; }),
            "normalizer.strip_left is 1: it must be true or false");
}

std::string refusal_of_unigram(const Json& vocab, const Json& unk_id) {
  const Json file = {{"model", {{"type", "Unigram"}, {"vocab", vocab}, {"unk_id", unk_id}}},
                     {"decoder", {{"type", "Fuse"}}}};
  return refusal_of_text(to_text(file));
}

TEST(TokenizerLoad, NamesWhatIsWrongInScores) {
  const Json good = Json::array({Json::array({"<unk>", 0}), Json::array({"a", -1.5})});
  EXPECT_EQ(refusal_of_unigram(good, 0), "loaded");
  EXPECT_EQ(refusal_of_unigram(good, nullptr), "loaded");
  EXPECT_EQ(refusal_of_unigram(good, 2), "model.unk_id is 2: it must be below 2, the size of model.vocab");
  EXPECT_EQ(refusal_of_unigram(good, "0"), "model.unk_id is \"0\": it must be an integer");
  EXPECT_EQ(refusal_of_unigram(Json::array({Json::array({"a"})}), 0),
            "tokenizer.json: model.vocab[0] has 1 parts instead of 2");
  EXPECT_EQ(refusal_of_unigram(Json::array({Json::array({-1, "a"})}), 0),
            "tokenizer.json: model.vocab[0] holds a number: it must be a token and its score");
  EXPECT_EQ(refusal_of_unigram(Json::array({"a"}), 0),
            "tokenizer.json: model.vocab[0] holds text: it must be a token and its score");
  EXPECT_EQ(refusal_of_unigram(Json::array({Json::array({"a", 0}), Json::array({"a", 1})}), 0),
            "model.vocab: the token \"a\" stands twice, with the ids 0 and 1");
}

// A pattern may cost, but it never hangs and the ids are the same each time.
TEST(TokenizerLoad, SurvivesACatastrophicPattern) {
  Json file = made_up({{"pre_tokenizer", steps({split_step("(?:a|a)*b|\\s+$")})}});
  const auto tokenizer = Tokenizer::from_json(to_text(file));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const std::string text = std::string(20'000, 'a') + std::string(20'000, ' ') + "c";
  const auto ids = tokenizer->encode(text, AddedTokens::kParse);
  EXPECT_EQ(tokenizer->decode(ids, SpecialTokens::kKeep), text);
  EXPECT_EQ(tokenizer->encode(text, AddedTokens::kParse), ids);
}

}  // namespace
}  // namespace lockstep::serving
