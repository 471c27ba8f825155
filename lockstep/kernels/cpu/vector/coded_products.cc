// linear on codes for a few rows: a vector of codes is read, made into numbers and multiplied without a way
// through memory. The sums are those of products.cc, in the same order, and so are the bits.
#include <algorithm>

#include "lockstep/kernels/cpu/elements.h"
#include "lockstep/kernels/cpu/vector/targets.h"
#include "lockstep/kernels/cpu/vector/vector_ops.h"
#include "lockstep/tensors/block_row.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lockstep/kernels/cpu/vector/coded_products.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lockstep/kernels/cpu/vector/codes-inl.h"
#include "lockstep/kernels/cpu/vector/lanes-inl.h"
#include "lockstep/kernels/cpu/vector/sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lockstep::kernels::cpu::HWY_NAMESPACE {

using Element = QuantScheme::Element;

#if HWY_TARGET == HWY_SCALAR
bool linear_in_registers(const LinearArgs&) { return false; }
#else

constexpr int64_t kStep = static_cast<int64_t>(kLanes);
constexpr size_t kMostRows = 6;
// Factors and zero points take registers beside the sums.
constexpr size_t outs_of_coded_tile(size_t rows) {
  if (rows == 1) return kManyRegisters ? 8 : 4;
  return kManyRegisters ? 4 : 2;
}
constexpr int64_t kMostRuns = static_cast<int64_t>(kInnerBlock) / 8 + 1;  // of a row's piece

