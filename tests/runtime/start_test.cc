// What is decided from flags before a weight is read.
#include "lockstep/runtime/start.h"

#include <gtest/gtest.h>

#include "tests/equivalence/run_requests.h"

namespace lockstep::runtime {
namespace {

// The costs that decide between plans are those of the device that will run them.
TEST(Start, ThePlanIsMadeForTheDevice) {
  const std::string model = test::repository("tests/golden/deepseek-v3");
  const auto cpu = plan_engine({.model_directory = model, .parallel = {.tp_size = 4}}).value();
  const auto cuda =
      plan_engine({.model_directory = model, .parallel = {.tp_size = 4}, .device = Device::kCuda}).value();
  EXPECT_EQ(cpu.machine.name, "cpu");
  EXPECT_EQ(cuda.machine.name, "h200");
  EXPECT_EQ(cuda.machine.collective_us, planning::h200_machine().collective_us);
}

// Where no GPU can be used, an engine for one is refused by name, before it looks for weights.
TEST(Start, ADeviceThatIsNotThereIsRefused) {
  if (kernels::device_facts(Device::kCuda).ok()) GTEST_SKIP() << "there is a GPU";
  const auto engine = start_engine(
      {.model_directory = test::repository("tests/golden/deepseek-v3"), .device = Device::kCuda});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().field, "--device");
}

// A cache that was not turned off and cannot keep anything.
TEST(Start, ThatNoBeginningIsKeptIsSaidWithItsReason) {
  const auto notes = [](std::optional<int> max_mamba_cache_size, PrefixCache prefix_cache) {
    std::string said;
    const auto engine = start_engine({.model_directory = test::repository("tests/golden/qwen3.5-moe"),
                                      .parallel = {.max_running_requests = 2},
                                      .prefix_cache = prefix_cache,
                                      .max_mamba_cache_size = max_mamba_cache_size},
                                     [&said](std::string_view line) { said.append(line).append("\n"); });
    EXPECT_TRUE(engine.ok()) << engine.error().message;
    return said;
  };
  EXPECT_NE(notes(2, PrefixCache::kOn).find("the prefix cache is off: --max-mamba-cache-size 2"),
            std::string::npos);
  EXPECT_EQ(notes(3, PrefixCache::kOn).find("the prefix cache is off"), std::string::npos);
  EXPECT_EQ(notes(std::nullopt, PrefixCache::kOn).find("the prefix cache is off"), std::string::npos);
  EXPECT_EQ(notes(2, PrefixCache::kOff).find("the prefix cache is off"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::runtime
