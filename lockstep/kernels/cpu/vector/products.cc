// linear and matmul. A tile of rows × outputs stays in registers over the inner dimension; the weights of a
// block stay in cache while all rows pass, so each is read from memory once.
#include <algorithm>
#include <type_traits>

#include "lockstep/kernels/cpu/elements.h"
#include "lockstep/kernels/cpu/vector/targets.h"
#include "lockstep/kernels/cpu/vector/vector_ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/kernels/cpu/vector/products.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lockstep/kernels/cpu/vector/lanes-inl.h"
#include "lockstep/kernels/cpu/vector/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu::HWY_NAMESPACE {

constexpr size_t kFewRows = 12;  // up to here, reading the weights takes most of the time

// Weights that stay in cache while all rows pass: 128 KB.
template <class W>
constexpr size_t kOutBlock = (size_t{128} << 10) / (kInnerBlock * sizeof(W));

// Rows of a coded weight that matmul decodes at once, and the distance of rows that linear decodes: not a
// power of two, so that they do not all fall into the same sets of the cache.
constexpr size_t kDecodedRows = 32;
constexpr size_t kDecodedStride = kInnerBlock + 16;

template <class W>
struct Product {
  const float* x;
  size_t x_stride;
  const W* w;
  size_t w_stride;
  float* out;
  size_t out_stride;
  size_t rows, outs, inner;
};

// out[r][o] += Σ_k x[r][k] w[o][k] over `inner` <= kInnerBlock values: in lane l those with k mod kLanes = l,
// ascending. Asks for the weights that lie `ahead` bytes behind those that it reads, into the second cache: a
// tile may be larger than the first. They may lie behind the end, where that does nothing. 0: all are in
// cache.
template <size_t kRows, size_t kOuts, class W>
HWY_INLINE void linear_tile(const float* HWY_RESTRICT x, size_t x_stride, const W* HWY_RESTRICT w,
                            size_t w_stride, size_t inner, size_t ahead, float* HWY_RESTRICT out,
                            size_t out_stride) {
  V acc[kRows][kOuts];
  const float* x_row[kRows];
  const W* w_row[kOuts];
  for (size_t r = 0; r < kRows; ++r) {
    x_row[r] = x + r * x_stride;
    for (size_t o = 0; o < kOuts; ++o) acc[r][o] = hn::Zero(Floats());
  }
  for (size_t o = 0; o < kOuts; ++o) w_row[o] = w + o * w_stride;
  const auto step = [&](size_t k, auto&& load_at) HWY_ATTR {
    V weight[kOuts];
    for (size_t o = 0; o < kOuts; ++o) weight[o] = load_at(w_row[o] + k);
    for (size_t r = 0; r < kRows; ++r) {
      const V value = in_register(load_at(x_row[r] + k));
      for (size_t o = 0; o < kOuts; ++o) acc[r][o] = hn::MulAdd(value, weight[o], acc[r][o]);
    }
  };
  const auto whole = [](const auto* p) HWY_ATTR { return load(p); };
  size_t k = 0;
  if (ahead != 0) {
    constexpr size_t kLine = 64 / sizeof(W);  // weights of a cache line
    for (; k + kLine <= inner; k += kLine) {
      for (size_t o = 0; o < kOuts; ++o) {
        const auto place = reinterpret_cast<uintptr_t>(w_row[o] + k) + ahead;
        __builtin_prefetch(reinterpret_cast<const W*>(place), 0, 2);
      }
      for (size_t at = 0; at < kLine; at += kLanes) step(k + at, whole);
    }
  }
  for (; k + kLanes <= inner; k += kLanes) step(k, whole);
  if (k < inner) step(k, [&](const auto* p) HWY_ATTR { return load_part(p, inner - k); });
  add_tile_sums(acc, out, out_stride);
}

// A block of weights in memory: rows [o, o + outs), columns [k, k + inner).
template <class W>
struct Block {
  const W* first;
  size_t stride;
  size_t ahead;  // of linear_tile()
};

// All outputs of [0, outs) for kRows rows and one piece of the inner dimension.
template <size_t kRows, class W>
void linear_strip(const float* x, size_t x_stride, const Block<W>& w, size_t inner, float* out,
                  size_t out_stride, size_t outs) {
  constexpr size_t kOuts = outs_of_tile(kRows);
  size_t o = 0;
  for (; o + kOuts <= outs; o += kOuts)
    linear_tile<kRows, kOuts>(x, x_stride, w.first + o * w.stride, w.stride, inner, w.ahead, out + o,
                              out_stride);
  for (; o < outs; ++o)
    linear_tile<kRows, 1>(x, x_stride, w.first + o * w.stride, w.stride, inner, w.ahead, out + o, out_stride);
}

