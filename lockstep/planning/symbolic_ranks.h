#pragma once
// All ranks of a grid executing a plan's steps on symbolic rows, in lock step. Internal to planning: only the
// verifier includes it. What a step does follows from its kind, its value and its axes alone; the layouts
// that the plan wrote beside it are claims, which are checked before and after. A step that cannot be
// executed (members that disagree on their rows, a row that would arrive twice) or that breaks a claim throws
// Misstep.
#include <map>
#include <optional>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include "lockstep/planning/plan.h"
#include "lockstep/planning/symbolic_model.h"

namespace lockstep::planning::symbolic {

struct Misstep : std::runtime_error {
  explicit Misstep(const std::string& what, int seen_on = 0) : std::runtime_error(what), rank(seen_on) {}
  int rank;  // one of the group in which it was seen
};

// One value of one rank: rows in the rank's order, each with `width` numbers (one, or one a column after the
// head).
struct Held {
  std::vector<RowId> rows;
  std::vector<uint64_t> values;  // [rows * width]
  size_t width = 1;
};

class Ranks {
 public:
  Ranks(const RankGrid& grid, const RowTable& table, const VerifierOptions& options);

  const Held& hidden(int rank) const { return hidden_[rank]; }
  const Held& residual(int rank) const { return residual_[rank]; }
  const Layout& hidden_layout() const { return hidden_layout_; }

  void embed(const Signature& signature);
  void run_stage(const Stage& stage, const Signature& signature);

  struct EdgeContext {
    size_t index = 0;
    const Stage& to;
    const Signature& gave;   // of the stage that the edge leaves
    const Signature& takes;  // of the stage that it enters
  };
  void run_step(const Step& step, const EdgeContext& edge);
  void finish_edge(const EdgeContext& edge) const;  // everything must have been done, and nothing twice

  // The rows that a rank holds under a layout: all, or after a select those whose logits are wanted.
  enum class RowSet : uint8_t { kAll, kWanted };
  const std::vector<RowId>& rows_of(const Layout& layout, int rank, RowSet set);

 private:
  enum class Phase : uint8_t { kGiven, kAdded, kNormed };
  struct Slot {  // a row on its way to an expert and back
    int source = 0;
    size_t position = 0;
    Route route;
    uint64_t value = 0;
  };

  void execute(const Step& step, const EdgeContext& edge);
  void check_claims_before(const Step& step, const EdgeContext& edge) const;
  void check_claims_after(const Step& step, const Layout& before, const EdgeContext& edge);
  void check_fused_add(const Step& step, const Layout& after);
  void check_rows(Value value);
  void check_order(const Step& step) const;

  void all_reduce(std::vector<Held>& value, AxisSet over);
  void all_gather(std::vector<Held>& value, AxisSet over);
  void keep_home(std::vector<Held>& value, AxisSet over);
  void columns_to_rows(AxisSet over);
  void seed();
  void add();
  void norm_rows(size_t edge);
  void select();
  void dispatch(AxisSet over, const EdgeContext& edge);
  void check_routed(int rank, size_t position, RouterMask mask) const;
  void check_slots(AxisSet over) const;
  void check_contract(const std::vector<Held>& value, AxisSet over);
  void compute_experts(int layer);
  void compute_shared(int layer, const Signature& signature);
  void combine(AxisSet over);
  uint64_t padding_value(int rank, RowId row) const;

  std::vector<Held>& of(Value value) { return value == Value::kHidden ? hidden_ : residual_; }
  Layout& layout_of(Value value) { return value == Value::kHidden ? hidden_layout_ : residual_layout_; }
  const std::vector<std::vector<int>>& groups(AxisSet over);
  bool checks_claims() const { return options_.claims == VerifierOptions::Claims::kChecked; }

  const RankGrid& grid_;
  const RowTable& table_;
  const VerifierOptions& options_;
  std::vector<Held> hidden_, residual_;
  Layout hidden_layout_, residual_layout_;
  Phase phase_ = Phase::kGiven;
  bool has_residual_ = false;
  RowSet row_set_ = RowSet::kAll;
  // Between dispatch and combine hidden is at the experts.
  std::optional<AxisSet> dispatched_over_;
  bool is_computed_ = false;
  std::vector<std::vector<Slot>> slots_;  // [ranks] at the ranks of the experts
  ExpertIds ids_ = ExpertIds::kGlobal;
  std::vector<Held> shared_;  // [ranks] the shared expert's addends

  std::map<AxisSet, std::vector<std::vector<int>>> groups_;
  std::map<std::pair<AxisSet, RowSet>, std::vector<std::vector<RowId>>> rows_;  // by sharded axes
};

}  // namespace lockstep::planning::symbolic
