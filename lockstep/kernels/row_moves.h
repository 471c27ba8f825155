#pragma once
// Arguments of the ops that carry rows from one place to another, between the ranks of a process too: what
// the boundary and the collectives are made of. Part of kernels.h, whose rules hold.
#include <cstdint>
#include <span>

#include "lockstep/kernels/readers.h"
#include "lockstep/tensors/tensor.h"

namespace lockstep::kernels {

// Rows [src_row, src_row + num_rows) of the source with number `source` become rows dst_row … of the output.
struct RowPiece {
  int source = 0;
  int64_t src_row = 0, dst_row = 0, num_rows = 0;
};

// The views of all these may lie in the memory of another rank of the same process.
struct CopyRowsArgs {
  std::span<const TensorView> sources;  // of [rows, width] f32
  std::span<const RowPiece> pieces;
  TensorView out;  // [rows, width] f32
};

// out[dst …] = Σ over the addends, in their order, of their rows [src …]; a piece's source is not looked at.
struct SumRowsArgs {
  std::span<const TensorView> addends;  // at least one, of [rows, width] f32
  std::span<const RowPiece> pieces;
  TensorView out;  // [rows, width] f32
};

// residual += Σ addends; out = rms_norm(residual).
struct SumAddNormArgs {
  std::span<const TensorView> addends;  // at least one, of [rows, width] f32
  TensorView residual;                  // [rows, width] f32, in place
  TensorView weight;                    // [width] f32 or bf16
  float eps = 1e-6f;
  TensorView out;                     // [rows, width] f32
  int64_t first_non_finite_row = -1;  // out, as RmsNormArgs
};

// Copies every row to a slot of each of its experts that is local here: slots stand grouped by local expert,
// then by source, then by row.
struct PlaceSlotsArgs {
  struct Source {
    TensorView x;           // [rows, hidden] f32
    TensorView expert_idx;  // [rows, top_k] i32; -1 routes nowhere
    TensorView slot_of;     // out [rows, top_k] i32: the slot, or -1 where the expert is not local
  };
  std::span<const Source> sources;
  int64_t first_expert = 0;
  TensorView expert_start;  // out [num_local_experts + 1] i32
  TensorView out;           // [slots, hidden] f32, as many slots as every row could need
  Readers readers = Readers::kAny;
};

// out = Σ_k weight_k · y[slot of (row, k)] in the order of k, over whichever source has the slot.
struct PullWeightedArgs {
  struct Source {
    TensorView y;        // [slots, hidden] f32, or what type_of_expert_outputs() said, the same in all
    TensorView slot_of;  // [rows, top_k] i32 of this rank's rows
  };
  std::span<const Source> sources;
  TensorView weight;  // [rows, top_k] f32
  TensorView out;     // [rows, hidden] f32
};

}  // namespace lockstep::kernels