// Cuts rows into as few tiles as hold them, of sizes that differ by at most one.
template <class Body>
HWY_INLINE void for_each_row_tile(size_t rows, Body&& body) {
  const size_t num_tiles = (rows + kMaxRows - 1) / kMaxRows;
  for (size_t tile = 0, begin = 0; tile < num_tiles; ++tile) {
    const size_t count = rows / num_tiles + (tile < rows % num_tiles ? 1 : 0);
    with_row_count(count, [&](auto constant) HWY_ATTR { body(begin, constant); });
    begin += count;
  }
}

// block_of(o, outs, k, inner) gives a Block that stays valid until the next call.
template <class W, class BlockOf>
HWY_INLINE void linear_blocks(const Product<W>& p, size_t many_rows_block, BlockOf&& block_of) {
  for (size_t row = 0; row < p.rows; ++row) std::fill_n(p.out + row * p.out_stride, p.outs, 0.0f);
  // Few rows: each weight row is read from its beginning to its end. Many: a block of weights stays in cache.
  const size_t out_block = p.rows <= kFewRows ? outs_of_tile(std::min(p.rows, kMaxRows)) : many_rows_block;
  for (size_t o = 0; o < p.outs; o += out_block) {
    const size_t outs = std::min(out_block, p.outs - o);
    for (size_t k = 0; k < p.inner; k += kInnerBlock) {
      const size_t inner = std::min(kInnerBlock, p.inner - k);
      Block<W> w = block_of(o, outs, k, inner);
      for_each_row_tile(p.rows, [&](size_t row, auto rows) HWY_ATTR {
        linear_strip<decltype(rows)::value>(p.x + row * p.x_stride + k, p.x_stride, w, inner,
                                            p.out + row * p.out_stride + o, p.out_stride, outs);
        w.ahead = 0;  // the first rows have fetched the block
      });
    }
  }
}

// The same sums for one row: one output after the other, so that memory is read in its order. Of several that
// are read side by side the machine's own prefetching loses track.
template <class W>
HWY_INLINE void row_times_row(const float* HWY_RESTRICT x, const W* HWY_RESTRICT w, size_t inner,
                              float* out) {
  constexpr size_t kAheadBytes = 8192;
  V acc[1] = {hn::Zero(Floats())};
  size_t k = 0;
  for (; k + 2 * kLanes <= inner; k += 2 * kLanes) {
    const auto ahead = reinterpret_cast<uintptr_t>(w + k) + kAheadBytes;  // maybe behind the end: no harm
    __builtin_prefetch(reinterpret_cast<const W*>(ahead), 0, 2);
    acc[0] = hn::MulAdd(load(x + k), load(w + k), acc[0]);
    acc[0] = hn::MulAdd(load(x + k + kLanes), load(w + k + kLanes), acc[0]);
  }
  for (; k < inner; k += kLanes) {
    const size_t count = std::min(kLanes, inner - k);
    acc[0] = hn::MulAdd(load_up_to(x + k, count), load_up_to(w + k, count), acc[0]);
  }
  add_sums<1>(acc, out);
}

template <class W>
void linear_of_one_row(const Product<W>& p) {
  std::fill_n(p.out, p.outs, 0.0f);
  for (size_t o = 0; o < p.outs; ++o)
    for (size_t k = 0; k < p.inner; k += kInnerBlock)
      row_times_row(p.x + k, p.w + o * p.w_stride + k, std::min(kInnerBlock, p.inner - k), p.out + o);
}

// Weights of a row as floats. Asks for the next block's meanwhile: nobody else reads ahead.
HWY_INLINE void widen(const BF16* HWY_RESTRICT from, size_t count, float* HWY_RESTRICT to) {
  constexpr size_t kAheadBytes = 32768, kLine = 64 / sizeof(BF16);
  for (size_t line = 0; line < count; line += kLine) {
    __builtin_prefetch(reinterpret_cast<const BF16*>(reinterpret_cast<uintptr_t>(from + line) + kAheadBytes),
                       0, 2);
    for_each_vector(std::min(kLine, count - line), [&](size_t i, size_t n) HWY_ATTR {
      store_up_to(load_up_to(from + line + i, n), to + line + i, n);
    });
  }
}

