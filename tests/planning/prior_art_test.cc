// No layer puts more bytes on the wire than the tables of the engine that is ahead today would on the same
// configuration, and some put fewer. Where a decode step does, it buys time with them: fewer collectives.
#include <gtest/gtest.h>

#include <iostream>

#include "tests/planning/lattice.h"
#include "tests/planning/prior_art_bytes.h"

namespace lockstep::planning::test {
namespace {

TEST(PriorArt, NoLayerSendsMoreBytesUnlessItIsFasterForThem) {
  using enum ModelShape::Ffn;
  const Machine machine = h200_machine();
  ModelShape model = small_model({kDense, kDense, kExperts, kDense, kExperts, kExperts, kDense});
  model.hidden = 7168;
  int num_layers = 0, num_fewer = 0, num_bought = 0;
  for (const int ranks : {2, 4, 6, 8})
    for_each_flags(ranks, [&](ParallelFlags flags) {
      if (!is_prior_art_configuration(flags) || !works(flags, model)) return;
      flags.max_running_requests = 64 * ranks;
      flags.chunked_prefill_size = 4096;
      const auto solved = solve(flags, model, machine);
      const auto plans = make_plans(*solved, model, machine);
      ASSERT_TRUE(plans.ok());
      for (const Regime regime : kRegimes)
        for (int layer = 0; layer + 1 < static_cast<int>(model.layers.size()); ++layer) {
          const double row = 1.0 * model.hidden * machine.bytes_per_value;
          const PriorArtLayer prior =
              prior_art_layer(*solved, model.layers[static_cast<size_t>(layer)], regime);
          const double theirs = prior_art_bytes(prior, plans->load_of(regime).rows_per_replica, row);
          const Spent spent = planned(*plans, regime, layer, machine);
          const double ours = spent.bytes;
          const double their_us =
              prior_art_collectives(prior) * machine.collective_us + theirs / (machine.link_gbs * 1e9) * 1e6;
          const bool is_bought = regime != Regime::kPrefill && ours > theirs && spent.us < their_us;
          num_bought += is_bought;
          EXPECT_TRUE(is_bought || ours <= theirs * (1 + 1e-9))
              << ours << " and " << theirs << " bytes, " << spent.us << " and " << their_us
              << " us: " << to_text(flags) << ", layer " << layer << ", " << name_of(regime) << '\n'
              << to_text(plans->of(regime), plans->grid);
          ++num_layers;
          num_fewer += ours < theirs * (1 - 1e-9);
        }
    });
  std::cout << num_fewer << " of " << num_layers << " layers send fewer bytes, " << num_bought
            << " send more and are faster\n";
  EXPECT_GT(num_layers, 1000);
  EXPECT_GT(num_fewer, 100);
}

}  // namespace
}  // namespace lockstep::planning::test
