#pragma once
// Matrices for the kernel tests. Every gap between rows and both ends are guarded: inputs hold NaN there, so
// that a read beside the matrix spoils the result, and outputs are checked for a write.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "lockstep/base/hash.h"
#include "lockstep/tensors/tensor.h"

namespace lockstep::kernels {

// A number in [-1, 1) that depends on seed and n only.
inline float draw(uint64_t seed, uint64_t n) { return static_cast<float>(2 * uniform_draw(seed, n) - 1); }

class Matrix {
 public:
  static constexpr uint32_t kPoison = 0x7fc0dead;  // a NaN with a face
  static constexpr int64_t kGuard = 16;

  // All poison: an output, or an input to be filled. `gap` values lie between two rows.
  Matrix(int64_t rows, int64_t cols, int64_t gap = 0)
      : rows_(rows),
        cols_(cols),
        stride_(cols + gap),
        memory_(static_cast<size_t>(2 * kGuard + rows * stride_), std::bit_cast<float>(kPoison)) {}

  static Matrix drawn(uint64_t seed, int64_t rows, int64_t cols, int64_t gap = 0) {
    Matrix m(rows, cols, gap);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t c = 0; c < cols; ++c) m.at(r, c) = draw(seed, static_cast<uint64_t>(r * cols + c));
    }
    return m;
  }

  static Matrix of(std::vector<std::vector<float>> values) {
    Matrix m(static_cast<int64_t>(values.size()), static_cast<int64_t>(values.front().size()));
    for (size_t r = 0; r < values.size(); ++r) {
      for (size_t c = 0; c < values[r].size(); ++c)
        m.at(static_cast<int64_t>(r), static_cast<int64_t>(c)) = values[r][c];
    }
    return m;
  }

  int64_t rows() const { return rows_; }
  int64_t cols() const { return cols_; }
  float& at(int64_t r, int64_t c) { return memory_[static_cast<size_t>(kGuard + r * stride_ + c)]; }
  float at(int64_t r, int64_t c) const { return memory_[static_cast<size_t>(kGuard + r * stride_ + c)]; }

  TensorView view() {
    TensorView v = view_of(memory_.data() + kGuard, {rows_, cols_});
    v.stride[0] = stride_;
    return v;
  }
  // [rows, heads, cols / heads]
  TensorView cube(int64_t heads) {
    TensorView v = view_of(memory_.data() + kGuard, {rows_, heads, cols_ / heads});
    v.stride[0] = stride_;
    return v;
  }

  bool row_equals(int64_t r, const Matrix& other, int64_t other_r) const {
    for (int64_t c = 0; c < cols_; ++c) {
      if (std::bit_cast<uint32_t>(at(r, c)) != std::bit_cast<uint32_t>(other.at(other_r, c))) return false;
    }
    return true;
  }

  // Nothing beside the matrix was written, and everything in it was.
  void expect_written_exactly() const {
    for (size_t i = 0; i < memory_.size(); ++i) {
      const auto place = static_cast<int64_t>(i) - kGuard;
      const bool inside = stride_ > 0 && place >= 0 && place < rows_ * stride_ && place % stride_ < cols_;
      const bool poisoned = std::bit_cast<uint32_t>(memory_[i]) == kPoison;
      ASSERT_NE(inside, poisoned) << (inside ? "not written: " : "written beside the matrix: ") << place
                                  << " of " << rows_ << " rows of " << cols_;
    }
  }

 private:
  int64_t rows_, cols_, stride_;
  std::vector<float> memory_;
};

// A weight in either dtype; `at` is the value as stored.
class Weight {
 public:
  Weight(const Matrix& values, DType dtype, int64_t gap = 0)
      : rows_(values.rows()),
        cols_(values.cols()),
        stride_(values.cols() + gap),
        dtype_(dtype),
        f32_(static_cast<size_t>(rows_ * stride_), std::nanf("")),
        bf16_(f32_.size(), to_bf16(std::nanf(""))) {
    for (int64_t r = 0; r < rows_; ++r) {
      for (int64_t c = 0; c < cols_; ++c) {
        f32_[index(r, c)] = values.at(r, c);
        bf16_[index(r, c)] = to_bf16(values.at(r, c));
      }
    }
  }

  double at(int64_t r, int64_t c) const {
    return static_cast<double>(dtype_ == DType::kBF16 ? to_float(bf16_[index(r, c)]) : f32_[index(r, c)]);
  }
  TensorView view() {
    void* data = dtype_ == DType::kBF16 ? static_cast<void*>(bf16_.data()) : static_cast<void*>(f32_.data());
    TensorView v = view_of(data, dtype_, {rows_, cols_});
    v.stride[0] = stride_;
    return v;
  }

 private:
  size_t index(int64_t r, int64_t c) const { return static_cast<size_t>(r * stride_ + c); }
  int64_t rows_, cols_, stride_;
  DType dtype_;
  std::vector<float> f32_;
  std::vector<BF16> bf16_;
};

// Half the distance between 1 and the next float: the largest relative error of one rounding.
constexpr double kRound = 0x1p-24;

}  // namespace lockstep::kernels
