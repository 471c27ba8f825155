// Every CPU op at the sizes of DeepSeek-V3 (one of Qwen3.5), on one thread. An op states the bytes that it
// must move and the floating-point operations that it must do; beside its time stand the time that the
// machine's measured roofs allow (predicted_us) and the share of it that was reached (of_roof: predicted /
// measured; 1 is the roof). Weights come from a pool that is larger than the caches, activations are where
// the previous op would have left them.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <vector>

#include "lockstep/base/hash.h"
#include "lockstep/kernels/cpu/roofs.h"
#include "lockstep/kernels/kernels.h"

namespace lockstep {
namespace kernels {
namespace {

constexpr int64_t kHidden = 7168, kExpertInter = 2048, kHeads = 16, kLatent = 512, kNope = 128, kRope = 64,
                  kValue = 128;
constexpr int64_t kNumExperts = 256;
constexpr int kPageSize = 64;
constexpr size_t kPoolValues = size_t{128} << 20;  // bf16: 256 MB

const CpuRoofs& roofs() {
  static const CpuRoofs measured = measure_cpu_roofs({});
  return measured;
}

// What an op must move and do.
struct Work {
  double bytes = 0;
  double flops = 0;
};

void report(benchmark::State& state, const Work& work) {
  const double predicted =
      std::max(work.bytes / roofs().read_bytes_per_second, work.flops / roofs().flops_per_second);
  using benchmark::Counter;
  state.counters["bytes"] = work.bytes;
  state.counters["flops"] = work.flops;
  state.counters["predicted_us"] = 1e6 * predicted;
  state.counters["of_roof"] = Counter(predicted, Counter::kIsIterationInvariantRate);
  state.counters["of_read"] =
      Counter(work.bytes / roofs().read_bytes_per_second, Counter::kIsIterationInvariantRate);
  state.counters["of_fma"] =
      Counter(work.flops / roofs().flops_per_second, Counter::kIsIterationInvariantRate);
}

// Begins at a cache line, as the kernels like it: a vector that lies across two lines costs two loads.
template <class T>
struct LineAllocator {
  using value_type = T;
  LineAllocator() = default;
  template <class U>
  explicit LineAllocator(const LineAllocator<U>& /*other*/) {}
  T* allocate(size_t count) {
    return static_cast<T*>(::operator new(count * sizeof(T), std::align_val_t{64}));
  }
  void deallocate(T* memory, size_t /*count*/) { ::operator delete(memory, std::align_val_t{64}); }
  bool operator==(const LineAllocator&) const { return true; }
};
template <class T>
using Buffer = std::vector<T, LineAllocator<T>>;

// Numbers in [-1, 1), the same in every run.
template <class T>
Buffer<T> drawn(size_t count) {
  Buffer<T> values(count);
  for (size_t i = 0; i < count; ++i) {
    const auto value =
        static_cast<float>(static_cast<int64_t>(mix64(i) >> 40) - (int64_t{1} << 23)) * 0x1p-23f;
    if constexpr (std::is_same_v<T, float>) {
      values[i] = value;
    } else {
      values[i] = to_bf16(value);
    }
  }
  return values;
}

Buffer<float> floats(int64_t count) { return drawn<float>(static_cast<size_t>(count)); }

// Weights of one shape after another, so that none is still in a cache when it comes round again.
class WeightPool {
 public:
  static WeightPool& get() {  // one for all benchmarks of the program: it takes a second to fill
    static WeightPool pool;
    return pool;
  }
  TensorView next(DType dtype, int64_t rows, int64_t cols) {
    const auto count = static_cast<size_t>(rows * cols) * (dtype == DType::kF32 ? 2 : 1);
    if (place_ + count > values_.size()) place_ = 0;
    void* data = values_.data() + place_;
    place_ += count;
    return view_of(data, dtype, {rows, cols});
  }

