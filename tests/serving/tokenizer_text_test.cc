// The floor that the tokenizer stands on: UTF-8 and its repair, normalization, character questions, the byte
// alphabet.
#include "lockstep/serving/tokenizer/byte_alphabet.h"
#include "lockstep/serving/tokenizer/normalizer.h"
#include "lockstep/serving/tokenizer/unicode.h"
#include "lockstep/serving/tokenizer/utf8.h"
#include "tests/serving/tokenizer_fixture.h"

namespace lockstep::serving::tokenizing {
namespace {

TEST(Utf8, WalksAndWritesEveryCharacter) {
  for (char32_t value = 0; value < 0x110000; ++value) {
    if (value == 0xD800) value = 0xE000;
    std::string text;
    append_code_point(value, text);
    ASSERT_TRUE(is_valid_utf8(text)) << static_cast<unsigned>(value);
    const CodePoint back = code_point_at(text, 0);
    ASSERT_EQ(back.value, value);
    ASSERT_EQ(static_cast<size_t>(back.num_bytes), text.size());
  }
}

TEST(Utf8, FindsBoundaries) {
  const std::string_view text = "aé你😀";
  const std::vector<size_t> boundaries = {0, 1, 3, 6, 10};
  for (size_t i = 0; i <= text.size(); ++i) {
    EXPECT_EQ(boundary_at_or_before(text, i),
              *std::prev(std::upper_bound(boundaries.begin(), boundaries.end(), i)));
    if (i == text.size()) break;
    EXPECT_EQ(boundary_after(text, i), *std::upper_bound(boundaries.begin(), boundaries.end(), i));
  }
  EXPECT_EQ(boundary_at_or_before(text, 99), text.size());
  EXPECT_EQ(boundary_after(text, text.size()), text.size() + 1);
}

// The examples of the Unicode standard, section 3.9 (tables 3-8 to 3-11), and the usual suspects.
TEST(Utf8, ReplacesEachLongestInvalidPiece) {
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(repair_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(repair_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");
  EXPECT_EQ(repair_utf8("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), r + r + r + r + r + "A" + r + r + "B");
  EXPECT_EQ(repair_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");
  EXPECT_EQ(repair_utf8("a\xE4\xBD"), "a" + r);
  EXPECT_EQ(repair_utf8("a\xE4\xBD"
                        "b\xE4\xBD\xA0"),
            "a" + r + "b你");
  EXPECT_EQ(repair_utf8("aé你😀"), "aé你😀");
  EXPECT_EQ(repair_utf8(""), "");
  for (const char* bytes : {"\x80", "\xC1\x81", "\xF5\x80\x80\x80", "\xE0\x9F\xBF", "\xED\xA0\x80",
                            "\xF0\x8F\xBF\xBF", "\xE4\xBD"})
    EXPECT_FALSE(is_valid_utf8(bytes));
}

TEST(Utf8, RepairsTheSameInPieces) {
  const std::string bytes = "a\xE4\xBD\xA0\xFF\xF0\x9F\x98\x80\xF0\x9F\x98z\xED\xA0\x80\xC3";
  for (size_t step = 1; step <= bytes.size(); ++step) {
    Utf8Repair repair;
    std::string out;
    for (size_t i = 0; i < bytes.size(); i += step) {
      repair.append(std::string_view(bytes).substr(i, step), out);
      EXPECT_TRUE(is_valid_utf8(out));
    }
    repair.finish(out);
    EXPECT_EQ(out, repair_utf8(bytes)) << step;
  }
}

TEST(ByteAlphabet, SpellsAsVocabulariesDo) {
  EXPECT_EQ(spelled(" a\n\t\r~"), "ĠaĊĉč~");
  EXPECT_EQ(spelled("好"), "å¥½");
  EXPECT_EQ(spelled(std::string_view("\0\x7F\xA0\xAD", 4)), "ĀġłŃ");
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));
  EXPECT_EQ(bytes_of_spelling(spelled(all)), all);
  EXPECT_EQ(bytes_of_spelling("a b"), std::nullopt);
  EXPECT_EQ(bytes_of_spelling("<｜User｜>"), std::nullopt);
}

// Values from the Unicode standard's annex 15 and its test file.
TEST(Normalize, GivesTheFourForms) {
  EXPECT_EQ(normalize("cafe\u0301", NormalForm::kNfc), "caf\u00e9");
  EXPECT_EQ(normalize("caf\u00e9", NormalForm::kNfd), "cafe\u0301");
  EXPECT_EQ(normalize("\u1E9B\u0323", NormalForm::kNfc), "\u1E9B\u0323");
  EXPECT_EQ(normalize("\u1E9B\u0323", NormalForm::kNfd), "\u017F\u0323\u0307");
  EXPECT_EQ(normalize("\u1E9B\u0323", NormalForm::kNfkc), "\u1E69");
  EXPECT_EQ(normalize("\u1E9B\u0323", NormalForm::kNfkd), "s\u0323\u0307");
  EXPECT_EQ(normalize("\uFB01 \uFF21", NormalForm::kNfkc), "fi A");
  EXPECT_EQ(normalize("\u0958", NormalForm::kNfc), "\u0915\u093C");  // excluded from composition
  EXPECT_EQ(normalize("\u1100\u1161\u11A8", NormalForm::kNfc), "\uAC01");
  EXPECT_EQ(normalize("\uAC00\u11A7", NormalForm::kNfc), "\uAC00\u11A7");  // U+11A7 is no ending
  EXPECT_EQ(normalize("e\u0301\u0323x\u0323\u0301", NormalForm::kNfc), "\u1EB9\u0301x\u0323\u0301");
  EXPECT_EQ(normalize("\u0301a\u0301", NormalForm::kNfc), "\u0301\u00e1");
  EXPECT_EQ(normalize("", NormalForm::kNfc), "");
}

// Behind U+0F0B, which joins nothing and is in no shortcut's table, every text takes the long way.
TEST(Normalize, TakesTheShortWayOnlyWhereTheLongOneChangesNothing) {
  const std::string mark = "\u0F0B";
  const auto by_the_long_way = [&](const std::string& text) {
    std::string out = normalize(text + mark, NormalForm::kNfc);
    EXPECT_TRUE(out.ends_with(mark));
    return out.substr(0, out.size() - mark.size());
  };
  for (char32_t value = 0x80; value < 0x20000; ++value) {
    if (value == 0xD800) value = 0xE000;
    std::string text;
    append_code_point(value, text);
    ASSERT_EQ(normalize(text, NormalForm::kNfc), by_the_long_way(text)) << static_cast<unsigned>(value);
    const std::string parts = normalize(text, NormalForm::kNfd);
    ASSERT_EQ(normalize(parts, NormalForm::kNfc), by_the_long_way(parts)) << static_cast<unsigned>(value);
    const std::string among = "é" + text + "漢";  // what is ordered or joined would move here
    ASSERT_EQ(normalize(among, NormalForm::kNfc), by_the_long_way(among)) << static_cast<unsigned>(value);
  }
}

// Marks in the wrong order are the case in which a library that swaps neighbours takes minutes.
TEST(Normalize, OrdersALongRunOfMarksQuickly) {
  std::string marks;
  for (int i = 0; i < 200'000; ++i) marks += "\u0301\u0323";
  const std::string ordered = normalize("x" + marks, NormalForm::kNfd);
  EXPECT_EQ(ordered.size(), 1 + marks.size());
  EXPECT_EQ(ordered.substr(0, 7), "x\u0323\u0323\u0323");
  EXPECT_EQ(ordered.substr(ordered.size() - 4), "\u0301\u0301");
}

TEST(Normalizer, RefusesOtherKindsByName) {
  const auto lowercase = Normalizer::read(
      {{"type", "Sequence"}, {"normalizers", {{{"type", "NFC"}}, {{"type", "Lowercase"}}}}}, "normalizer");
  ASSERT_FALSE(lowercase.ok());
  EXPECT_EQ(lowercase.error().message,
            "normalizer.normalizers[1]: the normalizer \"Lowercase\" is not supported (supported: NFC, NFD, "
            "NFKC, NFKD, Prepend, Replace, Strip, Sequence)");
  EXPECT_FALSE(Normalizer::read({{"type", "Sequence"}}, "normalizer").ok());
  EXPECT_FALSE(Normalizer::read(3, "normalizer").ok());
  EXPECT_FALSE(Normalizer::read({{"type", ""}}, "normalizer").ok());
  const auto none = Normalizer::read(nullptr, "normalizer");
  ASSERT_TRUE(none.ok());
  EXPECT_TRUE(none->changes_nothing());
}

TEST(Unicode, KnowsWhiteSpaceAndWords) {
  for (const char32_t c :
       {0x09u, 0x0Du, 0x20u, 0x85u, 0xA0u, 0x1680u, 0x2003u, 0x2028u, 0x202Fu, 0x205Fu, 0x3000u})
    EXPECT_TRUE(is_white_space(c)) << static_cast<unsigned>(c);
  for (const char32_t c : {0x08u, 0x1Cu, 0x180Eu, 0x200Bu, 0xFEFFu, 0x41u})
    EXPECT_FALSE(is_white_space(c)) << static_cast<unsigned>(c);
  for (const char32_t c :
       {U'a', U'Z', U'7', U'_', U'é', U'你', U'\u0301', U'Ⅷ', U'Ⓐ', U'\u200D', U'\U00031350'})
    EXPECT_TRUE(is_word_character(c)) << static_cast<unsigned>(c);
  for (const char32_t c : {U' ', U'-', U'²', U'😀', U'。'})
    EXPECT_FALSE(is_word_character(c)) << static_cast<unsigned>(c);
}

TEST(Unicode, ReplacesNewCharactersAndKeepsPositions) {
  std::string storage = "kept";
  EXPECT_EQ(with_stand_ins("plain é 你 😀", storage), "plain é 你 😀");
  EXPECT_EQ(storage, "kept");
  const std::string text = "a🩷b\u0897c\U00031350";
  const std::string_view replaced = with_stand_ins(text, storage);
  ASSERT_EQ(replaced.size(), text.size());
  for (const size_t position : {0, 5, 9}) EXPECT_EQ(replaced[position], text[position]);
  EXPECT_NE(replaced.substr(1, 4), text.substr(1, 4));
  EXPECT_TRUE(is_valid_utf8(replaced));
}

}  // namespace
}  // namespace lockstep::serving::tokenizing
