// The rules of lockstep/runtime/README.md and the tests that cite them must name each other.
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>

#include "lockstep/base/file.h"
#include "tests/source_dir.h"

namespace lockstep::runtime {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = LOCKSTEP_SOURCE_DIR;

std::set<std::string> matches(const std::string& text, const std::string& pattern) {
  const std::regex regex(pattern, std::regex::multiline);
  std::set<std::string> found;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), regex); it != std::sregex_iterator(); ++it)
    found.insert((*it)[1]);
  return found;
}

TEST(Contract, EveryRuleIsCitedByATestAndEveryCitationIsARule) {
  const auto readme = read_file(kRoot / "lockstep/runtime/README.md");
  ASSERT_TRUE(readme.ok()) << readme.error().message;
  const std::set<std::string> rules = matches(*readme, "^- `([a-z]+\\.[a-z-]+)`:");
  EXPECT_GE(rules.size(), 30U);
  std::map<std::string, std::string> cited;
  for (const auto& entry : fs::directory_iterator(kRoot / "tests/runtime")) {
    if (entry.path().extension() != ".cc" || entry.path().filename() == "contract_test.cc") continue;
    const auto text = read_file(entry.path());
    ASSERT_TRUE(text.ok());
    for (const std::string& rule : matches(*text, "^// contract: (.+)$"))
      cited[rule] = entry.path().filename();
  }
  for (const std::string& rule : rules) EXPECT_TRUE(cited.contains(rule)) << rule << " is cited by no test";
  for (const auto& [rule, file] : cited)
    EXPECT_TRUE(rules.contains(rule)) << file << " cites " << rule << ", no rule";
}

}  // namespace
}  // namespace lockstep::runtime