// Many rows meet each weight: it is made a float once, and the block stays in cache while they pass.
void linear_of_widened(const Product<BF16>& p) {
  constexpr size_t kOuts = 16;
  alignas(64) float widened[kOuts * kDecodedStride];
  const Product<float> floats{.x = p.x,
                              .x_stride = p.x_stride,
                              .w = nullptr,
                              .w_stride = 0,
                              .out = p.out,
                              .out_stride = p.out_stride,
                              .rows = p.rows,
                              .outs = p.outs,
                              .inner = p.inner};
  linear_blocks(floats, kOuts, [&](size_t o, size_t outs, size_t k, size_t inner) HWY_ATTR {
    for (size_t i = 0; i < outs; ++i) {
      widen(p.w + (o + i) * p.w_stride + k, inner, widened + i * kDecodedStride);
    }
    return Block<float>{widened, kDecodedStride, 0};
  });
}

template <class W>
void linear_of(const Product<W>& p) {
  // With short vectors the chain of one output's sums would take longer than reading.
  if constexpr (kLanes >= 16) {
    if (p.rows == 1) return linear_of_one_row(p);
  }
  const bool is_few = p.rows <= kFewRows;
  if constexpr (std::is_same_v<W, BF16>) {
    if (!is_few) return linear_of_widened(p);
  }
  // Whole tiles ahead, so that a tile asks for each line of a later one once.
  constexpr size_t kLeastAhead = 8192;
  const size_t tile_bytes =
      std::max<size_t>(1, outs_of_tile(std::min(p.rows, kMaxRows)) * p.w_stride * sizeof(W));
  const size_t ahead = is_few ? (kLeastAhead + tile_bytes - 1) / tile_bytes * tile_bytes : 0;
  linear_blocks(p, kOutBlock<W>, [&](size_t o, size_t /*outs*/, size_t k, size_t /*inner*/) {
    return Block<W>{p.w + o * p.w_stride + k, p.w_stride, ahead};
  });
}

