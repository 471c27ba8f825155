// No layer puts more bytes on the wire than the tables of the engine that is ahead today would on the same
// configuration, and some put fewer. A decode step may buy time with bytes, by a name under which it can be
// forbidden; then no layer of any regime sends more.
#include "lockstep/planning/prior_art.h"

#include <gtest/gtest.h>

#include <iostream>

#include "tests/planning/lattice.h"

namespace lockstep::planning::test {
namespace {

struct Counted {
  int layers = 0, fewer = 0, more = 0;
};

// `check(spent, regime, what)` for every group of layers of every configuration that both have.
template <class Check>
Counted compare_all(const std::vector<std::string>& skip_passes, Check check) {
  using enum ModelShape::Ffn;
  const Machine machine = h200_machine();
  ModelShape model = small_model({kDense, kDense, kExperts, kDense, kExperts, kExperts, kDense});
  model.hidden = 7168;
  Counted counted;
  for (const int ranks : {2, 4, 6, 8})
    for_each_flags(ranks, [&](ParallelFlags flags) {
      if (!works(flags, model)) return;
      flags.max_running_requests = 64 * ranks;
      flags.chunked_prefill_size = 4096;
      flags.skip_passes = skip_passes;
      const auto solved = solve(flags, model, machine);
      const auto plans = make_plans(*solved, model, machine);
      ASSERT_TRUE(plans.ok());
      for (const Regime regime : kRegimes)
        for (const SpentByLayers& spent :
             spent_beside_prior_art(*plans, solved->stages.exchange, model, machine, regime)) {
          check(spent, regime,
                fmt::format("{}, layer {}, {}\n{}", to_text(flags), spent.first, name_of(regime),
                            to_text(plans->of(regime), plans->grid)));
          counted.layers += spent.last - spent.first + 1;
          counted.fewer += spent.bytes < spent.prior_bytes * (1 - 1e-9);
          counted.more += spent.bytes > spent.prior_bytes * (1 + 1e-9);
        }
    });
  return counted;
}

TEST(PriorArt, NoLayerSendsMoreBytesUnlessADecodeStepIsFasterForThem) {
  const Counted counted =
      compare_all({}, [](const SpentByLayers& spent, Regime regime, const std::string& what) {
        EXPECT_EQ(why_more_bytes(spent).empty(), spent.bytes <= spent.prior_bytes * (1 + 1e-9)) << what;
        if (regime == Regime::kPrefill || spent.us >= spent.prior_us) {
          EXPECT_LE(spent.bytes, spent.prior_bytes * (1 + 1e-9)) << spent.us << " " << spent.prior_us << what;
        }
      });
  std::cout << counted.fewer << " of " << counted.layers << " layers send fewer bytes, " << counted.more
            << " send more and are faster\n";
  EXPECT_GT(counted.layers, 1000);
  EXPECT_GT(counted.fewer, 100);
}

TEST(PriorArt, WithoutTheTradeNoLayerSendsMoreBytes) {
  const Counted counted = compare_all({std::string(kTradeBytes)},
                                      [](const SpentByLayers& spent, Regime, const std::string& what) {
                                        EXPECT_LE(spent.bytes, spent.prior_bytes * (1 + 1e-9)) << what;
                                      });
  std::cout << counted.fewer << " of " << counted.layers << " layers send fewer bytes\n";
  EXPECT_EQ(counted.more, 0);
  EXPECT_GT(counted.fewer, 100);
}

// By hand: eight ranks, two replicas of four, 16 rows each, dense layers over all ranks.
TEST(PriorArt, CountsWhatTheTablesSay) {
  const GridShape grid{.num_ranks = 8, .attention_tp = 4, .expert_tp = 1, .dense_tp = 8};
  using enum ModelShape::Ffn;
  const auto decode = prior_art_layer(grid, ExchangeBackend::kNone, kDense, Regime::kDecode);
  ASSERT_TRUE(decode.has_value());
  // Reduce-scatter 3/4 of 16 rows, gather 7 times 4 rows; back 7/8 of 32 rows, gather 3 times 4.
  EXPECT_DOUBLE_EQ(prior_art_bytes(*decode, 16, 1), 12 + 28 + 28 + 12);
  EXPECT_EQ(prior_art_collectives(*decode), 4);
  const auto prefill = prior_art_layer(grid, ExchangeBackend::kNone, kDense, Regime::kPrefill);
  EXPECT_DOUBLE_EQ(prior_art_bytes(*prefill, 16, 1), 2 * (2 * 7.0 / 8 * 32));
  const auto exchange = prior_art_layer(grid, ExchangeBackend::kInProcess, kExperts, Regime::kDecode);
  EXPECT_DOUBLE_EQ(prior_art_bytes(*exchange, 16, 1), 12 + 12);
  for (GridShape other :
       {GridShape{.num_ranks = 8, .attention_tp = 8, .expert_tp = 1, .dense_tp = 2},
        GridShape{.num_ranks = 8, .attention_tp = 8, .expert_tp = 1, .dense_tp = 8, .moe_dp = 2},
        GridShape{.num_ranks = 8, .attention_tp = 8, .dense_tp = 8, .attn_cp = 2}})
    EXPECT_FALSE(prior_art_layer(other, ExchangeBackend::kNone, kDense, Regime::kDecode).has_value());
}

}  // namespace
}  // namespace lockstep::planning::test
