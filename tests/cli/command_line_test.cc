#include "lockstep/cli/command_line.h"

#include <gtest/gtest.h>

#include <sstream>

namespace lockstep::cli {
namespace {

Parsed parse(const std::string& line) {
  std::istringstream in("lockstep " + line);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  Parsed parsed = parse_command_line(static_cast<int>(argv.size()), argv.data());
  ::testing::internal::GetCapturedStdout();
  ::testing::internal::GetCapturedStderr();
  return parsed;
}

TEST(CommandLine, ServeTakesTheFlagsThatPeopleType) {
  const auto parsed = parse(
      "serve --model m --tp-size 4 --dp-size 2 --enable-dp-attention --ep-size 4 --moe-a2a-backend "
      "in_process --moe-dense-tp-size 1 "
      "--max-running-requests 97 --port 9000 --kv-cache-dtype bf16 --skip-pass a --skip-pass b");
  ASSERT_TRUE(parsed.command.has_value());
  const auto& serve = std::get<ServeCommand>(*parsed.command);
  EXPECT_EQ(serve.host, "127.0.0.1");
  EXPECT_EQ(serve.port, 9000);
  EXPECT_EQ(serve.engine.model_directory, "m");
  EXPECT_EQ(serve.engine.parallel.tp_size, 4);
  EXPECT_EQ(serve.engine.parallel.dp_size, 2);
  EXPECT_TRUE(serve.engine.parallel.enable_dp_attention);
  EXPECT_EQ(serve.engine.parallel.moe_dense_tp_size, 1);
  EXPECT_EQ(serve.engine.parallel.moe_a2a_backend, "in_process");
  EXPECT_EQ(serve.engine.parallel.max_running_requests, 97);
  EXPECT_EQ(serve.engine.cache_type, runtime::CacheType::kBF16);
  EXPECT_EQ(serve.engine.parallel.skip_passes, (std::vector<std::string>{"a", "b"}));
  EXPECT_FALSE(serve.engine.parallel.ep_size == std::nullopt);
  EXPECT_FALSE(serve.engine.parallel.enable_dp_lm_head);
}

TEST(CommandLine, ScoreReadsIdsSeparatedByCommas) {
  const auto parsed = parse("score -m m --ids 5,17,3 --greedy 4");
  const auto& score = std::get<ScoreCommand>(*parsed.command);
  EXPECT_EQ(score.ids, (std::vector<int32_t>{5, 17, 3}));
  EXPECT_EQ(score.greedy, 4);
}

TEST(CommandLine, GenerateTakesExactlyOneSource) {
  EXPECT_TRUE(parse("generate -m m --prompt x").command.has_value());
  EXPECT_EQ(parse("generate -m m").exit_code, kRefused);
  EXPECT_EQ(parse("generate -m m --prompt x --chat y").exit_code, kRefused);
}

TEST(CommandLine, WrongValuesAreRefusedWithExitCode2) {
  for (const char* line :
       {"", "nonsense", "serve", "serve --model m --port 70000", "serve --model m --tp-size two",
        "serve --model m --no-such-flag", "score -m m --ids 1,x", "serve --model m --kv-cache-dtype f8",
        "eval -m m", "verify -m m --worlds 99"}) {
    const auto parsed = parse(line);
    EXPECT_FALSE(parsed.command.has_value()) << line;
    EXPECT_EQ(parsed.exit_code, kRefused) << line;
  }
}

TEST(CommandLine, HelpAndVersionEndWith0) {
  for (const char* line : {"--help", "serve --help", "--version"}) {
    EXPECT_EQ(parse(line).exit_code, kOk) << line;
    EXPECT_FALSE(parse(line).command.has_value()) << line;
  }
}

TEST(CommandLine, LogLevelMayStandAnywhere) {
  EXPECT_EQ(parse("--log-level warning plan -m m").log_level, LogLevel::kWarning);
  EXPECT_EQ(parse("plan -m m --log-level off").log_level, LogLevel::kOff);
}

}  // namespace
}  // namespace lockstep::cli
