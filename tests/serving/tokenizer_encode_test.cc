// What encode() promises beyond agreeing with recorded ids: added tokens as text, bytes of any kind, long
// runs, lookups.
#include <algorithm>

#include "lockstep/base/hash.h"
#include "lockstep/serving/tokenizer/bpe.h"
#include "tests/serving/tokenizer_fixture.h"

namespace lockstep::serving {
namespace {

using Ids = std::vector<int32_t>;

Ids bytes_of(std::string_view text) {
  Ids ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

Json with_added(std::vector<Json> tokens) {
  for (Json& token : tokens) token.erase("id");
  return {{"added_tokens", tokens}};
}

TEST(Tokenizer, FindsAddedTokensOnlyWhereTheyAreParsed) {
  const Tokenizer tokenizer = load_made_up(
      with_added({added_token(0, "<|im_end|>", {{"special", true}}), added_token(0, "<think>")}));
  EXPECT_EQ(tokenizer.encode("a<|im_end|><think>", AddedTokens::kParse), (Ids{'a', 256, 257}));
  EXPECT_EQ(tokenizer.encode("a<|im_end|><think>", AddedTokens::kAsText), bytes_of("a<|im_end|><think>"));
}

// GPT-NeoX spells indentation with added tokens: those are no control tokens, and plain text is made of them.
TEST(Tokenizer, FindsWhiteSpaceTokensInPlainTextToo) {
  const Tokenizer tokenizer = load_made_up(with_added(
      {added_token(0, "    ", {{"normalized", true}}), added_token(0, "\t\t", {{"special", true}})}));
  EXPECT_EQ(tokenizer.encode("    x\t\t", AddedTokens::kParse), (Ids{256, 'x', 257}));
  EXPECT_EQ(tokenizer.encode("    x\t\t", AddedTokens::kAsText), (Ids{256, 'x', '\t', '\t'}));
}

// An entry that is also an added token could come out of merging, or of ignore_merges: not for plain text.
TEST(Tokenizer, NeverMergesPlainTextIntoAnAddedToken) {
  for (const bool ignore_merges : {false, true}) {
    Json file =
        made_up({{"merges", merge_list({{"<", "s"}, {"<s", ">"}})}, {"ignore_merges", ignore_merges}});
    file["added_tokens"] = Json::array({added_token(257, "<s>", {{"special", true}})});
    const auto tokenizer = Tokenizer::from_json(to_text(file));
    ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
    EXPECT_EQ(tokenizer->encode("<s>", AddedTokens::kParse), (Ids{257}));
    EXPECT_EQ(tokenizer->encode("<s>", AddedTokens::kAsText), (Ids{256, '>'}));
  }
}

TEST(Tokenizer, RepairsBytesThatAreNotUtf8) {
  const Tokenizer tokenizer = load_made_up();
  EXPECT_EQ(tokenizer.encode("a\xFF"
                             "b",
                             AddedTokens::kParse),
            bytes_of("a\xEF\xBF\xBD"
                     "b"));
  EXPECT_EQ(tokenizer.encode(std::string_view("\0\n", 2), AddedTokens::kParse), (Ids{0, 10}));
  EXPECT_EQ(tokenizer.encode("", AddedTokens::kParse), Ids{});
}

// One merge table that doubles: a run of 2^20 letters must become one token at each power of two, quickly.
TEST(Tokenizer, MergesALongRunWithoutQuadraticWork) {
  std::vector<Json> merges;
  std::string token = "a";
  for (int i = 0; i < 10; ++i, token += token) merges.push_back({token, token});
  const Tokenizer tokenizer = load_made_up({{"merges", merges}});
  const std::string run(size_t{1} << 20, 'a');
  const int32_t longest = *tokenizer.find(std::string(1024, 'a'));
  EXPECT_EQ(tokenizer.encode(run, AddedTokens::kParse), Ids(1024, longest));
}

// The definition, word for word: the pair of lowest rank, the leftmost of equals, until none is left.
Ids merge_naively(std::string_view text, const std::vector<std::pair<std::string, std::string>>& merges,
                  const Tokenizer& tokenizer) {
  std::vector<std::string> parts;
  for (const char c : text) parts.emplace_back(1, c);
  for (;;) {
    size_t best = merges.size(), at = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = std::find(merges.begin(), merges.end(), std::pair(parts[i], parts[i + 1]));
      const auto rank = static_cast<size_t>(found - merges.begin());
      if (rank < best) best = rank, at = i;
    }
    if (best == merges.size()) break;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  Ids ids;
  for (const std::string& part : parts) ids.push_back(*tokenizer.find(part));
  return ids;
}

TEST(Tokenizer, MergesAsTheDefinitionSays) {
  uint64_t draw = 0;
  const auto below = [&](size_t bound) { return static_cast<size_t>(mix64(++draw) % bound); };
  for (int round = 0; round < 50; ++round) {
    std::vector<std::string> known = {"a", "b", "c"};
    std::vector<std::pair<std::string, std::string>> merges;
    Json listed = Json::array();
    while (merges.size() < 12) {
      std::pair<std::string, std::string> merge(known[below(known.size())], known[below(known.size())]);
      if (std::find(merges.begin(), merges.end(), merge) != merges.end()) continue;
      known.push_back(merge.first + merge.second);
      listed.push_back({merge.first, merge.second});
      merges.push_back(std::move(merge));
    }
    const Tokenizer tokenizer = load_made_up({{"merges", listed}});
    for (int i = 0; i < 20; ++i) {
      std::string text;
      while (text.size() < 40) text += static_cast<char>('a' + below(3));
      ASSERT_EQ(tokenizer.encode(text, AddedTokens::kParse), merge_naively(text, merges, tokenizer)) << text;
    }
  }
}

TEST(Tokenizer, LooksUpTokens) {
  const Tokenizer tokenizer = load_made_up({{"merges", merge_list({{"Ġ", "a"}})},
                                            {"added_tokens",
                                             {{{"content", "<｜x｜>"},
                                               {"special", true},
                                               {"single_word", false},
                                               {"lstrip", false},
                                               {"rstrip", false},
                                               {"normalized", false}}}}});
  EXPECT_EQ(tokenizer.size(), 258);
  EXPECT_EQ(tokenizer.find(" a"), 256);
  EXPECT_EQ(tokenizer.find("\n"), 10);
  EXPECT_EQ(tokenizer.find("<｜x｜>"), 257);
  EXPECT_EQ(tokenizer.find("zz"), std::nullopt);
  EXPECT_EQ(tokenizer.token_bytes(256), " a");
  EXPECT_EQ(tokenizer.token_bytes(257), "<｜x｜>");
  EXPECT_EQ(tokenizer.token_bytes(0xE4), "\xE4");
  EXPECT_EQ(tokenizer.token_bytes(-1), "");
  EXPECT_EQ(tokenizer.token_bytes(258), "");
  EXPECT_TRUE(tokenizer.is_special(257));
  EXPECT_TRUE(tokenizer.is_added(257));
  EXPECT_FALSE(tokenizer.is_special(256));
  EXPECT_FALSE(tokenizer.is_added(-1));
  EXPECT_FALSE(tokenizer.is_special(1 << 30));
}

TEST(Tokenizer, SaysWhatBelongsAroundAPrompt) {
  Json file = made_up(
      with_added({added_token(0, "<s>", {{"special", true}}), added_token(0, "</s>", {{"special", true}})}));
  const auto special = [](const char* name) {
    return Json{{"SpecialToken", {{"id", name}, {"type_id", 0}}}};
  };
  file["post_processor"] = {
      {"type", "TemplateProcessing"},
      {"single", {special("<s>"), {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, special("</s>")}},
      {"special_tokens",
       {{"<s>", {{"id", "<s>"}, {"ids", {256}}}}, {"</s>", {{"id", "</s>"}, {"ids", {257}}}}}}};
  const auto tokenizer = Tokenizer::from_json(to_text(file));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  EXPECT_EQ(Ids(tokenizer->prompt_prefix().begin(), tokenizer->prompt_prefix().end()), Ids{256});
  EXPECT_EQ(Ids(tokenizer->prompt_suffix().begin(), tokenizer->prompt_suffix().end()), Ids{257});
  EXPECT_EQ(tokenizer->encode("a", AddedTokens::kParse), Ids{'a'});
}

TEST(Tokenizer, CanBeMoved) {
  Tokenizer first = load_made_up();
  const Tokenizer second = std::move(first);
  EXPECT_EQ(second.encode("ab", AddedTokens::kParse), (Ids{'a', 'b'}));
}

}  // namespace
}  // namespace lockstep::serving
