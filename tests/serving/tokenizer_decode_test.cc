// Streamed text: its parts joined are decode() of all ids, and no part is ever half a character.
#include "lockstep/base/hash.h"
#include "lockstep/serving/tokenizer/incremental_decoder.h"
#include "lockstep/serving/tokenizer/utf8.h"
#include "tests/serving/tokenizer_fixture.h"

namespace lockstep::serving {
namespace {

using Ids = std::vector<int32_t>;

TEST(IncrementalDecoder, HoldsACharacterUntilItIsComplete) {
  const Tokenizer tokenizer = load_made_up();
  IncrementalDecoder decoder(tokenizer, SpecialTokens::kKeep);
  EXPECT_EQ(decoder.push('a'), "a");
  EXPECT_EQ(decoder.push(0xF0), "");
  EXPECT_EQ(decoder.push(0x9F), "");
  EXPECT_EQ(decoder.push(0x98), "");
  EXPECT_EQ(decoder.push(0x80), "😀");
  EXPECT_EQ(decoder.push(0xE4), "");
  EXPECT_EQ(decoder.push('b'),
            "\uFFFD"
            "b");                           // E4 can no longer become a character
  EXPECT_EQ(decoder.push(0xFF), "\uFFFD");  // FF never could
  EXPECT_EQ(decoder.push(0xC3), "");
  EXPECT_EQ(decoder.finish(), "\uFFFD");
  EXPECT_EQ(decoder.finish(), "");
}

TEST(IncrementalDecoder, SkipsSpecialTokensAndUnknownIds) {
  Json file = made_up();
  file["added_tokens"] = {added_token(300, "<s>", {{"special", true}}), added_token(301, "<think>")};
  const auto tokenizer = Tokenizer::from_json(to_text(file));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const Ids ids = {'a', 300, 301, 256, 299, 302, -1, 1 << 30, 0xE4, 300, 0xBD, 0xA0};
  EXPECT_EQ(tokenizer->decode(ids, SpecialTokens::kKeep), "a<s><think>\uFFFD<s>\uFFFD\uFFFD");
  EXPECT_EQ(tokenizer->decode(ids, SpecialTokens::kSkip), "a<think>你");
}

// Any sequence of ids, of bytes that are no text above all.
TEST(IncrementalDecoder, JoinsToTheWholeForAnyIds) {
  Json file = made_up({{"merges", merge_list({{spelled("\xE4"), spelled("\xBD")},
                                              {spelled("\xF0"), spelled("\x9F")},
                                              {"a", spelled("\xC3")}})}});
  file["added_tokens"] = {added_token(400, "<｜s｜>", {{"special", true}}), added_token(401, "😀")};
  const auto tokenizer = Tokenizer::from_json(to_text(file));
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  const Ids likely = {'a',  0xE4, 0xBD, 0xA0, 0xF0, 0x9F, 0x98, 0x80, 0xC3, 0xA9, 0xED,
                      0xA0, 0xF4, 0x90, 256,  257,  258,  400,  401,  402,  -7};
  uint64_t draw = 0;
  const auto below = [&](size_t bound) { return static_cast<size_t>(mix64(++draw) % bound); };
  for (int round = 0; round < 2000; ++round) {
    Ids ids;
    for (size_t i = below(30); i > 0; --i)
      ids.push_back(below(4) == 0 ? static_cast<int32_t>(below(410)) : likely[below(likely.size())]);
    for (const SpecialTokens special : {SpecialTokens::kKeep, SpecialTokens::kSkip}) {
      std::string bytes, joined;
      IncrementalDecoder decoder(*tokenizer, special);
      for (const int32_t id : ids) {
        if (special == SpecialTokens::kKeep || !tokenizer->is_special(id))
          bytes += tokenizer->token_bytes(id);
        const std::string part = decoder.push(id);
        ASSERT_TRUE(tokenizing::is_valid_utf8(part));
        joined += part;
      }
      joined += decoder.finish();
      ASSERT_EQ(joined, tokenizer->decode(ids, special));
      ASSERT_EQ(joined, tokenizing::repair_utf8(bytes));
    }
  }
}

}  // namespace
}  // namespace lockstep::serving
