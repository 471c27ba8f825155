// The products that a layer is made of: GB/s of the weights that must be read, and GFLOP/s. With few rows the
// first is the limit, with many the second.
#include <benchmark/benchmark.h>

#include <memory>
#include <string>
#include <vector>

#include "lockstep/kernels/kernels.h"

namespace lockstep::kernels {
namespace {

std::vector<float> numbers(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 17) * 0.125f - 1.0f;
  return values;
}

std::vector<BF16> weights(int64_t count) {
  std::vector<BF16> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = to_bf16(static_cast<float>(i % 13) * 0.0625f - 0.375f);
  return values;
}

void report(benchmark::State& state, double weight_bytes, double flops) {
  state.counters["weight_GB/s"] =
      benchmark::Counter(weight_bytes * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
  state.counters["GFLOP/s"] = benchmark::Counter(flops * 1e-9, benchmark::Counter::kIsIterationInvariantRate);
}

// rows x in times (out x in) transposed, weights in bfloat16.
void linear(benchmark::State& state) {
  const int64_t rows = state.range(0), in = state.range(1), out = state.range(2);
  auto x = numbers(rows * in), y = numbers(rows * out);
  auto w = weights(in * out);
  const auto kernels = make_cpu_kernels();
  const LinearArgs args{.x = view_of(x.data(), {rows, in}),
                        .w = view_of(w.data(), DType::kBF16, {out, in}),
                        .out = view_of(y.data(), {rows, out})};
  for (auto _ : state) {
    kernels->linear(args);
    benchmark::DoNotOptimize(y.data());
  }
  report(state, 2.0 * static_cast<double>(in * out), 2.0 * static_cast<double>(rows * in * out));
  state.SetLabel(std::string(kernels->name()));
}
BENCHMARK(linear)
    ->ArgNames({"rows", "in", "out"})
    ->Unit(benchmark::kMicrosecond)
    ->Args({1, 2048, 2048})
    ->Args({16, 2048, 2048})
    ->Args({256, 2048, 2048})
    ->Args({1, 2048, 32768});

// Four experts with the given rows each: hidden 1024, inter 512.
void grouped_ffn(benchmark::State& state) {
  constexpr int64_t kExperts = 4, kHidden = 1024, kInter = 512;
  const int64_t rows = state.range(0), slots = rows * kExperts;
  auto x = numbers(slots * kHidden), y = numbers(slots * kHidden), scratch = numbers(slots * 2 * kInter);
  auto w = weights(kExperts * 3 * kInter * kHidden);
  std::vector<TensorView> gate, up, down;
  std::vector<int32_t> start{0};
  for (int64_t expert = 0; expert < kExperts; ++expert) {
    BF16* at = w.data() + expert * 3 * kInter * kHidden;
    gate.push_back(view_of(at, DType::kBF16, {kInter, kHidden}));
    up.push_back(view_of(at + kInter * kHidden, DType::kBF16, {kInter, kHidden}));
    down.push_back(view_of(at + 2 * kInter * kHidden, DType::kBF16, {kHidden, kInter}));
    start.push_back(static_cast<int32_t>((expert + 1) * rows));
  }
  const auto kernels = make_cpu_kernels();
  const GroupedFfnArgs args{.x = view_of(x.data(), {slots, kHidden}),
                            .expert_start = start,
                            .gate = gate,
                            .up = up,
                            .down = down,
                            .scratch = view_of(scratch.data(), {slots, 2 * kInter}),
                            .y = view_of(y.data(), {slots, kHidden})};
  for (auto _ : state) {
    kernels->grouped_ffn(args);
    benchmark::DoNotOptimize(y.data());
  }
  const double values = static_cast<double>(3 * kInter * kHidden);
  report(state, 2.0 * kExperts * values, 2.0 * static_cast<double>(slots) * values);
  state.SetLabel(std::string(kernels->name()));
}
BENCHMARK(grouped_ffn)->ArgNames({"rows_per_expert"})->Unit(benchmark::kMicrosecond)->Arg(1)->Arg(4)->Arg(32);

}  // namespace
}  // namespace lockstep::kernels
