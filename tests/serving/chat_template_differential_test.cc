// Every template of data/chat_template against what Jinja2 made of it (recorded by
// tools/record_template_expectations.py).
#include <gtest/gtest.h>

#include <ctime>
#include <filesystem>
#include <string>

#include "lockstep/base/file.h"
#include "lockstep/base/json.h"
#include "lockstep/serving/chat_template/chat_template.h"
#include "tests/source_dir.h"

namespace lockstep::serving {
namespace {

const std::filesystem::path kData =
    std::filesystem::path(LOCKSTEP_SOURCE_DIR) / "tests/serving/data/chat_template";

Json read_json(const std::filesystem::path& path) {
  const auto text = read_file(path);
  EXPECT_TRUE(text.ok()) << (text ? "" : text.error().message);
  auto document = parse_json(text.value());
  EXPECT_TRUE(document.ok()) << (document ? "" : document.error().message);
  return std::move(document.value());
}

// The local time that the recorder used for strftime_now().
std::time_t recorded_now() {
  std::tm time{};
  time.tm_year = 2024 - 1900;
  time.tm_mon = 6;
  time.tm_mday = 26;
  time.tm_hour = 9;
  time.tm_min = 5;
  time.tm_sec = 3;
  time.tm_isdst = -1;
  return std::mktime(&time);
}

std::string source_of(const Json& test_case) {
  if (test_case.contains("template")) return test_case["template"].get<std::string>();
  return read_file(kData / test_case["file"].get<std::string>()).value();
}

TEST(ChatTemplateDifferential, RendersWhatJinjaRenders) {
  const Json expectations = read_json(kData / "expectations.json");
  const RenderLimits limits{.now = recorded_now()};
  int num_outputs = 0, num_raised = 0, num_failures = 0;
  for (const Json& test_case : expectations["cases"]) {
    const std::string source = source_of(test_case);
    SCOPED_TRACE(
        testing::Message() << (test_case.contains("file") ? test_case["file"].get<std::string>() : source)
                           << "\nwith " << test_case["context"]);
    const Json& context = expectations["contexts"][test_case["context"].get<std::string>()];
    const auto parsed = ChatTemplate::parse(source);
    if (test_case.contains("fails")) {
      ++num_failures;
      if (!parsed) {
        EXPECT_TRUE(parsed.error().message.starts_with("chat template, line ")) << parsed.error().message;
        continue;
      }
      const auto text = parsed->render(context, limits);
      EXPECT_FALSE(text.ok()) << text.value();
      continue;
    }
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    const auto text = parsed->render(context, limits);
    if (test_case.contains("raised")) {
      ++num_raised;
      ASSERT_FALSE(text.ok()) << text.value();
      EXPECT_EQ(text.error().message, test_case["raised"].get<std::string>());
      continue;
    }
    ++num_outputs;
    ASSERT_TRUE(text.ok()) << text.error().message;
    EXPECT_EQ(text.value(), test_case["output"].get<std::string>());
  }
  EXPECT_GE(num_outputs, 400);
  EXPECT_GE(num_raised, 5);
  EXPECT_GE(num_failures, 200);
}

}  // namespace
}  // namespace lockstep::serving
