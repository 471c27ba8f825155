#include "lockstep/kernels/device.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace lockstep::kernels
