#pragma once
// The drafts that are made after one step, for the next to verify. The first forward of the module runs the
// step's own rows, each with the token that followed it, so that the module's cache holds what the model's
// does; each further one runs a row a request, the draft before. For the step loop only.
//
// A draft is drawn as the model will draw at its position: the same parameters, seed and position. It is
// accepted where the model then draws the same, so drafts change how many steps a text takes and not the
// text.
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "lockstep/runtime/sampler/step_draws.h"
#include "lockstep/runtime/scheduler/scheduler.h"

namespace lockstep::runtime {

// May a request have drafts? Penalties and constraints depend on the tokens before, which are not known here.
bool can_draft(const DrawState& state);

class DraftRound {
 public:
  using FindState = std::function<const DrawState&(RequestId)>;

  // `step` has run and its draws are committed. All must outlive this object.
  DraftRound(const StepInput& step, Scheduler& scheduler, const Vocabulary& vocabulary, FindState find_state,
             int32_t num_drafts);

  // The next forward of the module; none when every draft is made and proposed to the scheduler.
  std::optional<StepInput> next();
  // One wanted row of it; any thread, concurrently with other rows. What goes wrong ends the row's drafts, or
  // is told by next().
  void take(const LogitRow& row) noexcept;

 private:
  struct Drafter {
    RequestId id = 0;
    const DrawState* state = nullptr;
    int32_t num_tokens = 0;  // of the sequence
    int32_t num_wanted = 0;  // drafts
    int32_t row = 0;         // whose logits it waits for, of the replica's rows in the last forward
    std::vector<int32_t> page_table;
    int32_t slot = 0;
    std::vector<int32_t> drafts;
    bool is_done() const { return static_cast<int32_t>(drafts.size()) >= num_wanted; }
  };

  StepInput first();
  StepInput further();
  void add_drafter(const SequenceRows& rows, int32_t first_row, std::vector<Drafter>& drafters);
  int32_t num_wanted(const Sequence& sequence, const DrawState& state) const;
  void finish();

  const StepInput& step_;
  Scheduler& scheduler_;
  const Vocabulary& vocabulary_;
  const FindState find_state_;
  const int32_t num_drafts_;
  int32_t num_forwards_ = 0;
  std::vector<std::vector<Drafter>> drafters_;  // [replicas], by row
  std::mutex mutex_;
  std::exception_ptr failure_;  // the first
};

}  // namespace lockstep::runtime
