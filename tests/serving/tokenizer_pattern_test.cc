// Patterns: the dialect's translation, searching through windows, and the bounds on work.
#include "lockstep/serving/tokenizer/pattern.h"

#include "lockstep/serving/tokenizer/regex_dialect.h"
#include "tests/serving/tokenizer_fixture.h"

namespace lockstep::serving::tokenizing {
namespace {

constexpr uint64_t kPlenty = uint64_t{1} << 40;

Pattern compile(std::string_view pattern, size_t window_bytes = Pattern::kWindowBytes) {
  auto compiled = Pattern::regex(pattern, "field", window_bytes);
  EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  return std::move(compiled).value();
}

std::vector<PatternMatch> find_all(const Pattern& pattern, std::string_view text) {
  WorkBudget budget(kPlenty);
  std::vector<PatternMatch> found;
  EXPECT_EQ(pattern.matcher().find_all(text, budget, found), SearchEnd::kComplete);
  return found;
}

using Matches = std::vector<PatternMatch>;

TEST(Pattern, FindsMatchesInOrder) {
  EXPECT_EQ(find_all(compile("a+"), "aabaa"), (Matches{{0, 2}, {3, 5}}));
  EXPECT_EQ(find_all(compile("a|ab"), "ab"), (Matches{{0, 1}}));  // the first alternative, not the longest
  EXPECT_EQ(find_all(compile("é"), "aéb"), (Matches{{1, 3}}));
}

TEST(Pattern, LeavesOutAnEmptyMatchRightBehindAMatch) {
  EXPECT_EQ(find_all(compile("a*"), "aab"), (Matches{{0, 2}, {3, 3}}));
  EXPECT_EQ(find_all(compile(""), "aé"), (Matches{{0, 0}, {1, 1}, {3, 3}}));
}

TEST(Pattern, TakesTextLiterally) {
  auto dot = Pattern::literal("a.", "field");
  ASSERT_TRUE(dot.ok());
  EXPECT_EQ(find_all(*dot, "aba.a."), (Matches{{2, 4}, {4, 6}}));
}

// However small the windows, what is found is the same as in one look at the whole text.
TEST(Pattern, FindsTheSameThroughWindowsOfAnySize) {
  const std::string text = "Hello   world\n\n    indented, don't\r\n\t\tx = [1, 22, 333];   \n" +
                           std::string(50, ' ') + "y\n" + std::string(40, '\n') +
                           "naïve café 你好世界 हिन्दी 😀😀" + std::string(60, 'z') + "1234567890      ";
  for (
      const char* pattern :
      {R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)",
       R"(\p{N}{1,3})", R"(\s+$)", R"(^\s*)", R"(.$)", R"((?<=\s)\S+)", R"(\S(?=\s))", R"((a|z)+)", R"(\z)",
       R"(\s+\Z)", R"([^a-z]^)", R"(z*)", R"((?!z)\p{L}+)", R"((?:\p{L}\p{M}*)+)"}) {
    SCOPED_TRACE(pattern);
    const Matches whole = find_all(compile(pattern, 1 << 20), text);
    EXPECT_FALSE(whole.empty());
    for (const size_t window : {8, 9, 13, 16, 31, 64, 100, 1000})
      EXPECT_EQ(find_all(compile(pattern, window), text), whole) << window;
  }
}

TEST(Pattern, ManyMatchersOfOnePatternWorkAtOnce) {
  const Pattern pattern = compile("b");
  auto first = pattern.matcher();
  auto second = pattern.matcher();
  WorkBudget budget(kPlenty);
  Matches a, b;
  first.find_all("ab", budget, a);
  second.find_all("b", budget, b);
  EXPECT_EQ(a, (Matches{{1, 2}}));
  EXPECT_EQ(b, (Matches{{0, 1}}));
}

// Patterns that could take exponential or cubic time on these texts end early, keep what they had, and do so
// every time.
TEST(Pattern, GivesUpOnCatastrophicPatterns) {
  const std::string letters(100'000, 'a');
  std::string spaces(100'000, ' ');
  spaces += 'x';
  const std::pair<const char*, const std::string*> cases[] = {{R"((?:a|a)*b)", &letters},
                                                              {R"((?:a|aa)+$x)", &letters},
                                                              {R"((a*)*b)", &letters},
                                                              {R"(\s+$)", &spaces},
                                                              {R"(\p{L}*\p{L}*\p{L}*1)", &letters}};
  for (const auto& [pattern, text] : cases) {
    SCOPED_TRACE(pattern);
    for (int i = 0; i < 2; ++i) {
      WorkBudget budget(uint64_t{1} << 24);
      Matches found;
      EXPECT_EQ(compile(pattern).matcher().find_all(*text, budget, found), SearchEnd::kGaveUp);
      EXPECT_TRUE(found.empty());
    }
  }
  WorkBudget budget(uint64_t{1} << 24);
  Matches found;
  EXPECT_EQ(compile("c|(?:a|a)*b").matcher().find_all("cc" + letters, budget, found), SearchEnd::kGaveUp);
  EXPECT_EQ(found, (Matches{{0, 1}, {1, 2}}));
}

std::string translated(std::string_view pattern) {
  const auto result = to_pcre2(pattern);
  return result.ok() ? *result : "refused: " + result.error().message;
}

TEST(RegexDialect, TranslatesWhatTheLibrariesReadDifferently) {
  EXPECT_EQ(translated("\\s\\S"), "[\\p{White_Space}][\\P{White_Space}]");  // PCRE2's \s takes U+180E along
  EXPECT_EQ(translated("\\h"), "[0-9A-Fa-f]");                              // there: horizontal space
  EXPECT_EQ(translated("\\v"), "\\x{b}");                                   // there: any vertical space
  EXPECT_EQ(translated("\\u4f60"), "你");
  EXPECT_EQ(translated("(a)"), "(?:a)");
  EXPECT_EQ(translated("(?m:.)"), "(?s:.)");
  EXPECT_EQ(translated("a{,3}"), "a{0,3}");
  EXPECT_EQ(translated("a{1,3}+"), "a+");  // there: possessive
  EXPECT_EQ(translated("a{2,3}+"), "(?:a{2,3})+");
  EXPECT_EQ(translated("a{1,3}?"), "a{1,3}?");
  EXPECT_EQ(translated("{a}"), "\\x{7b}a\\x{7d}");
  EXPECT_EQ(translated("\\p{Letter}\\P{^Nd}"), "[\\p{L}][\\p{Nd}]");
  EXPECT_EQ(translated("\\p{Han}"), "[\\p{sc:Han}]");  // there: script extensions too
  EXPECT_EQ(translated("[a[bc]]"), "(?:(?>[a]|[bc]))");
  EXPECT_EQ(translated("[a-z&&[^b]]"), "(?:(?=[a-z])(?>[^b]))");
}

TEST(RegexDialect, NamesWhatItDoesNotTranslate) {
  for (const auto& [pattern, named] : std::initializer_list<std::pair<const char*, const char*>>{
           {"\\w", "the escape \"\\w\""},
           {"\\b", "the escape \"\\b\""},
           {"(a)\\1", "the escape \"\\1\""},
           {"\\K", "the escape \"\\K\""},
           {"(?<n>a)", "an unknown kind of group"},
           {"(?x: a)", "an unknown kind of group"},
           {"(*FAIL)", "\"(*\""},
           {"a(?i)b", "an option that is set after the start of a branch"},
           {"(?i:ss)", "\"ss\" without regard to case"},
           {"(?i:é)", "outside ASCII without regard to case"},
           {"[[:alpha:]]", "a POSIX class"},
           {"\\p{Emoji}", "the property \"Emoji\""},
           {"\\p{L", "a \\p{ without its \"}\""},
           {"[a", "a class without its \"]\""},
           {"[z-a]", "a range that runs backwards"},
           {"[a-\\d]", "a range that ends with a class"},
           {"a**", "a quantifier of a quantifier"},
           {"*a", "a quantifier with nothing before it"},
           {"^*", "a quantifier behind something that has no length"},
           {"a{2}?", "{n}?"},
           {"a{1001}", "too large a repetition"},
           {"(a", "a group without its \")\""},
           {"a)", "an unmatched \")\""},
           {"a\\", "a \"\\\" at the end"},
           {"\\x{110000}", "a hexadecimal escape of no character"},
           {"\\xe9", "a hexadecimal escape of no character"}}) {
    EXPECT_NE(translated(pattern).find(named), std::string::npos)
        << pattern << " gives " << translated(pattern);
    EXPECT_TRUE(translated(pattern).starts_with("refused")) << pattern;
  }
}

TEST(RegexDialect, BoundsNesting) {
  EXPECT_EQ(translated(std::string(100'000, '(')), "refused: groups nested too deeply at byte 65");
  EXPECT_EQ(translated(std::string(100'000, '[')), "refused: classes nested too deeply at byte 131");
}

TEST(Pattern, SaysWhyItDoesNotCompile) {
  const auto look_behind = Pattern::regex("(?<=a+)b", "field");
  ASSERT_FALSE(look_behind.ok());
  EXPECT_EQ(look_behind.error().field, "field");
  EXPECT_NE(look_behind.error().message.find("field: the pattern does not compile: lookbehind"),
            std::string::npos)
      << look_behind.error().message;
  const auto huge = Pattern::regex("(?:(?:(?:a{1000}){1000}){1000}){1000}", "field");
  ASSERT_FALSE(huge.ok());
  const auto long_one = Pattern::regex(std::string(100'000, 'a'), "field");
  ASSERT_FALSE(long_one.ok());
  EXPECT_EQ(long_one.error().message, "field: the pattern has 100000 bytes, more than the limit of 65536");
}

}  // namespace
}  // namespace lockstep::serving::tokenizing