 private:
  Buffer<BF16> values_ = drawn<BF16>(kPoolValues);
  size_t place_ = 0;
};

Kernels& kernels() {
  static const std::unique_ptr<Kernels> instance = make_cpu_kernels();
  return *instance;
}

double weight_bytes(DType dtype, int64_t count) {
  return static_cast<double>(size_of(dtype)) * static_cast<double>(count);
}
double float_bytes(int64_t count) { return 4.0 * static_cast<double>(count); }

// An expert's gate: [2048, 7168].
void linear(benchmark::State& state, DType dtype) {
  const int64_t rows = state.range(0);
  auto x = floats(rows * kHidden);
  auto out = floats(rows * kExpertInter);
  for (auto _ : state) {
    kernels().linear({.x = view_of(x.data(), {rows, kHidden}),
                      .w = WeightPool::get().next(dtype, kExpertInter, kHidden),
                      .out = view_of(out.data(), {rows, kExpertInter})});
  }
  report(state,
         {.bytes = weight_bytes(dtype, kExpertInter * kHidden) + float_bytes(rows * (kHidden + kExpertInter)),
          .flops = 2.0 * static_cast<double>(rows * kExpertInter * kHidden)});
}

// Absorbing one head's queries: [128, 512].
void matmul(benchmark::State& state) {
  const int64_t rows = state.range(0);
  auto x = floats(rows * kNope);
  auto out = floats(rows * kLatent);
  for (auto _ : state) {
    kernels().matmul({.x = view_of(x.data(), {rows, kNope}),
                      .w = WeightPool::get().next(DType::kBF16, kNope, kLatent),
                      .out = view_of(out.data(), {rows, kLatent})});
  }
  report(state, {.bytes = weight_bytes(DType::kBF16, kNope * kLatent) + float_bytes(rows * (kNope + kLatent)),
                 .flops = 2.0 * static_cast<double>(rows * kNope * kLatent)});
}

// Eight experts, each with the same number of rows.
void grouped_ffn(benchmark::State& state) {
  constexpr int64_t kExperts = 8;
  const int64_t rows_each = state.range(0), slots = rows_each * kExperts;
  auto x = floats(slots * kHidden), scratch = floats(slots * 2 * kExpertInter), y = floats(slots * kHidden);
  std::vector<int32_t> expert_start;
  for (int64_t e = 0; e <= kExperts; ++e) expert_start.push_back(static_cast<int32_t>(e * rows_each));
  for (auto _ : state) {
    std::vector<WeightView> gate, up, down;
    for (int64_t e = 0; e < kExperts; ++e) {
      gate.push_back(WeightPool::get().next(DType::kBF16, kExpertInter, kHidden));
      up.push_back(WeightPool::get().next(DType::kBF16, kExpertInter, kHidden));
      down.push_back(WeightPool::get().next(DType::kBF16, kHidden, kExpertInter));
    }
    kernels().grouped_ffn({.x = view_of(x.data(), {slots, kHidden}),
                           .expert_start = view_of(expert_start.data(), {kExperts + 1}),
                           .gate = gate,
                           .up = up,
                           .down = down,
                           .scratch = view_of(scratch.data(), {slots, 2 * kExpertInter}),
                           .y = view_of(y.data(), {slots, kHidden})});
  }
  report(state, {.bytes = weight_bytes(DType::kBF16, kExperts * 3 * kExpertInter * kHidden) +
                          float_bytes(slots * (2 * kHidden + 4 * kExpertInter)),
                 .flops = 2.0 * static_cast<double>(slots * 3 * kExpertInter * kHidden)});
}

void rms_norm(benchmark::State& state) {
  const int64_t rows = state.range(0);
  auto x = floats(rows * kHidden), out = floats(rows * kHidden);
  auto weight = drawn<BF16>(kHidden);
  for (auto _ : state) {
    RmsNormArgs args{.x = view_of(x.data(), {rows, kHidden}),
                     .weight = view_of(weight.data(), DType::kBF16, {kHidden}),
                     .out = view_of(out.data(), {rows, kHidden})};
    kernels().rms_norm(args);
  }
  report(state,
         {.bytes = float_bytes(2 * rows * kHidden), .flops = 4.0 * static_cast<double>(rows * kHidden)});
}

void add(benchmark::State& state) {
  const int64_t rows = state.range(0);
  Buffer<float> x(static_cast<size_t>(rows * kHidden)), y(x.size(), 1.0f);
  for (auto _ : state)
    kernels().add({.x = view_of(x.data(), {rows, kHidden}), .y = view_of(y.data(), {rows, kHidden})});
  report(state, {.bytes = float_bytes(3 * rows * kHidden), .flops = static_cast<double>(rows * kHidden)});
}

void silu_mul(benchmark::State& state) {
  const int64_t rows = state.range(0);
  auto gate = floats(rows * kExpertInter), up = gate, out = gate;
  for (auto _ : state) {
    kernels().silu_mul({.gate = view_of(gate.data(), {rows, kExpertInter}),
                        .up = view_of(up.data(), {rows, kExpertInter}),
                        .out = view_of(out.data(), {rows, kExpertInter})});
  }
  report(state, {.bytes = float_bytes(3 * rows * kExpertInter),
                 .flops = 20.0 * static_cast<double>(rows * kExpertInter)});
}

void rope(benchmark::State& state) {
  const int64_t rows = state.range(0), width = kHeads * (kNope + kRope);
  auto x = floats(rows * width);
  std::vector<float> cos(static_cast<size_t>(rows * kRope / 2), 0.6f), sin(cos.size(), 0.8f);
  std::vector<int32_t> positions;
  for (int32_t p = 0; p < rows; ++p) positions.push_back(p);
  for (auto _ : state) {
    kernels().rope({.x = view_of(x.data(), {rows, width}),
                    .num_heads = kHeads,
                    .head_stride = kNope + kRope,
                    .offset = kNope,
                    .dim = kRope,
                    .positions = positions,
                    .cos = view_of(cos.data(), {rows, kRope / 2}),
                    .sin = view_of(sin.data(), {rows, kRope / 2})});
  }
  report(state, {.bytes = float_bytes(rows * (2 * kHeads * kRope + kRope)),
                 .flops = 3.0 * static_cast<double>(rows * kHeads * kRope)});
}

void route(benchmark::State& state) {
  constexpr int kTopK = 8;
  const int64_t rows = state.range(0);
  auto logits = floats(rows * kNumExperts), bias = floats(kNumExperts), weight = floats(rows * kTopK);
  std::vector<int32_t> expert_idx(weight.size());
  const std::vector<uint8_t> valid(static_cast<size_t>(rows), 1);
  for (auto _ : state) {
    kernels().route({.logits = view_of(logits.data(), {rows, kNumExperts}),
                     .bias = view_of(bias.data(), {kNumExperts}),
                     .valid = valid,
                     .top_k = kTopK,
                     .num_groups = 8,
                     .top_groups = 4,
                     .scoring = Scoring::kSigmoid,
                     .scale = 2.5f,
                     .expert_idx = view_of(expert_idx.data(), {rows, kTopK}),
                     .weight = view_of(weight.data(), {rows, kTopK})});
  }
  report(state, {.bytes = float_bytes(rows * (kNumExperts + 2 * kTopK)),
                 .flops = 20.0 * static_cast<double>(rows * kNumExperts)});
}

// One new row of a sequence of `context` tokens, 16 heads (128 over 8 ranks).
void mla_absorbed(benchmark::State& state) {
  const auto context = static_cast<int32_t>(state.range(0));
  const int64_t width = kLatent + kRope;
  const int32_t num_pages = (context + kPageSize - 1) / kPageSize;
  std::vector<int32_t> page_table;
  for (int32_t p = 0; p < num_pages; ++p) page_table.push_back(num_pages - 1 - p);
  const std::vector<PagedSequence> sequences = {
      {.page_table = page_table, .first_row = 0, .num_rows = 1, .context = context}};
  auto q = floats(kHeads * width), out = floats(kHeads * kLatent);
  for (auto _ : state) {
    kernels().mla_absorbed(
        {.q = view_of(q.data(), {1, kHeads, width}),
         .sequences = sequences,
         .page_size = kPageSize,
         .cache = WeightPool::get().next(DType::kBF16, int64_t{num_pages} * kPageSize, width),
         .latent = kLatent,
         .scale = 0.01f,
         .out = view_of(out.data(), {1, kHeads, kLatent})});
  }
  report(state, {.bytes = weight_bytes(DType::kBF16, context * width),
                 .flops = 2.0 * static_cast<double>(kHeads * context * (width + kLatent))});
}

// A whole prompt, 16 heads; every row sees half of it on average.
void mla_expanded(benchmark::State& state) {
  const int64_t rows = state.range(0);
  auto q = floats(rows * kHeads * (kNope + kRope)), kv = floats(rows * kHeads * (kNope + kValue));
  auto k_rope = floats(rows * kRope), out = floats(rows * kHeads * kValue);
  for (auto _ : state) {
    kernels().mla_expanded({.q = view_of(q.data(), {rows, kHeads, kNope + kRope}),
                            .kv = view_of(kv.data(), {rows, kHeads, kNope + kValue}),
                            .k_rope = view_of(k_rope.data(), {rows, kRope}),
                            .nope = kNope,
                            .scale = 0.07f,
                            .out = view_of(out.data(), {rows, kHeads, kValue})});
  }
  report(state, {.bytes = float_bytes(rows * kHeads * (2 * kNope + kRope + 2 * kValue)),
                 .flops = static_cast<double>(kHeads * rows * (rows + 1) * (kNope + kRope + kValue))});
}

// The cache of one prompt, written and read back.
void cache_write_and_read(benchmark::State& state) {
  const int64_t rows = state.range(0), width = kLatent + kRope;
  std::vector<int32_t> page_table;
  for (int32_t p = 0; p * kPageSize < rows; ++p) page_table.push_back(p);
  const std::vector<PagedSequence> sequences = {{.page_table = page_table,
                                                 .first_row = 0,
                                                 .num_rows = static_cast<int32_t>(rows),
                                                 .context = static_cast<int32_t>(rows)}};
  auto x = floats(rows * width);
  auto cache = drawn<BF16>(page_table.size() * kPageSize * static_cast<size_t>(width));
  const TensorView cached =
      view_of(cache.data(), DType::kBF16, {static_cast<int64_t>(page_table.size()) * kPageSize, width});
  for (auto _ : state) {
    kernels().cache_write({.x = view_of(x.data(), {rows, width}),
                           .sequences = sequences,
                           .page_size = kPageSize,
                           .cache = cached});
    kernels().cache_read({.sequence = sequences[0],
                          .page_size = kPageSize,
                          .cache = cached,
                          .out = view_of(x.data(), {rows, width})});
  }
  report(state, {.bytes = 12.0 * static_cast<double>(rows * width), .flops = 0});
}

// A layer of Qwen3.5-397B-A17B on one rank of four: 16 value heads with states of [128, 128], `rows` rows of
// one of 32 sequences, so that no state is still in a cache when its turn comes.
void gated_delta(benchmark::State& state) {
  constexpr int64_t kDim = 128, kKeyHeads = 4, kGroup = 4, kSlots = 32;
  const int64_t rows = state.range(0);
  auto q = floats(rows * kKeyHeads * kDim), k = floats(rows * kKeyHeads * kDim);
  for (float& value : k) value *= 0.1f;
  auto v = floats(rows * kHeads * kDim), out = floats(rows * kHeads * kDim), states = floats(0);
  states.resize(static_cast<size_t>(kSlots * kHeads * kDim * kDim), 0.01f);
  Buffer<float> gates(static_cast<size_t>(rows * kHeads), 0.5f);
  int32_t slot = 0;
  for (auto _ : state) {
    const std::vector<PagedSequence> sequences = {
        {.num_rows = static_cast<int32_t>(rows), .context = static_cast<int32_t>(rows) + 1, .slot = slot}};
    slot = (slot + 1) % kSlots;
    kernels().gated_delta({.q = view_of(q.data(), {rows, kKeyHeads, kDim}),
                           .k = view_of(k.data(), {rows, kKeyHeads, kDim}),
                           .v = view_of(v.data(), {rows, kHeads, kDim}),
                           .decay = view_of(gates.data(), {rows, kHeads}),
                           .beta = view_of(gates.data(), {rows, kHeads}),
                           .sequences = sequences,
                           .group = kGroup,
                           .state = view_of(states.data(), {kSlots, kHeads, kDim, kDim}),
                           .out = view_of(out.data(), {rows, kHeads, kDim})});
  }
  report(state, {.bytes = 2 * float_bytes(kHeads * kDim * kDim) +
                          float_bytes(rows * (2 * kHeads + 2 * kKeyHeads) * kDim),
                 .flops = 6.0 * static_cast<double>(rows * kHeads * kDim * kDim)});
}

BENCHMARK_CAPTURE(linear, bf16, DType::kBF16)->Arg(1)->Arg(2)->Arg(4)->Arg(8)->Arg(16)->Arg(64)->Arg(256);
BENCHMARK_CAPTURE(linear, f32, DType::kF32)->Arg(1)->Arg(8)->Arg(64)->Arg(256);
BENCHMARK(matmul)->Arg(1)->Arg(8)->Arg(64);
BENCHMARK(grouped_ffn)->Arg(1)->Arg(4)->Arg(32);
BENCHMARK(rms_norm)->Arg(1)->Arg(64);
BENCHMARK(add)->Arg(1)->Arg(64);
BENCHMARK(silu_mul)->Arg(1)->Arg(64);
BENCHMARK(rope)->Arg(1)->Arg(64);
BENCHMARK(route)->Arg(1)->Arg(64);
BENCHMARK(mla_absorbed)->Arg(512)->Arg(8192);
BENCHMARK(mla_expanded)->Arg(128)->Arg(1024);
BENCHMARK(gated_delta)->Arg(1)->Arg(4)->Arg(64);
BENCHMARK(cache_write_and_read)->Arg(1)->Arg(512);

// The roofs and the instruction set go into the JSON with the rest.
const bool kContextAdded = [] {
  WeightPool::get();  // filled before the first measurement
  benchmark::AddCustomContext("kernels", std::string(kernels().name()));
  benchmark::AddCustomContext("read_gb_per_second",
                              fmt::format("{:.1f}", roofs().read_bytes_per_second * 1e-9));
  benchmark::AddCustomContext("fma_gflop_per_second", fmt::format("{:.1f}", roofs().flops_per_second * 1e-9));
  return true;
}();

}  // namespace
}  // namespace kernels
}  // namespace lockstep
