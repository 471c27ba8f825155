#pragma once
// The draws of one step: takes each wanted row of logits on the thread of its home rank and keeps what the
// engine thread commits afterwards. For the step loop only.
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "lockstep/runtime/engine.h"
#include "lockstep/runtime/sampler/selection.h"
#include "lockstep/runtime/sampler/token_counts.h"
#include "lockstep/runtime/step.h"

namespace lockstep::runtime {

// What one request brings to its draws. The engine thread changes it between steps; rank threads only read
// it.
struct DrawState {
  SamplingParams params;
  uint64_t seed = 0;
  int num_top_logprobs = -1;
  int prompt_top_logits = 0;
  int prompt_logprobs = -1;
  std::vector<int32_t> scored_prompt;  // the prompt, with prompt_logprobs
  int32_t num_prompt = 0;
  int32_t max_new_tokens = 0;
  int32_t min_new_tokens = 0;
  int32_t num_output = 0;
  std::vector<int32_t> ending_ids;              // end of sequence, unless ignored, and the request's stop ids
  TokenCounts counts;                           // kept when the parameters use it
  std::shared_ptr<TokenConstraint> constraint;  // asked on the rank's thread that draws, one row a step
};

// Whether the next draw needs no more of the logits than the largest.
bool needs_largest_only(const DrawState& state);

struct RowResult {
  OutputToken token;               // of a row that draws
  std::vector<Entry> top;          // of a prompt row that is scored
  OutputToken prompt_token;        // with prompt_logprobs: that the prompt has behind this row
  std::vector<float> last_logits;  // of the last such row
  std::string fault;               // not empty: nothing above is meaningful
};

struct Vocabulary {
  int32_t num_logits = 0;        // rows of the LM head
  int32_t num_valid_tokens = 0;  // ids at or above are never drawn; 0: all are valid
};

class StepDraws {
 public:
  using FindState = std::function<const DrawState&(RequestId)>;

  // Both must outlive this object.
  StepDraws(const StepInput& input, const Vocabulary& vocabulary, const FindState& find_state);

  // One row; any thread, concurrently with other rows. Never throws: what goes wrong is told by finish().
  void take(const LogitRow& row) noexcept;

  // After the step. Fatal when a row is missing, was given twice or was not wanted.
  void finish();

  // Of sequence `idx` of a replica, in row order; none when it wanted no logits.
  std::span<RowResult> results(int32_t replica, int32_t idx);

 private:
  struct WantedRow {
    const DrawState* state = nullptr;
    int32_t position = 0;   // of the token that the row draws, or the sequence's last row
    int32_t next = 0;       // of the token behind this row
    int32_t num_ahead = 0;  // drafts before it that are taken for output
    bool draws = false, is_scored = false, ends_scores = false;
  };
  void add(const SequenceRows& rows, const DrawState& state);
  void take_row(const LogitRow& row);
  size_t find_wanted(const LogitRow& row) const;
  RowResult draw(const WantedRow& wanted, std::span<float> logits) const;

  const StepInput& input_;
  const Vocabulary vocabulary_;
  std::vector<WantedRow> wanted_;                       // replica after replica, in row order
  std::vector<size_t> first_of_replica_;                // [replicas] in wanted_
  std::vector<std::vector<size_t>> first_of_sequence_;  // [replicas][sequences + 1] in wanted_
  std::vector<RowResult> results_;                      // as wanted_
  std::vector<std::atomic<uint8_t>> taken_;             // as wanted_
  std::mutex mutex_;
  std::exception_ptr failure_;  // the first
};

}  // namespace lockstep::runtime
