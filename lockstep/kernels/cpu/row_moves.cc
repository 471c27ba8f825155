// Rows that go from one place to another, between the ranks of a process too: copies, sums in a fixed order,
// and the way to experts and back.
#include <algorithm>
#include <cstring>

#include "lockstep/kernels/cpu/arguments.h"
#include "lockstep/kernels/cpu/elements.h"
#include "lockstep/kernels/cpu/scalar_ops.h"

namespace lockstep::kernels::cpu {
namespace {

void copy_row(const float* from, float* to, int64_t width) {
  std::memcpy(to, from, static_cast<size_t>(width) * sizeof(float));
}

// out[dst …] = the addends' rows [src …] summed in order.
void sum_piece(std::span<const TensorView> addends, const RowPiece& piece, const TensorView& out) {
  for (int64_t row = 0; row < piece.num_rows; ++row) {
    float* sum = row_of<float>(out, piece.dst_row + row);
    copy_row(row_of<float>(addends[0], piece.src_row + row), sum, out.cols());
    for (const TensorView& addend : addends.subspan(1)) {
      const float* more = row_of<float>(addend, piece.src_row + row);
      for (int64_t at = 0; at < out.cols(); ++at) sum[at] += more[at];
    }
  }
}

// The local number of the expert at a place of expert_idx, or -1.
int64_t local_expert(const PlaceSlotsArgs& args, const TensorView& expert_idx, int64_t row, int64_t k) {
  const int64_t expert = row_of<int32_t>(expert_idx, row)[k] - args.first_expert;
  return expert >= 0 && expert < args.expert_start.rows() - 1 ? expert : -1;
}

}  // namespace

void copy_rows(const CopyRowsArgs& args) {
  check(args);
  for (const RowPiece& piece : args.pieces)
    for (int64_t row = 0; row < piece.num_rows; ++row)
      copy_row(row_of<float>(args.sources[static_cast<size_t>(piece.source)], piece.src_row + row),
               row_of<float>(args.out, piece.dst_row + row), args.out.cols());
}

void sum_rows(const SumRowsArgs& args) {
  check(args);
  for (const RowPiece& piece : args.pieces) sum_piece(args.addends, piece, args.out);
}

void sum_add_norm(SumAddNormArgs& args, const RowOps& ops) {
  constexpr int64_t kBlock = 8;  // rows that stay in the cache between sum, add and norm
  check(args);
  args.first_non_finite_row = -1;
  for (int64_t row = 0; row < args.out.rows(); row += kBlock) {
    const int64_t rows = std::min(kBlock, args.out.rows() - row);
    const TensorView out = args.out.row_range(row, rows), residual = args.residual.row_range(row, rows);
    sum_piece(args.addends, {.src_row = row, .dst_row = 0, .num_rows = rows}, out);
    ops.add({.x = residual, .y = out});
    RmsNormArgs norm{.x = residual, .weight = args.weight, .eps = args.eps, .out = out};
    ops.rms_norm(norm);
    if (norm.first_non_finite_row >= 0 && args.first_non_finite_row < 0)
      args.first_non_finite_row = row + norm.first_non_finite_row;
  }
}

// Counts, then places.
void choose_slots(const PlaceSlotsArgs& args) {
  auto* start = args.expert_start.as<int32_t>();
  std::vector<int32_t> next(static_cast<size_t>(args.expert_start.rows()), 0);
  for (const PlaceSlotsArgs::Source& source : args.sources)
    for (int64_t row = 0; row < source.x.rows(); ++row)
      for (int64_t k = 0; k < source.expert_idx.cols(); ++k)
        if (const int64_t expert = local_expert(args, source.expert_idx, row, k); expert >= 0)
          ++next[static_cast<size_t>(expert) + 1];
  for (size_t expert = 1; expert < next.size(); ++expert) next[expert] += next[expert - 1];
  std::copy(next.begin(), next.end(), start);
  for (const PlaceSlotsArgs::Source& source : args.sources)
    for (int64_t row = 0; row < source.x.rows(); ++row)
      for (int64_t k = 0; k < source.expert_idx.cols(); ++k) {
        const int64_t expert = local_expert(args, source.expert_idx, row, k);
        row_of<int32_t>(source.slot_of, row)[k] = expert < 0 ? -1 : next[static_cast<size_t>(expert)]++;
      }
}

void copy_to_slots(const PlaceSlotsArgs::Source& source, Range rows, const TensorView& out) {
  for (int64_t row = rows.begin; row < rows.end; ++row)
    for (int64_t k = 0; k < source.slot_of.cols(); ++k)
      if (const int32_t slot = row_of<int32_t>(source.slot_of, row)[k]; slot >= 0)
        copy_row(row_of<float>(source.x, row), row_of<float>(out, slot), out.cols());
}

void place_slots(const PlaceSlotsArgs& args) {
  check(args);
  choose_slots(args);
  for (const PlaceSlotsArgs::Source& source : args.sources)
    copy_to_slots(source, {0, source.x.rows()}, args.out);
}

void pull_weighted(const PullWeightedArgs& args) {
  check(args);
  for (int64_t row = 0; row < args.out.rows(); ++row) {
    float* sum = row_of<float>(args.out, row);
    std::fill_n(sum, args.out.cols(), 0.0f);
    for (int64_t k = 0; k < args.weight.cols(); ++k)
      for (const PullWeightedArgs::Source& source : args.sources) {
        const int32_t slot = row_of<int32_t>(source.slot_of, row)[k];
        if (slot < 0) continue;
        const float* y = row_of<float>(source.y, slot);
        const float weight = row_of<float>(args.weight, row)[k];
        for (int64_t at = 0; at < args.out.cols(); ++at) sum[at] += weight * y[at];
      }
  }
}

}  // namespace lockstep::kernels::cpu
