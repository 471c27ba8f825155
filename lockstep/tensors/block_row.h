#pragma once
// Walks over the blocks of a coded row from a column on, without a division or a call for each: for decoders.
#include "lockstep/tensors/number_formats.h"
#include "lockstep/tensors/weight_view.h"

namespace lockstep {

class BlockRow {
 public:
  BlockRow(const WeightView& weight, int64_t row, int64_t col)
      : weight_(weight),
        line_(quotient(weight.first_row + row, weight.scheme.block_rows) * weight.scale_stride),
        col_(weight.first_col + col) {
    if (weight_.block_of_col != nullptr) {
      look();
    } else {
      block_ = col_ < weight_.scheme.block_cols ? 0 : col_ / weight_.scheme.block_cols;
      run_ = (block_ + 1) * weight_.scheme.block_cols - col_;
    }
  }

  int64_t run() const { return run_; }  // columns from here on in this block, maybe beyond the view

  // To the column behind the run.
  void advance() {
    col_ += run_;
    if (weight_.block_of_col != nullptr) {
      look();
    } else {
      ++block_;
      run_ = weight_.scheme.block_cols;
    }
  }

  // Without the weight's factor.
  float scale() const {
    const int64_t at = line_ + block_;
    switch (weight_.scheme.scale) {
      case QuantScheme::Scale::kNone:
        return 1;
      case QuantScheme::Scale::kF32:
        return static_cast<const float*>(weight_.scales)[at];
      case QuantScheme::Scale::kBF16:
        return to_float(static_cast<const BF16*>(weight_.scales)[at]);
      case QuantScheme::Scale::kF16:
        return from_f16(static_cast<const uint16_t*>(weight_.scales)[at]);
      case QuantScheme::Scale::kE4M3:
        return from_e4m3(static_cast<const uint8_t*>(weight_.scales)[at]);
      case QuantScheme::Scale::kE8M0:
        return from_e8m0(static_cast<const uint8_t*>(weight_.scales)[at]);
    }
    return 1;
  }

  int32_t zero() const {
    if (weight_.zeros == nullptr) return weight_.zero;
    const uint8_t stored = weight_.zeros[line_ + block_];
    return weight_.scheme.element == QuantScheme::Element::kI8 ? static_cast<int8_t>(stored) : stored;
  }

 private:
  // Most blocks are of one row, and a division takes as long as some ten products.
  static int64_t quotient(int64_t row, int64_t block_rows) {
    return block_rows == 1 ? row : row / block_rows;
  }

  // Finds block and run where every column has a block of its own choice.
  void look() {
    const int64_t end = weight_.first_col + weight_.num_cols;
    if (col_ >= end) return;
    block_ = weight_.block_of_col[col_];
    run_ = 1;
    while (col_ + run_ < end && weight_.block_of_col[col_ + run_] == block_) ++run_;
  }

  const WeightView& weight_;
  const int64_t line_;  // of the grid: where the row's blocks begin
  int64_t col_;         // in the stored matrix
  int64_t block_ = 0, run_ = 0;
};

}  // namespace lockstep
