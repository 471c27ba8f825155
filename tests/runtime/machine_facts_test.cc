// What the engine takes this machine to be.
#include "lockstep/runtime/machine_facts.h"

#include <gtest/gtest.h>

namespace lockstep::runtime {
namespace {

TEST(MachineFacts, AreThoseOfThisMachine) {
  const MachineFacts facts = machine_facts();
  EXPECT_GE(facts.num_cores, 1);
  EXPECT_FALSE(facts.instruction_set.empty());
  EXPECT_GT(facts.memory_bytes, uint64_t{1} << 20);
  EXPECT_LE(facts.usable_memory_bytes(), facts.memory_bytes);
  MachineFacts limited = facts;
  limited.memory_limit_bytes = 5;
  EXPECT_EQ(limited.usable_memory_bytes(), 5u);
}

}  // namespace
}  // namespace lockstep::runtime
