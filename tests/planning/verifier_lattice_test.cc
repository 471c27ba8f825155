// Every configuration of small worlds either is refused with settings that work, or its plans are proven.
#include <gtest/gtest.h>

#include "lockstep/base/hash.h"
#include "lockstep/planning/lattice.h"
#include "tests/planning/lattice.h"

namespace lockstep::planning::test {
namespace {

struct Counts {
  int proven = 0, refused = 0;
};

void prove_or_refuse(const ParallelFlags& flags, const Machine& machine, Counts& counts) {
  const ModelShape model = mixed_model();
  const auto solved = solve(flags, model, machine);
  if (!solved) {
    ++counts.refused;
    EXPECT_NE(solved.error().message.find("Nearest settings that work"), std::string::npos)
        << solved.error().message;
    return;
  }
  const auto plans = make_plans(*solved, model, machine);
  ASSERT_TRUE(plans.ok()) << to_text(flags) << ": " << plans.error().message;
  const auto proof = prove(*plans, solved->capacity);
  EXPECT_TRUE(proof.ok()) << to_text(flags) << " on " << machine.name << ": " << proof.error().message;
  ++counts.proven;
}

// How many of the configurations of `ranks` ranks have widths that nest, from the definition: counted here by
// trying all chains of divisors, not by asking the solver.
int num_that_nest(int ranks) {
  const auto nest = [](int a, int b) { return a % b == 0 || b % a == 0; };
  int num = 0;
  for (int a = 1; a <= ranks; ++a)
    for (int t = 1; t <= ranks; ++t)
      for (int n = 1; n <= ranks; ++n) {
        if (ranks % a != 0 || ranks % t != 0 || ranks % n != 0) continue;
        if (ranks / t > mixed_model().num_experts) continue;
        if (!nest(a, t) || !nest(a, n) || !nest(t, n)) continue;
        num += t < ranks ? 4 : 2;  // two head splits; two backends where there is something to exchange
      }
  return num;
}

class Lattice : public ::testing::TestWithParam<int> {};

TEST_P(Lattice, EveryConfigurationIsProvenOrRefused) {
  for (const Machine& machine : {cpu_ranks_machine(GetParam(), 2), h200_machine()}) {
    Counts counts;
    for_each_flags(GetParam(), [&](const ParallelFlags& flags) { prove_or_refuse(flags, machine, counts); });
    EXPECT_EQ(counts.proven, num_that_nest(GetParam()));
  }
}

INSTANTIATE_TEST_SUITE_P(Worlds, Lattice, ::testing::Values(1, 2, 3, 4, 6, 8));

class LatticeSample : public ::testing::TestWithParam<int> {};

TEST_P(LatticeSample, EveryConfigurationIsProvenOrRefused) {
  constexpr int kOneIn = 4;
  Counts counts;
  uint64_t draw = 0;
  for_each_flags(GetParam(), [&](const ParallelFlags& flags) {
    if (uniform_draw(20261130, draw++) * kOneIn < 1) prove_or_refuse(flags, h200_machine(), counts);
  });
  EXPECT_GT(counts.proven, 20);
  EXPECT_GT(counts.refused, 5);
}

INSTANTIATE_TEST_SUITE_P(Worlds, LatticeSample, ::testing::Values(12, 16));

// All that `lockstep verify --worlds 8` goes through, a share of it here; and larger worlds from a seed.
TEST(SmallWorlds, AShareOfAllModesIsProvenOrRefused) {
  constexpr size_t kOneIn = 101;
  int num_proven = 0, num_proofs = 0;
  const auto cases = small_worlds(8);
  EXPECT_GT(cases.size(), 5000u);
  for (size_t at = 7; at < cases.size(); at += kOneIn) {
    const CaseResult result = prove_case(cases[at], at % 2 == 0 ? h200_machine() : cpu_ranks_machine(8, 2));
    EXPECT_EQ(result.failure, "");
    num_proven += !result.is_refused;
    num_proofs += result.num_proofs;
  }
  EXPECT_GT(num_proven, 20);
  EXPECT_GT(num_proofs, 10 * num_proven);
}

TEST(SampledWorlds, AreProvenAndRepeat) {
  const auto cases = sampled_worlds(20261130, 6, 64);
  ASSERT_EQ(cases.size(), 6u);
  EXPECT_EQ(to_text(sampled_worlds(20261130, 6, 64).back()), to_text(cases.back()));
  for (const LatticeCase& one : cases) {
    const CaseResult result = prove_case(one, h200_machine());
    EXPECT_FALSE(result.is_refused) << to_text(one);
    EXPECT_EQ(result.failure, "");
  }
}

}  // namespace
}  // namespace lockstep::planning::test
