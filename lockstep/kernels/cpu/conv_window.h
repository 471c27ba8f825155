#pragma once
// The rows that a causal convolution sees: those of the step, and before them those that the state keeps.
#include <algorithm>

#include "lockstep/kernels/cpu/elements.h"
#include "lockstep/kernels/delta_net.h"

namespace lockstep::kernels::cpu {

class ConvWindow {
 public:
  ConvWindow(const CausalConvArgs& args, const PagedSequence& sequence)
      : args_(args), sequence_(sequence), kept_(args.state.shape[1]) {
    if (!sequence.starts()) return;
    for (int64_t row = 0; row < kept_; ++row) std::fill_n(kept(row), args.x.shape[1], 0.0f);
  }

  // Row t of the sequence's rows in this step; the rows before the first one are -1, -2, … 1 - taps.
  const float* row(int64_t t) const {
    return t < 0 ? kept(kept_ + t) : row_of<float>(args_.x, sequence_.first_row + t);
  }

  // Keeps the last rows for the next step. Ascending, and from a row further on: nothing is read after it was
  // overwritten.
  void advance() const {
    if (sequence_.num_rows == 0) return;
    for (int64_t i = 0; i < kept_; ++i)
      std::copy_n(row(sequence_.num_rows - kept_ + i), args_.x.shape[1], kept(i));
  }

 private:
  float* kept(int64_t i) const {
    return args_.state.as<float>() + sequence_.slot * args_.state.stride[0] + i * args_.state.stride[1];
  }
  const CausalConvArgs& args_;
  const PagedSequence& sequence_;
  const int64_t kept_;
};

}  // namespace lockstep::kernels::cpu
