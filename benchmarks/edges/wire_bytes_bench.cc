// Bytes that a layer puts on the wire out of one rank, beside what SGLang's tables would on the same
// configuration: counters, not times. One row a configuration, regime and kind of layer; as text, or as JSON
// with --benchmark_format=json. `forbidden` rows are those of --disable-pass trade_bytes_for_latency.
#include <benchmark/benchmark.h>

#include "lockstep/planning/prior_art.h"
#include "tests/planning/lattice.h"

namespace lockstep::planning {
namespace {

using enum ModelShape::Ffn;

void compare(benchmark::State& state, const ParallelFlags& flags, ModelShape::Ffn kind, Regime regime) {
  const Machine machine = h200_machine();
  ModelShape model = test::small_model({kind, kind, kind});
  model.hidden = 7168;
  const auto solved = solve(flags, model, machine);
  if (!solved) return state.SkipWithError(solved.error().message.c_str());
  std::vector<SpentByLayers> spent;
  for (auto _ : state) {
    const auto plans = make_plans(*solved, model, machine);
    spent = spent_beside_prior_art(*plans, solved->stages.exchange, model, machine, regime);
  }
  const SpentByLayers& inner = spent.back();  // the first layer's rows come from the embedding
  state.counters["bytes"] = inner.bytes;
  state.counters["prior_bytes"] = inner.prior_bytes;
  state.counters["share"] = inner.prior_bytes > 0 ? inner.bytes / inner.prior_bytes : 1;
  state.counters["us"] = inner.us;
  state.counters["prior_us"] = inner.prior_us;
  state.counters["collectives"] = inner.collectives;
  state.counters["prior_collectives"] = inner.prior_collectives;
  state.SetLabel(why_more_bytes(inner));
}

void add(const ParallelFlags& flags, ModelShape::Ffn kind, Regime regime) {
  const bool is_dense = kind == kDense;
  const auto solved = solve(flags, test::small_model({kind}), h200_machine());
  if (!solved || !prior_art_layer(solved->grid, solved->stages.exchange, kind, regime)) return;
  const auto name =
      fmt::format("wire_bytes/{}/tp{}/dp{}/ep{}/{}{}{}/{}{}", is_dense ? "dense" : "experts", *flags.tp_size,
                  *flags.dp_size, *flags.ep_size, is_dense ? "dense_tp" : "a2a_",
                  is_dense ? std::to_string(*flags.moe_dense_tp_size) : *flags.moe_a2a_backend,
                  flags.enable_dp_lm_head ? "/dp_head" : "", name_of(regime),
                  flags.skip_passes.empty() ? "" : "/forbidden");
  benchmark::RegisterBenchmark(name.c_str(), compare, flags, kind, regime)->Iterations(1);
}

const int registered = [] {
  const ModelShape model = test::small_model({kDense, kExperts});
  for (const int ranks : {2, 4, 8})
    test::for_each_flags(ranks, [&](ParallelFlags flags) {
      if (flags.enable_dp_lm_head || !works(flags, model)) return;  // the head is behind the layers
      flags.max_running_requests = 64 * ranks;
      flags.chunked_prefill_size = 4096;
      for (const bool is_forbidden : {false, true}) {
        if (is_forbidden) flags.skip_passes = {std::string(kTradeBytes)};
        for (const Regime regime : kRegimes) {
          // Of dense layers the experts' settings say nothing, and the other way round.
          if (*flags.ep_size == 1 && *flags.moe_a2a_backend == "none") add(flags, kDense, regime);
          if (*flags.moe_dense_tp_size == ranks) add(flags, kExperts, regime);
        }
      }
    });
  return 0;
}();

}  // namespace
}  // namespace lockstep::planning
