#pragma once
// The only communication that a model can ask for: "carry what this stage gave to what the next stage needs".
// What that means is looked up in the plan; the model cannot tell one rank from many. One boundary a rank,
// used by its thread.
//
// Within a step a model calls begin(), then for every stage in the order of the chain enter(stage, …),
// computes, and goes on; around experts it calls dispatch() and combine(). A call out of the plan's order is
// Fatal.
#include <array>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/collectives/communicator.h"
#include "lockstep/planning/configuration.h"
#include "lockstep/planning/row_map.h"
#include "lockstep/planning/step_plan.h"

namespace lockstep::collectives {

// The norm of an edge: out = rms_norm(residual).
struct NormWeights {
  TensorView weight;  // [hidden]
  float eps = 1e-6f;
  kernels::Readers readers = kernels::Readers::kAny;  // of all rows that are normed
};

// What a stage is handed. Views are good until the next enter().
struct Rows {
  TensorView x;                    // [rows, hidden] f32
  std::span<const uint8_t> valid;  // [rows]; 0 is padding, which routes nowhere
  // The rows at home here along the axes over which the stage owes a sum: of all ranks that hold a row, one
  // owns it. Ascending; all rows where no sum is owed.
  std::span<const planning::Segment> own = {};
  planning::Segment gives = {};  // the rows of x whose outputs the stage gives; others are only looked at
};

// Rows grouped for the local experts.
struct ExpertRows {
  TensorView x;             // [slots, hidden] f32
  TensorView expert_start;  // [local experts + 1] i32
};

// The routing of the rows that a rank holds.
struct Routing {
  TensorView expert_idx;  // [rows, top_k] i32
  TensorView weight;      // [rows, top_k] f32
};

// Where rows of a replica first held a number that is not finite.
struct NonFinite {
  std::string where;  // "after experts.3"
  int32_t first_row = 0, last_row = 0;
};

// What a rank began when; it did so until the next one.
struct Mark {
  const std::string* what = nullptr;  // as long as the boundary
  std::chrono::steady_clock::time_point begin;
};

class Boundary {
 public:
  struct Parts {
    const planning::Plans& plans;
    int rank = 0;
    int hidden = 0;  // features of a row
    Communicator& communicator;
    kernels::Kernels& kernels;
    std::vector<Mark>* marks = nullptr;  // everything that the rank does is appended; none: nothing is kept
  };
  explicit Boundary(const Parts& parts);
  ~Boundary();

  void begin(const planning::StepPlan& step_plan);

  // The rows that this rank holds now; after begin(), those that the embedding must produce.
  std::span<const uint8_t> valid() const { return valid_; }
  int64_t num_rows() const { return static_cast<int64_t>(valid_.size()); }

  // Of `values`, one a row of the step in the order of homes, those of the rows that this rank holds now.
  std::vector<int32_t> held(std::span<const int32_t> values) const;

  // Carries `given`, the output of the stage before, across the edge into `stage`.
  Rows enter(planning::StageRef stage, TensorView given, const NormWeights& norm);
  // The last edge: whole logits of the wanted rows at home here, [wanted rows, vocab].
  TensorView enter_sampler(TensorView logits_columns, int64_t vocab);

  // Between entering an experts stage and leaving it. `routing` must stay until combine().
  ExpertRows dispatch(const Rows& rows, const Routing& routing, int64_t first_expert,
                      int64_t num_local_experts, kernels::Readers readers);
  // `shared`: what the rank adds to the rows that it holds, [rows as entered, hidden]; empty: nothing. On a
  // device what is given may be computed by the enter() that it is handed to alone.
  TensorView combine(TensorView y, const Routing& routing, TensorView shared);  // [rows as entered, hidden]

  // The same two with the experts between them as one op, where rows come to this rank's experts without an
  // exchange: the rows of `ffn` are the room, for every row's top_k slots.
  bool keeps_rows() const;
  ExpertRows room_for_experts(const Rows& rows, const Routing& routing, int64_t num_experts);
  TensorView run_experts(const Rows& rows, const Routing& routing, int64_t first_expert,
                         const kernels::GroupedFfnArgs& ffn, TensorView shared, kernels::Readers readers);

