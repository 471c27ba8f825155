// Where pre-tokenizers cut: the published patterns' worked examples, and splits of every kind as recorded
// from Hugging Face.
#include "lockstep/serving/tokenizer/pre_tokenizer.h"
#include "tests/serving/tokenizer_fixture.h"

namespace lockstep::serving {
namespace {

using tokenizing::PreTokenizer;
using Pieces = std::vector<std::string>;

constexpr std::string_view kQwen3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDeepSeek3 =
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
    "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+";

PreTokenizer read(const Json& value) {
  auto read = PreTokenizer::read(value, "pre_tokenizer");
  EXPECT_TRUE(read.ok()) << read.error().message;
  return std::move(read).value();
}

PreTokenizer qwen3() { return read(steps({split_step(kQwen3)})); }
PreTokenizer qwen35() { return read(steps({split_step(kQwen35)})); }
PreTokenizer deepseek_v3() {
  return read(
      steps({split_step("\\p{N}{1,3}"), split_step("[一-龥\u3040-ゟ゠-ヿ]+"), split_step(kDeepSeek3)}));
}

Pieces cut(const PreTokenizer& pre_tokenizer, std::string_view text) {
  const auto cut = pre_tokenizer.cut(text, tokenizing::TextPlace::kFirst);
  return {cut.pieces.begin(), cut.pieces.end()};
}

TEST(PreTokenizer, CutsTheWorkedExamplesOfQwen3) {
  const PreTokenizer q = qwen3();
  EXPECT_EQ(cut(q, "Hello   world 2024!\n\n  x"),
            (Pieces{"Hello", "  ", " world", " ", "2", "0", "2", "4", "!\n\n", " ", " x"}));
  EXPECT_EQ(cut(q, "I'LL don't"), (Pieces{"I", "'LL", " don", "'t"}));
  EXPECT_EQ(cut(q, "x = foo.bar(12345)\n"),
            (Pieces{"x", " =", " foo", ".bar", "(", "1", "2", "3", "4", "5", ")\n"}));
  EXPECT_EQ(cut(q, "你好world 123你好"), (Pieces{"你好world", " ", "1", "2", "3", "你好"}));
  EXPECT_EQ(cut(q, "a \n b"), (Pieces{"a", " \n", " b"}));
  EXPECT_EQ(cut(q, "हिन्दी"), (Pieces{"ह", "िन", "्द", "ी"}));
}

TEST(PreTokenizer, CutsTheWorkedExamplesOfQwen35) {
  const PreTokenizer q = qwen35();
  EXPECT_EQ(cut(q, "Hello   world 2024!\n\n  x"),
            (Pieces{"Hello", "  ", " world", " ", "2", "0", "2", "4", "!\n\n", " ", " x"}));
  EXPECT_EQ(cut(q, "I'LL don't"), (Pieces{"I", "'LL", " don", "'t"}));
  EXPECT_EQ(cut(q, "x = foo.bar(12345)\n"),
            (Pieces{"x", " =", " foo", ".bar", "(", "1", "2", "3", "4", "5", ")\n"}));
  EXPECT_EQ(cut(q, "你好world 123你好"), (Pieces{"你好world", " ", "1", "2", "3", "你好"}));
  EXPECT_EQ(cut(q, "a \n b"), (Pieces{"a", " \n", " b"}));
  EXPECT_EQ(cut(q, "हिन्दी"), (Pieces{"हिन्दी"}));
}

TEST(PreTokenizer, CutsTheWorkedExamplesOfDeepSeekV3) {
  const PreTokenizer d = deepseek_v3();
  EXPECT_EQ(cut(d, "Hello   world 2024!\n\n  x"),
            (Pieces{"Hello", "  ", " world", " ", "202", "4", "!\n\n", " ", " x"}));
  EXPECT_EQ(cut(d, "I'LL don't"), (Pieces{"I", "'LL", " don", "'t"}));
  EXPECT_EQ(cut(d, "x = foo.bar(12345)\n"), (Pieces{"x", " =", " foo", ".bar", "(", "123", "45", ")\n"}));
  EXPECT_EQ(cut(d, "你好world 123你好"), (Pieces{"你好", "world", " ", "123", "你好"}));
  EXPECT_EQ(cut(d, "a \n b"), (Pieces{"a", " \n", " b"}));
  EXPECT_EQ(cut(d, "हिन्दी"), (Pieces{"हिन्दी"}));
}

// U+1FA77 is a symbol since Unicode 15: a library of Unicode 14 would let it stand before letters as an
// unknown character.
TEST(PreTokenizer, KnowsCharactersNewerThanItsLibraries) {
  EXPECT_EQ(cut(deepseek_v3(), "love🩷you"), (Pieces{"love", "🩷", "you"}));
  EXPECT_EQ(cut(deepseek_v3(), "love😀you"), (Pieces{"love", "😀", "you"}));
}

TEST(PreTokenizer, CutsAsRecorded) {
  const auto lines = read_json_lines(tokenizer_data("splits.jsonl"));
  EXPECT_GE(lines.size(), 130u);
  for (const Json& line : lines) {
    SCOPED_TRACE(to_text(line["pre_tokenizer"]));
    const PreTokenizer pre_tokenizer = read(line["pre_tokenizer"]);
    for (const Json& recorded : line["cases"]) {
      Pieces got;
      for (const std::string& piece : cut(pre_tokenizer, recorded[0].get<std::string>()))
        got.push_back(spelled(piece));
      auto want = recorded.get<Pieces>();
      want.erase(want.begin());
      EXPECT_EQ(got, want) << to_text(recorded[0]);
    }
  }
}

TEST(PreTokenizer, CutsNothingFromNothing) { EXPECT_EQ(cut(qwen3(), ""), Pieces{}); }

TEST(PreTokenizer, CutsLongRunsInOnePieceEach) {
  const std::string letters(1'000'000, 'a');
  const std::string spaces(1'000'000, ' ');
  EXPECT_EQ(cut(qwen3(), letters + "\n" + letters), (Pieces{letters, "\n", letters}));
  EXPECT_EQ(cut(qwen3(), spaces + "x"), (Pieces{spaces.substr(1), " x"}));
  EXPECT_EQ(cut(qwen3(), spaces + "\n" + spaces), (Pieces{spaces + "\n", spaces}));
}

std::string refusal(const Json& value) {
  const auto read = PreTokenizer::read(value, "pre_tokenizer");
  return read.ok() ? "" : read.error().message;
}

TEST(PreTokenizer, NamesWhatItDoesNotSupport) {
  EXPECT_EQ(refusal(nullptr), "");
  EXPECT_EQ(
      refusal(steps({{{"type", "BertPreTokenizer"}}})),
      "pre_tokenizer.pretokenizers[0]: the pre-tokenizer \"BertPreTokenizer\" is not supported (supported: "
      "Split, Digits, WhitespaceSplit, Metaspace, ByteLevel, Sequence)");
  EXPECT_EQ(refusal({{"type", "Metaspace"}}), "pre_tokenizer.replacement is missing: it must be text");
  EXPECT_EQ(
      refusal(steps({byte_level_step()})),
      "pre_tokenizer.pretokenizers[1]: \"ByteLevel\" comes after ByteLevel, which must be the last step");
  EXPECT_EQ(refusal(steps({split_step("a", "Sideways")})),
            "pre_tokenizer.pretokenizers[0].behavior is \"Sideways\": it must be Isolated, Removed, "
            "MergedWithPrevious, "
            "MergedWithNext or Contiguous");
  EXPECT_EQ(refusal(steps({split_step("a(")})),
            "pre_tokenizer.pretokenizers[0].pattern.Regex: the pattern is not supported: a group without its "
            "\")\" at byte 2");
  Json without_pattern = split_step("a");
  without_pattern["pattern"] = 3;
  EXPECT_EQ(refusal(steps({without_pattern})), "pre_tokenizer.pretokenizers[0].pattern is 3, not an object");
  without_pattern["pattern"] = {{"Regex", 7}};
  EXPECT_EQ(refusal(steps({without_pattern})),
            "pre_tokenizer.pretokenizers[0].pattern.Regex is 7: it must be text");
  EXPECT_EQ(refusal({{"type", "Sequence"}}), "pre_tokenizer.pretokenizers is missing: it must be an array");
  EXPECT_EQ(refusal({{"type", "ByteLevel"}}),
            "pre_tokenizer.add_prefix_space is missing: it must be true or false");
}

}  // namespace
}  // namespace lockstep::serving
