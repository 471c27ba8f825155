// Every configuration of small worlds either is refused with settings that work, or its plans are proven.
#include <gtest/gtest.h>

#include "lockstep/planning/configuration.h"
#include "tests/planning/lattice.h"

namespace lockstep::planning::test {
namespace {

class Lattice : public ::testing::TestWithParam<int> {};

TEST_P(Lattice, EveryConfigurationIsProvenOrRefused) {
  const ModelShape model = mixed_model();
  const Machine machines[] = {cpu_ranks_machine(GetParam(), 2), h200_machine()};
  int num_proven = 0, num_refused = 0;
  for (const Machine& machine : machines)
    for_each_flags(GetParam(), [&](const ParallelFlags& flags) {
      const auto solved = solve(flags, model, machine);
      if (!solved) {
        ++num_refused;
        EXPECT_NE(solved.error().message.find("Nearest settings that work"), std::string::npos)
            << solved.error().message;
        return;
      }
      const auto plans = make_plans(*solved, model, machine);
      ASSERT_TRUE(plans.ok()) << to_text(flags) << ": " << plans.error().message;
      const auto proof = prove(*plans, solved->capacity);
      EXPECT_TRUE(proof.ok()) << to_text(flags) << " on " << machine.name << ": " << proof.error().message;
      ++num_proven;
    });
  EXPECT_GT(num_proven, 0);
  RecordProperty("proven", num_proven);
  RecordProperty("refused", num_refused);
}

INSTANTIATE_TEST_SUITE_P(Worlds, Lattice, ::testing::Values(1, 2, 3, 4, 6, 8));

}  // namespace
}  // namespace lockstep::planning::test