  // What the rank does, for people: "computes experts.3", or the step of an edge. From any thread.
  const std::string& doing() const { return *doing_.load(std::memory_order_relaxed); }
  // The rank has done its part of a step.
  void rest() { note(kResting); }

  // The first place in this step at which a row in [first_row, last_row] of this rank's replica was seen to
  // be not finite by this rank, if any.
  std::optional<NonFinite> non_finite(int32_t first_row, int32_t last_row) const;

 private:
  const planning::Edge& next_edge(planning::StageRef stage);
  void run_step(const planning::Step& step);
  void all_reduce(const planning::Step& step);
  void reduce_scatter(const planning::Step& step);
  void all_gather(const planning::Step& step);
  void slice(const planning::Step& step);
  void select();
  void norm(const planning::Step& step);
  static bool adds_then_norms(const planning::Edge& edge, size_t at);
  void combine_add_norm(const planning::Edge& edge, size_t add);
  void add_and_norm(const planning::Step& add, const planning::Step& norm);
  void fused(const planning::Step& step);
  void fused_scatter(const planning::Step& step);
  std::vector<RowPiece> gathered_rows(const planning::Step& step, const planning::Layout& before) const;
  void refresh_own(const planning::Layout& gives);
  const planning::Layout& given_next(const planning::Edge& edge) const;
  planning::Segment given_rows(const planning::Layout& gives) const;
  void refresh_valid();
  void note_non_finite(int64_t first_row);
  void copy_rows(const TensorView& from, std::span<const RowPiece> pieces, const TensorView& to);
  int64_t first_wanted_of(int home) const;
  TensorView& of(planning::Value value) { return value == planning::Value::kHidden ? hidden_ : residual_; }
  planning::Layout& layout_of(planning::Value value) {
    return value == planning::Value::kHidden ? layout_ : residual_layout_;
  }
  TensorView fresh(planning::Value value, int64_t rows,
                   int64_t cols);  // never the buffer that the value is in
  void note(const std::string& what);
  void note_stage() { note(stages_.at(plan_)[edge_]); }
  Tag tag_of(const planning::Step& step);
  std::vector<RowPiece> kept_rows(const planning::Step& step) const;
  std::span<const int32_t> counts() const;  // rows per home: all, or the wanted ones once selected

  Parts parts_;
  std::map<const planning::Plan*, std::vector<std::string>> names_;  // words for every step of all plans
  std::map<const planning::Plan*, std::vector<std::string>>
      stages_;  // and for the stage before every edge, and the last
  inline static const std::string kResting = "has nothing to do";
  std::atomic<const std::string*> doing_{&kResting};
  const planning::StepPlan* step_plan_ = nullptr;
  const planning::Plan* plan_ = nullptr;
  size_t edge_ = 0;        // the next to cross
  size_t done_steps_ = 0;  // of that edge: 1 once its combine has run
  enum class RowSet : uint8_t { kAll, kWanted } row_set_ = RowSet::kAll;
  planning::Layout layout_, residual_layout_;  // of hidden and of the residual
  TensorView hidden_, residual_;
  // A step reads one buffer of its value and writes the other. The last two are for what combine gives, and
  // for the slices inside of a fused step.
  std::array<Buffer, 2> hidden_buffers_, residual_buffers_;
  std::array<int, 2> next_buffer_{};
  Buffer combined_, normed_;
  // What combine() has left to the enter() that adds and norms it: one op has the bits of all.
  struct Waiting {
    CombineArgs args;
    TensorView shared;
    const planning::Step* step = nullptr;
  };
  std::optional<Waiting> waiting_;
  std::vector<uint8_t> valid_;
  std::vector<planning::Segment> own_;
  NormWeights norm_;
  std::unique_ptr<Dispatched> dispatched_;
  std::map<int32_t, size_t> non_finite_;  // row of this replica -> the edge after which it was seen
};

}  // namespace lockstep::collectives
