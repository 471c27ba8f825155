#pragma once
// What one rank can do together with others. A backend implements every verb; what it cannot do well it does
// not advertise in its contract, and the planner never asks for it. Only the boundary calls these; models
// never see them.
//
// All members of a group call the same verb with the same tag; who passes another tag gets Fatal with both
// names, not a hang. Waits have a deadline; on expiry Fatal names the step, the group and the missing ranks.
// Zero rows are allowed everywhere. Outputs do not overlap inputs; an input may be reused as soon as the call
// returns.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/kernels/kernels.h"
#include "lockstep/planning/rank_grid.h"
#include "lockstep/planning/stage.h"
#include "lockstep/tensors/tensor.h"

namespace lockstep::collectives {

using planning::AxisSet;

// What a backend promises, as data.
struct Contract {
  std::string_view name;
  enum class Sums : uint8_t {
    kInRankOrder,
    kAnyOrder
  } sums = Sums::kInRankOrder;  // kInRankOrder repeats bit for bit
  enum class Rows : uint8_t { kAnyPerRank, kEqualPerRank } rows = Rows::kAnyPerRank;
  enum class ZeroRows : uint8_t { kAllowed, kRefused } zero_rows = ZeroRows::kAllowed;
  enum class HostSync : uint8_t { kBlocks, kNone } host_sync = HostSync::kBlocks;
  enum class Capture : uint8_t { kNo, kYes } capture = Capture::kNo;
  enum class FusedAllReduceAddNorm : uint8_t {
    kNo,
    kYes
  } fused_all_reduce_add_norm = FusedAllReduceAddNorm::kNo;
  enum class FusedScatterNormGather : uint8_t {
    kNo,
    kYes
  } fused_scatter_norm_gather = FusedScatterNormGather::kNo;
  enum class FusedCombineAdd : uint8_t { kNo, kYes } fused_combine_add = FusedCombineAdd::kNo;
  std::vector<DType> wire_types;
};

// Names a call: the engine's step, the plan's step, and words for people. The view outlives the call.
struct Tag {
  uint64_t engine_step = 0;
  uint32_t plan_step = 0;
  std::string_view what;
};

using kernels::RowPiece;  // its source is a member's place in the group

struct AllReduceArgs {
  TensorView in;   // [rows, width] f32, the same shape on every member
  TensorView out;  // [rows, width] f32
};
struct ReduceScatterArgs {
  TensorView in;                    // [rows, width] f32, the same shape on every member
  TensorView out;                   // [own rows, width] f32
  std::span<const RowPiece> keeps;  // the rows of `in` whose sum this rank keeps; source is not looked at
};
struct AllGatherArgs {
  TensorView in;                     // [own rows, width] f32
  TensorView out;                    // [rows, width] f32
  std::span<const RowPiece> pieces;  // tile `out`
};
struct ColumnsToRowsArgs {
  TensorView in;                    // [rows, own columns] f32: the same rows on every member
  TensorView out;                   // [own rows, all columns] f32: columns in member order
  std::span<const RowPiece> keeps;  // the rows of `in` that this rank keeps; source is not looked at
};
struct FusedAllReduceAddNormArgs {
  TensorView in;        // [rows, width] f32 addends
  TensorView residual;  // [rows, width] f32, in place: residual += the sum
  TensorView weight;    // [width]
  float eps = 1e-6f;
  TensorView out;                     // [rows, width] f32: rms_norm(residual)
  int64_t first_non_finite_row = -1;  // out, as RmsNormArgs
};

struct FusedScatterAddNormGatherArgs {
  TensorView in;                    // [rows, width] f32 addends, the same shape on every member
  std::span<const RowPiece> keeps;  // the rows of `in` whose sum this rank keeps; member is not looked at
  TensorView residual;              // [own rows, width] f32, in place: residual += the sum
  TensorView weight;                // [width]
  float eps = 1e-6f;
  TensorView normed;                  // [own rows, width] f32: rms_norm(residual)
  std::span<const RowPiece> pieces;   // of the members' `normed`; tile `out`
  TensorView out;                     // [rows, width] f32
  int64_t first_non_finite_row = -1;  // of own rows; out, as RmsNormArgs
};

// Rows on their way to experts. Filled by dispatch(), consumed by combine(); the buffers are kept between
// steps.
struct Dispatched {
  explicit Dispatched(const Memory& of) : memory(&of), row_buffer(of), start_buffer(of) {}
  TensorView rows;                  // [slots, hidden] f32: grouped by local expert, then member, then row
  TensorView expert_start;          // [local experts + 1] i32
  std::vector<TensorView> slot_of;  // [members] of [rows of the member, top_k] i32: the slot here, or -1
  const Memory* memory;
  Buffer row_buffer, start_buffer;
  std::vector<Buffer> slot_buffers;
  std::vector<float>
      tokens;  // [members * max rows, hidden], where rows arrive by token; in the host's memory
};
struct DispatchArgs {
  TensorView x;                                     // [rows, hidden] f32
  TensorView expert_idx;                            // [rows, top_k] i32; -1 routes nowhere
  int64_t first_expert = 0, num_local_experts = 0;  // that this rank computes
  // How rows lie at their experts, and the most rows that any member may bring: what buffers are sized by
  // where they are not sized by what came.
  planning::ExchangeSlots slots = planning::ExchangeSlots::kExactCount;
  int64_t max_rows = 0;
  kernels::Readers readers = kernels::Readers::kAny;
  Dispatched* out = nullptr;
};
struct CombineArgs {
  const Dispatched* dispatched = nullptr;
  TensorView y;           // [slots, hidden], the experts' outputs, see kernels::PullWeightedArgs
  TensorView expert_idx;  // [rows, top_k] i32 of this rank's rows
  TensorView weight;      // [rows, top_k] f32: combine multiplies, nobody else does
  TensorView out;         // [rows, hidden] f32: the weighted sum, in top_k order, of what the group computed
};

struct FusedCombineAddArgs {
  CombineArgs combine;  // its `out` is only room to work in
  TensorView shared;    // [rows, hidden] f32: added to what is combined; empty: none
  TensorView residual;  // [rows, hidden] f32, in place: residual += the sum
};

// combine(), then residual += what it and `shared` give, then out = rms_norm(residual).
struct CombineAddNormArgs {
  CombineArgs combine;  // its `out` is only room to work in
  TensorView shared;    // [rows, hidden] f32: added to what is combined; empty: none
  TensorView residual;  // [rows, hidden] f32, in place
  TensorView weight;    // [hidden]
  float eps = 1e-6f;
  TensorView out;  // [rows, hidden] f32
  kernels::Readers out_readers = kernels::Readers::kAny;
  int64_t first_non_finite_row = -1;  // out, as RmsNormArgs
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual Contract contract() const = 0;
  virtual void all_reduce(const AllReduceArgs&, AxisSet over, const Tag&) = 0;
  virtual void reduce_scatter(const ReduceScatterArgs&, AxisSet over, const Tag&) = 0;
  virtual void all_gather(const AllGatherArgs&, AxisSet over, const Tag&) = 0;
  virtual void columns_to_rows(const ColumnsToRowsArgs&, AxisSet over, const Tag&) = 0;
  virtual void fused_all_reduce_add_norm(FusedAllReduceAddNormArgs&, kernels::Kernels&, AxisSet over,
                                         const Tag&) = 0;
  // As the separate verbs, one after the other, unless a backend knows better.
  virtual void fused_scatter_add_norm_gather(FusedScatterAddNormGatherArgs&, kernels::Kernels&, AxisSet over,
                                             const Tag&);
  virtual void fused_combine_add(const FusedCombineAddArgs&, kernels::Kernels&, AxisSet over, const Tag&);
  virtual void combine_add_norm(CombineAddNormArgs&, kernels::Kernels&, AxisSet over, const Tag&);
  // `over` may be empty: the rank's own rows and experts, no communication.
  virtual void dispatch(const DispatchArgs&, AxisSet over, const Tag&) = 0;
  virtual void combine(const CombineArgs&, AxisSet over, const Tag&) = 0;
};

}  // namespace lockstep::collectives
