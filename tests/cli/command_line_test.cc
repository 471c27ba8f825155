#include "lockstep/cli/command_line.h"

#include <gtest/gtest.h>

#include <sstream>

#include "lockstep/cli/foreign_flags.h"

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

TEST(CommandLine, ThreadsAndInstructionSetOfTheCpu) {
  const auto parsed = parse("score -m m --ids 1 --threads 3 --instruction-set avx2");
  const auto& score = std::get<ScoreCommand>(*parsed.command);
  EXPECT_EQ(score.engine.threads, 3);
  EXPECT_EQ(score.engine.instruction_set, "avx2");
  EXPECT_EQ(parse("score -m m --ids 1 --threads 0").exit_code, kRefused);
  const auto several = parse("bench -m m --prompt-length 512,2048");
  EXPECT_EQ(std::get<BenchCommand>(*several.command).prompts, (std::vector<int>{512, 2048}));
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

// A flag that changes nothing is said, and not passed over.
TEST(CommandLine, FlagsOfAnotherMeasurementAreRefused) {
  const std::string endpoint = "bench --base-url http://h/v1 -m m --json ";
  EXPECT_TRUE(parse(endpoint + "--request-rate 3 --max-concurrency 2").command.has_value());
  EXPECT_TRUE(parse(endpoint + "--trace t --trace-speed 2").command.has_value());
  for (const char* flags : {"--trace t --request-rate 3", "--trace t --input-tokens 5",
                            "--trace t --output-tokens 5", "--trace t --shared-prefix-tokens 5",
                            "--trace-speed 2", "--num-prefixes 2", "--batch 4", "--tp-size 2", "--repeats 2"})
    EXPECT_EQ(parse(endpoint + flags).exit_code, kRefused) << flags;
}

TEST(CommandLine, FlagsThatChangeNothingBesideAnotherAreRefused) {
  for (const char* line : {"plan -m m --suggest --html page.html",
                           "plan -m m --suggest --rows 3",
                           "plan -m m --suggest --explain",
                           "plan -m m --suggest --chunked-prefill-size 64",
                           "plan -m m --suggest --kv-cache-dtype bf16",
                           "plan -m m --objective latency",
                           "plan -m m --context 100",
                           "plan -m m --phase prefill",
                           "verify --plan p --tp-size 2",
                           "verify --plan p -m m",
                           "verify --plan p --worlds 2",
                           "verify --plan p --machine f",
                           "verify --worlds 2 --sample 3",
                           "verify --worlds 2 --tp-size 2",
                           "verify --worlds 2 -m m",
                           "verify --sample 2 --ep-size 2",
                           "verify -m m --seed 3",
                           "verify --worlds 2 --seed 3",
                           "doctor --output f",
                           "doctor --measure -m m",
                           "doctor --measure --ep-size 2",
                           "doctor --measure --machine f"})
    EXPECT_EQ(parse(line).exit_code, kRefused) << line;
  for (const char* line :
       {"plan -m m --suggest --tp-size 4 --machine f.json", "plan -m m --rows 3 --phase prefill --html p",
        "verify --plan p --json", "verify --worlds 2 --machine f --json", "verify --sample 2 --seed 3",
        "doctor --measure --output f --tp-size 4 --threads 2", "doctor --measure --json",
        "serve -m m --machine f", "generate -m m --prompt x --machine f"})
    EXPECT_TRUE(parse(line).command.has_value()) << line;
}

TEST(CommandLine, ReadsWhatAPlanIsAskedFor) {
  const auto parsed = parse(
      "plan -m m --tp-size 4 --rows 3,0,5,1 --phase prefill --html page.html --moe-dp-size 2 --attn-cp-size "
      "2 "
      "--lm-head-tp-size 2 --embedding-tp-size 4 --shared-experts whole --disable-pass merge_gathers");
  ASSERT_TRUE(parsed.command.has_value());
  const auto& plan = std::get<PlanCommand>(*parsed.command);
  EXPECT_EQ(plan.rows, (std::vector<int>{3, 0, 5, 1}));
  EXPECT_EQ(plan.phase, planning::Phase::kPrefill);
  EXPECT_EQ(plan.html_file, "page.html");
  const planning::ParallelFlags& flags = plan.engine.parallel;
  EXPECT_EQ(flags.moe_dp_size, 2);
  EXPECT_EQ(flags.attn_cp_size, 2);
  EXPECT_EQ(flags.lm_head_tp_size, 2);
  EXPECT_EQ(flags.embedding_tp_size, 4);
  EXPECT_EQ(flags.shared_experts, "whole");
  EXPECT_EQ(flags.skip_passes, (std::vector<std::string>{"merge_gathers"}));
  const auto suggested = parse("plan -m m --suggest --machine 96xH200 --objective latency --context 8192");
  ASSERT_TRUE(suggested.command.has_value());
  EXPECT_EQ(std::get<PlanCommand>(*suggested.command).task, PlanCommand::Task::kSuggest);
  EXPECT_EQ(std::get<PlanCommand>(*suggested.command).objective, planning::Objective::kLatency);
  EXPECT_EQ(std::get<PlanCommand>(*suggested.command).context, 8192);
  const auto verified = parse("verify --plan plan.json");
  ASSERT_TRUE(verified.command.has_value());
  EXPECT_EQ(std::get<VerifyCommand>(*verified.command).plan_file, "plan.json");
}

TEST(CommandLine, ReadsHowRequestsAreScheduledAndCached) {
  const auto parsed = parse(
      "serve -m m --disable-radix-cache --max-mamba-cache-size 40 --queue-timeout 2.5 "
      "--disable-overlap-schedule");
  ASSERT_TRUE(parsed.command.has_value());
  const runtime::EngineConfig& engine = std::get<ServeCommand>(*parsed.command).engine;
  EXPECT_EQ(engine.prefix_cache, runtime::PrefixCache::kOff);
  EXPECT_EQ(engine.max_mamba_cache_size, 40);
  EXPECT_EQ(engine.queue_timeout_seconds, 2.5);
  EXPECT_EQ(engine.overlap, runtime::Overlap::kOff);
  EXPECT_EQ(parse("serve -m m --queue-timeout 0").exit_code, kRefused);
  const auto plain = parse("serve -m m");
  EXPECT_EQ(std::get<ServeCommand>(*plain.command).engine.prefix_cache, runtime::PrefixCache::kOn);
  EXPECT_EQ(std::get<ServeCommand>(*plain.command).engine.overlap, runtime::Overlap::kOn);
}

// A launch line of SGLang is pasted: its own names work, and what is not there is refused with what to use.
TEST(CommandLine, KnowsTheFlagsOfSglang) {
  const auto pasted = parse(
      "serve --model-path m --tensor-parallel-size 8 --data-parallel-size 4 --enable-dp-attention "
      "--expert-parallel-size 8 --moe-a2a-backend in_process --moe-dense-tp-size 1 --enable-dp-lm-head");
  ASSERT_TRUE(pasted.command.has_value());
  EXPECT_EQ(std::get<ServeCommand>(*pasted.command).engine.parallel.ep_size, 8);
  for (const char* line :
       {"serve -m m --deepep-mode auto", "serve -m m --enable-eplb", "serve -m m --enable-two-batch-overlap",
        "plan -m m --boundary-reduction=rs", "serve -m m --disaggregation-mode prefill"})
    EXPECT_EQ(parse(line).exit_code, kRefused) << line;
  EXPECT_NE(instead_of("--enable-dense-mlp-attn-tp")->find("--moe-dense-tp-size"), std::string_view::npos);
  EXPECT_NE(instead_of("--ep-num-redundant-experts")->find("--moe-dp-size"), std::string_view::npos);
  EXPECT_FALSE(instead_of("--tp-size").has_value());
  const char* argv[] = {"lockstep", "serve", "--enable-eplb"};
  EXPECT_NE(foreign_flag_in(3, argv)->find("--enable-eplb"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::cli
