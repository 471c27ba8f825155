// Bytes that one layer puts on the wire, beside what SGLang's tables would: counters, not times. One row a
// configuration, regime and kind of layer, out of one rank.
#include <benchmark/benchmark.h>

#include "lockstep/planning/configuration.h"
#include "tests/planning/lattice.h"
#include "tests/planning/prior_art_bytes.h"

namespace lockstep::planning {
namespace {

using enum ModelShape::Ffn;

void compare(benchmark::State& state, const ParallelFlags& flags, ModelShape::Ffn kind, Regime regime) {
  const Machine machine = h200_machine();
  ModelShape model = test::small_model({kind, kind, kind});
  model.hidden = 7168;
  const auto solved = solve(flags, model, machine);
  if (!solved) return state.SkipWithError(solved.error().message.c_str());
  const auto plans = make_plans(*solved, model, machine);
  const double row = 1.0 * model.hidden * machine.bytes_per_value;
  const double theirs = test::prior_art_bytes(test::prior_art_layer(*solved, kind, regime),
                                              plans->load_of(regime).rows_per_replica, row);
  test::Spent ours;
  for (auto _ : state) benchmark::DoNotOptimize(ours = test::planned(*plans, regime, 1, machine));
  state.counters["bytes"] = ours.bytes;
  state.counters["us"] = ours.us;
  state.counters["prior_art_bytes"] = theirs;
  state.counters["share"] = theirs > 0 ? ours.bytes / theirs : 1;
}

const int registered = [] {
  for (const int ranks : {4, 8})
    for (const int dp : {1, 2, ranks})
      for (const char* backend : {"none", "in_process"})
        for (const int dense : {1, ranks}) {
          const ParallelFlags flags{.tp_size = ranks,
                                    .dp_size = dp,
                                    .enable_dp_attention = dp > 1,
                                    .ep_size = ranks,
                                    .moe_dense_tp_size = dense,
                                    .moe_a2a_backend = backend,
                                    .max_running_requests = 64 * ranks,
                                    .chunked_prefill_size = 4096};
          for (const Regime regime : {Regime::kDecode, Regime::kPrefill})
            for (const ModelShape::Ffn kind : {kDense, kExperts}) {
              const auto name =
                  fmt::format("wire_bytes/{}/tp{}/dp{}/{}{}/{}", kind == kDense ? "dense" : "experts", ranks,
                              dp, kind == kDense ? "dense_tp" : "a2a_",
                              kind == kDense ? std::to_string(dense) : backend, name_of(regime));
              benchmark::RegisterBenchmark(name.c_str(), compare, flags, kind, regime)->Iterations(1);
            }
        }
  return 0;
}();

}  // namespace
}  // namespace lockstep::planning