// out[r][o] = Σ_k x[r][k] w[k][o], k ascending, for kVectors vectors of outputs.
template <size_t kRows, size_t kVectors, class W>
HWY_INLINE void matmul_tile(const Product<W>& p, ChainFrom start, size_t row, size_t out, size_t last_count) {
  V acc[kRows][kVectors];
  for (size_t r = 0; r < kRows; ++r) {
    const float* from = p.out + (row + r) * p.out_stride + out;
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t count = v + 1 < kVectors ? kLanes : last_count;
      acc[r][v] = start == ChainFrom::kZero ? hn::Zero(Floats()) : load_up_to(from + v * kLanes, count);
    }
  }
  const float* HWY_RESTRICT x = p.x + row * p.x_stride;
  const W* HWY_RESTRICT w = p.inner > 0 ? p.w + out : p.w;  // of no rows there may be no memory
  for (size_t k = 0; k < p.inner; ++k, w += p.w_stride) {
    V weight[kVectors];
    for (size_t v = 0; v + 1 < kVectors; ++v) weight[v] = load(w + v * kLanes);
    weight[kVectors - 1] = load_up_to(w + (kVectors - 1) * kLanes, last_count);
    for (size_t r = 0; r < kRows; ++r) {
      const V value = hn::Set(Floats(), x[r * p.x_stride + k]);
      for (size_t v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(value, weight[v], acc[r][v]);
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    float* to = p.out + (row + r) * p.out_stride + out;
    for (size_t v = 0; v + 1 < kVectors; ++v) hn::StoreU(acc[r][v], Floats(), to + v * kLanes);
    store_up_to(acc[r][kVectors - 1], to + (kVectors - 1) * kLanes, last_count);
  }
}

// Outputs [begin, end) of kRows rows, in tiles of kVectors vectors and, at the end, of fewer.
template <size_t kRows, size_t kVectors, class W>
void matmul_strip(const Product<W>& p, ChainFrom start, size_t row, size_t begin, size_t end) {
  size_t out = begin;
  for (; out + kVectors * kLanes <= end; out += kVectors * kLanes) {
    matmul_tile<kRows, kVectors>(p, start, row, out, kLanes);
  }
  if constexpr (kVectors > 1) {
    matmul_strip<kRows, kVectors / 2>(p, start, row, out, end);
  } else {
    if (out < end) matmul_tile<kRows, 1>(p, start, row, out, end - out);
  }
}

// One row takes wide tiles, so that it reads long pieces of each weight row.
constexpr size_t vectors_of_tile(size_t rows) {
  return (rows == 1 ? 4 : rows <= 3 ? 2 : 1) * (kManyRegisters ? 4 : 2);
}

template <class W>
void matmul_of(const Product<W>& p, ChainFrom start) {
  const size_t out_block = p.rows <= kMaxRows ? p.outs : kOutBlock<W>;
  for (size_t out = 0; out < p.outs; out += out_block) {
    const size_t end = std::min(out + out_block, p.outs);
    for_each_row_tile(p.rows, [&](size_t row, auto rows) HWY_ATTR {
      constexpr size_t kRows = decltype(rows)::value;
      matmul_strip<kRows, vectors_of_tile(kRows)>(p, start, row, out, end);
    });
  }
}

template <class Args, class W>
Product<W> product_of(const Args& args, const W* w, int64_t w_stride, int64_t outs) {
  return {.x = args.x.template as<float>(),
          .x_stride = static_cast<size_t>(args.x.stride[0]),
          .w = w,
          .w_stride = static_cast<size_t>(w_stride),
          .out = args.out.template as<float>(),
          .out_stride = static_cast<size_t>(args.out.stride[0]),
          .rows = static_cast<size_t>(args.x.shape[0]),
          .outs = static_cast<size_t>(outs),
          .inner = static_cast<size_t>(args.x.shape[1])};
}

void linear(const LinearArgs& args) {
  with_elements(args.w.plain, [&](const auto* w) HWY_ATTR {
    linear_of(product_of(args, w, args.w.plain.stride[0], args.w.num_rows));
  });
}

void matmul(const MatmulArgs& args, ChainFrom start) {
  with_elements(args.w.plain, [&](const auto* w) HWY_ATTR {
    matmul_of(product_of(args, w, args.w.plain.stride[0], args.w.num_cols), start);
  });
}

void linear_coded(const LinearArgs& args, std::vector<float>& decoded) {
  const float* none = nullptr;
  const auto p = product_of(args, none, 0, args.w.num_rows);
  decoded.resize(std::max(decoded.size(), kOutBlock<float> * kDecodedStride));
  linear_blocks(p, kOutBlock<float>, [&](size_t o, size_t outs, size_t k, size_t inner) {
    for (size_t i = 0; i < outs; ++i)
      vector_decode_row(args.w, static_cast<int64_t>(o + i), static_cast<int64_t>(k),
                        static_cast<int64_t>(inner), decoded.data() + i * kDecodedStride);
    return Block<float>{decoded.data(), kDecodedStride, 0};
  });
}

void matmul_coded(const MatmulArgs& args, std::vector<float>& decoded) {
  const int64_t outs = args.w.num_cols;
  if (args.w.num_rows == 0)
    return matmul_of(product_of<MatmulArgs, float>(args, nullptr, 0, outs), ChainFrom::kZero);
  decoded.resize(std::max(decoded.size(), kDecodedRows * static_cast<size_t>(outs)));
  for (int64_t k = 0; k < args.w.num_rows; k += static_cast<int64_t>(kDecodedRows)) {
    const int64_t inner = std::min<int64_t>(kDecodedRows, args.w.num_rows - k);
    for (int64_t i = 0; i < inner; ++i) vector_decode_row(args.w, k + i, 0, outs, decoded.data() + i * outs);
    auto p = product_of<MatmulArgs, float>(args, decoded.data(), outs, outs);
    p.x += k;
    p.inner = static_cast<size_t>(inner);
    matmul_of(p, k == 0 ? ChainFrom::kZero : ChainFrom::kOut);
  }
}

}  // namespace lockstep::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels::cpu {

HWY_EXPORT(linear);
HWY_EXPORT(matmul);
HWY_EXPORT(linear_coded);
HWY_EXPORT(matmul_coded);

void vector_linear(const LinearArgs& args) { HWY_DYNAMIC_DISPATCH(linear)(args); }
void vector_matmul(const MatmulArgs& args, ChainFrom start) { HWY_DYNAMIC_DISPATCH(matmul)(args, start); }
void vector_linear_coded(const LinearArgs& args, std::vector<float>& decoded) {
  if (!vector_linear_in_registers(args)) HWY_DYNAMIC_DISPATCH(linear_coded)(args, decoded);
}
void vector_matmul_coded(const MatmulArgs& args, std::vector<float>& decoded) {
  HWY_DYNAMIC_DISPATCH(matmul_coded)(args, decoded);
}

}  // namespace lockstep::kernels::cpu
#endif
