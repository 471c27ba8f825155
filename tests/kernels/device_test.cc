#include "lockstep/kernels/device.h"

#include <gtest/gtest.h>

#include "tests/kernels/implementations.h"

namespace lockstep::kernels {
namespace {

TEST(Device, RanksTakeDevicesInTurn) {
  EXPECT_EQ(device_of_rank(0, 2), 0);
  EXPECT_EQ(device_of_rank(1, 2), 1);
  EXPECT_EQ(device_of_rank(2, 2), 0);
  EXPECT_EQ(num_devices_used(1, 8), 1);
  EXPECT_EQ(num_devices_used(3, 2), 2);
}

// One rank on eight devices has one of them; of three ranks on two devices, two share the first.
TEST(Device, ARankHasItsShareOfItsOwnDevice) {
  EXPECT_EQ(memory_of_a_rank({.memory_bytes = {100}}, 1), 100);
  EXPECT_EQ(memory_of_a_rank({.memory_bytes = {100}}, 4), 25);
  EXPECT_EQ(memory_of_a_rank({.memory_bytes = {100, 100, 100, 100, 100, 100, 100, 100}}, 1), 100);
  EXPECT_EQ(memory_of_a_rank({.memory_bytes = {100, 100}}, 2), 100);
  EXPECT_EQ(memory_of_a_rank({.memory_bytes = {100, 100}}, 3), 50);
  EXPECT_EQ(memory_of_a_rank({.memory_bytes = {100, 30}}, 3), 30);  // the least counts
  EXPECT_EQ(memory_of_a_rank({.memory_bytes = {100, 30}}, 1), 100);
}

TEST(Device, TheHostHasOneMemoryAndTakesAnyRanks) {
  const auto facts = device_facts(Device::kCpu);
  ASSERT_TRUE(facts.ok());
  ASSERT_EQ(facts->memory_bytes.size(), 1u);
  EXPECT_GT(facts->memory_bytes[0], 1e8);
  EXPECT_TRUE(check_ranks(Device::kCpu, 64).ok());
}

// As in a process that has not computed yet.
void forget_instruction_set() {
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

TEST(InstructionSet, OneThatTheMachineHasAndNoOther) {
  forget_instruction_set();
  ASSERT_TRUE(use_instruction_set("portable"));
  EXPECT_EQ(make_cpu_kernels()->name(), "portable");
  forget_instruction_set();
  const Status refused = use_instruction_set("avx1024");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("avx1024"), std::string::npos);
  EXPECT_NE(refused.error().message.find("portable"), std::string::npos);
  for (const Implementation& implementation : implementations()) {
    if (implementation.target == 0) continue;
    forget_instruction_set();
    ASSERT_TRUE(use_instruction_set(implementation.name));
    EXPECT_EQ(make_cpu_kernels()->name(), implementation.name);
  }
  forget_instruction_set();
}

TEST(InstructionSet, IsChosenOnceInAProcess) {
  forget_instruction_set();
  const auto widest = make_cpu_kernels();
  const std::string name(widest->name());  // this is the choice
  EXPECT_TRUE(use_instruction_set(name));
  ASSERT_NE(name, "portable");
  const Status refused = use_instruction_set("portable");
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().field, "--instruction-set");
  EXPECT_NE(refused.error().message.find("computes with " + name + " already"), std::string::npos);
  EXPECT_EQ(widest->name(), name);
  forget_instruction_set();
  ASSERT_TRUE(use_instruction_set("portable"));
  EXPECT_FALSE(use_instruction_set(name));
  EXPECT_EQ(widest->name(), "portable") << "kernels have no set of their own";
  forget_instruction_set();
}

}  // namespace
}  // namespace lockstep::kernels
