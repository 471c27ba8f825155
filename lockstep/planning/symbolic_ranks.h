#pragma once
// All ranks of a grid executing a plan's steps on symbolic rows, in lock step. Internal to planning: only the
// verifier includes it. A step that cannot be executed as written (members that disagree on their rows, a row
// that would arrive twice, a sum over addends that are none) throws Misstep with what was found.
#include <optional>
#include <span>
#include <stdexcept>
#include <vector>

#include "lockstep/planning/row_map.h"
#include "lockstep/planning/symbolic_model.h"

namespace lockstep::planning::symbolic {

struct Misstep : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// One value of one rank: rows in the rank's order, each with one number, or with one a column after the head.
struct Held {
  std::vector<RowKey> keys;
  std::vector<std::vector<uint64_t>> values;
};

class Ranks {
 public:
  Ranks(const RankGrid& grid, const StepPlan& step_plan, const VerifierOptions& options);

  const Held& hidden(int rank) const { return hidden_[rank]; }
  const Held& residual(int rank) const { return residual_[rank]; }
  const Layout& hidden_layout() const { return hidden_layout_; }
  const Layout& residual_layout() const { return residual_layout_; }

  void embed(const Signature& signature);
  void run_stage(const Stage& stage, const Signature& signature);
  void run_step(const Step& step, size_t edge);
  void finish_edge(const Edge& edge) const;  // nothing may be left on its way between dispatch and combine

 private:
  struct Slot {  // a row on its way to an expert and back
    int source = 0;
    size_t position = 0;
    RowKey key;
    Route route;
    uint64_t value = 0;
  };

  void all_reduce(std::vector<Held>& value, AxisSet over);
  void all_gather(std::vector<Held>& value, AxisSet over);
  void keep_home(std::vector<Held>& value, AxisSet over);
  void add();
  void norm_rows(size_t edge);
  void select();
  void dispatch(AxisSet over);
  void combine();
  void columns_to_rows(AxisSet over);
  void compute_experts(int layer);
  uint64_t padding_value(int rank, RowKey key) const;
  std::vector<Held>& of(Value value) { return value == Value::kHidden ? hidden_ : residual_; }

  const RankGrid& grid_;
  const StepPlan& step_plan_;
  const VerifierOptions& options_;
  std::vector<Held> hidden_, residual_;
  Layout hidden_layout_, residual_layout_;
  bool has_residual_ = false;
  // Between dispatch and combine.
  std::optional<AxisSet> dispatched_over_;
  std::vector<std::vector<Slot>> slots_;  // [ranks] at the ranks of the experts
  std::vector<Held> shared_;              // [ranks] the shared expert's addends
};

}  // namespace lockstep::planning::symbolic