template <Element kElement>
HWY_INLINE V numbers_at(const uint8_t* row, int64_t col) {
  if constexpr (kElement == Element::kI8) {
    return load_signed_bytes(row + col);
  } else if constexpr (kElement == Element::kU8) {
    return to_floats(load_bytes(row + col));
  } else if constexpr (kElement == Element::kE4M3) {
    return numbers_of_e4m3(load_bytes(row + col));
  } else if constexpr (kElement == Element::kU4) {
    return to_floats(load_half_bytes(row + col / 2));
  } else {
    static_assert(kElement == Element::kE2M1);
    const W codes = load_half_bytes(row + col / 2);
    if constexpr (kLanes == 16) {
      alignas(64) static constexpr float kNumbers[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                                         -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
      return hn::TableLookupLanes(hn::Load(Floats(), kNumbers),
                                  hn::IndicesFromVec(Floats(), hn::BitCast(Ints(), codes)));
    } else {
      return numbers_of_e2m1(codes);
    }
  }
}

// Factors and zero points of some neighbouring blocks of a row.
struct Runs {
  float scale[kMostRuns], zero[kMostRuns];
};

// Where blocks end at multiples of a vector, or a row is one block.
bool blocks_fit(const WeightView& w) {
  if (w.block_of_col != nullptr || w.scheme.element == Element::kF16) return false;
  const bool has_zero = w.zero != 0 || w.zeros != nullptr;
  if (has_zero && (w.scheme.element == Element::kE4M3 || w.scheme.element == Element::kE2M1)) return false;
  const bool is_half = bits_of(w.scheme.element) == 4;
  if (is_half && w.first_col % 2 != 0) return false;
  const int64_t block = w.scheme.block_cols;
  if (w.first_col / block == (w.first_col + w.num_cols - 1) / block) return true;
  return block % kStep == 0 && w.first_col % kStep == 0 && block >= 8;
}

template <Element kElement>
class Piece {
 public:
  // ahead: how many outputs later those lie that are asked for meanwhile.
  Piece(const LinearArgs& args, int64_t k, int64_t inner, int64_t ahead)
      : args_(args), w_(args.w), k_(k), inner_(inner), col_(w_.first_col + k), ahead_(ahead * w_.row_bytes) {
    const int64_t block = w_.scheme.block_cols;
    first_run_ = std::min(inner, (col_ / block + 1) * block - col_);
    num_runs_ = 1 + (inner - first_run_ + block - 1) / block;
  }

  // out[r][o …] += for all rows.
  template <size_t kRows, size_t kOuts>
  HWY_INLINE void tile(int64_t o) const {
    V acc[kRows][kOuts];
    const float* x[kRows];
    for (size_t r = 0; r < kRows; ++r) {
      x[r] = row_of<float>(args_.x, static_cast<int64_t>(r)) + k_;
      for (size_t i = 0; i < kOuts; ++i) acc[r][i] = hn::Zero(Floats());
    }
    const uint8_t* codes[kOuts];
    Runs runs[kOuts];
    for (size_t i = 0; i < kOuts; ++i) {
      codes[i] = w_.codes + (w_.first_row + o + static_cast<int64_t>(i)) * w_.row_bytes;
      read_runs(o + static_cast<int64_t>(i), runs[i]);
    }
    int64_t k = 0;
    for (int64_t run = 0; run < num_runs_; ++run) {
      const int64_t end = std::min(inner_, first_run_ + run * w_.scheme.block_cols);
      V scale[kOuts], zero[kOuts];
      for (size_t i = 0; i < kOuts; ++i) {
        scale[i] = hn::Set(Floats(), runs[i].scale[run]);
        zero[i] = hn::Set(Floats(), runs[i].zero[run]);
      }
      const auto step = [&](int64_t at) HWY_ATTR {
        V weight[kOuts];
        for (size_t i = 0; i < kOuts; ++i) {
          V number = numbers_at<kElement>(codes[i], col_ + at);
          if constexpr (kElement != Element::kE4M3 && kElement != Element::kE2M1)
            number = hn::Sub(number, zero[i]);
          weight[i] = hn::Mul(number, scale[i]);
        }
        for (size_t r = 0; r < kRows; ++r) {
          const V value = in_register(load(x[r] + at));
          for (size_t i = 0; i < kOuts; ++i) acc[r][i] = hn::MulAdd(value, weight[i], acc[r][i]);
        }
      };
      for (; k + kLine <= end; k += kLine) {
        for (size_t i = 0; i < kOuts; ++i) prefetch_later(codes[i], k);
        for (int64_t at = k; at < k + kLine; at += kStep) step(at);
      }
      if (k < end)  // a run may be shorter than a line
        for (size_t i = 0; i < kOuts; ++i) prefetch_later(codes[i], k);
      for (; k + kStep <= end; k += kStep) step(k);
    }
    if (k < inner_) last_part<kRows, kOuts>(o, k, acc);
    add_tile_sums(acc, args_.out.as<float>() + o, static_cast<size_t>(args_.out.stride[0]));
  }

 private:
  void read_runs(int64_t o, Runs& runs) const {
    BlockRow blocks(w_, o, k_);
    for (int64_t run = 0; run < num_runs_; ++run, blocks.advance()) {
      runs.scale[run] = blocks.scale() * w_.factor;
      runs.zero[run] = static_cast<float>(blocks.zero());
    }
  }

  // The line of codes of a later tile of outputs; beyond the end a prefetch does nothing.
  HWY_INLINE void prefetch_later(const uint8_t* codes, int64_t k) const {
    const auto place =
        reinterpret_cast<uintptr_t>(codes) + static_cast<uintptr_t>(ahead_ + (col_ + k) * kBits / 8);
    __builtin_prefetch(reinterpret_cast<const void*>(place), 0, 2);
  }

  // The columns from k on, fewer than a vector.
  template <size_t kRows, size_t kOuts>
  void last_part(int64_t o, int64_t k, V (&acc)[kRows][kOuts]) const {
    const int64_t count = inner_ - k;
    for (size_t i = 0; i < kOuts; ++i) {
      float numbers[kLanes] = {};
      decode_row(w_, o + static_cast<int64_t>(i), k_ + k, count, numbers);
      const V weight = load(numbers);
      for (size_t r = 0; r < kRows; ++r) {
        const float* x = row_of<float>(args_.x, static_cast<int64_t>(r)) + k_ + k;
        acc[r][i] = hn::MulAdd(load_part(x, static_cast<size_t>(count)), weight, acc[r][i]);
      }
    }
  }

  static constexpr int64_t kBits = kElement == Element::kU4 || kElement == Element::kE2M1 ? 4 : 8;
  static constexpr int64_t kLine = 64 * 8 / kBits;  // codes of a cache line
  const LinearArgs& args_;
  const WeightView& w_;
  const int64_t k_, inner_, col_;  // of the view, and of the stored matrix
  const int64_t ahead_;            // bytes
  int64_t first_run_ = 0, num_runs_ = 0;
};

template <Element kElement, size_t kRows>
void linear_rows(const LinearArgs& args) {
  constexpr size_t kOuts = outs_of_coded_tile(kRows);
  const int64_t outs = args.w.num_rows;
  // Whole tiles ahead, so that a tile asks for each line of a later one once.
  constexpr int64_t kLeastAhead = 8192;
  const int64_t tile_bytes = std::max<int64_t>(1, static_cast<int64_t>(kOuts) * args.w.row_bytes);
  const int64_t ahead = (kLeastAhead + tile_bytes - 1) / tile_bytes * static_cast<int64_t>(kOuts);
  for (int64_t o = 0; o < outs;) {
    const bool is_whole = o + static_cast<int64_t>(kOuts) <= outs;
    for (int64_t k = 0; k < args.w.num_cols; k += static_cast<int64_t>(kInnerBlock)) {
      const Piece<kElement> piece(args, k, std::min(static_cast<int64_t>(kInnerBlock), args.w.num_cols - k),
                                  ahead);
      if (is_whole) {
        piece.template tile<kRows, kOuts>(o);
      } else {
        piece.template tile<kRows, 1>(o);
      }
    }
    o += is_whole ? static_cast<int64_t>(kOuts) : 1;
  }
}

template <Element kElement>
void linear_of(const LinearArgs& args) {
  for (int64_t row = 0; row < args.out.shape[0]; ++row)
    std::fill_n(row_of<float>(args.out, row), args.out.shape[1], 0.0f);
  with_row_count(static_cast<size_t>(args.x.shape[0]),
                 [&](auto rows) HWY_ATTR { linear_rows<kElement, decltype(rows)::value>(args); });
}

bool linear_in_registers(const LinearArgs& args) {
  const int64_t rows = args.x.shape[0];
  if (rows == 0 || rows > static_cast<int64_t>(kMostRows) || args.w.empty() || !blocks_fit(args.w))
    return false;
  switch (args.w.scheme.element) {
    case Element::kI8:
      linear_of<Element::kI8>(args);
      return true;
    case Element::kU8:
      linear_of<Element::kU8>(args);
      return true;
    case Element::kE4M3:
      linear_of<Element::kE4M3>(args);
      return true;
    case Element::kU4:
      linear_of<Element::kU4>(args);
      return true;
    case Element::kE2M1:
      linear_of<Element::kE2M1>(args);
      return true;
    case Element::kF16:
      break;
  }
  return false;
}

#endif

}  // namespace lockstep::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::kernels::cpu {

HWY_EXPORT(linear_in_registers);

bool vector_linear_in_registers(const LinearArgs& args) {
  return HWY_DYNAMIC_DISPATCH(linear_in_registers)(args);
}

}  // namespace lockstep::kernels::cpu
#endif
