#pragma once
// One step, between the scheduler that forms it and the executor that runs it. The phases of a step:
//
//   phase     reads                      writes                     thread
//   admit     submitted requests         waiting queues             engine
//   schedule  queues, free pages         StepInput, its StepPlan    engine
//   upload    StepInput                  (ranks read it in place; a GPU's ops copy what they need)
//   forward   StepInput, weights, cache  logits, cache              one a rank
//   sample    logits, request state      one draw a wanted row      the row's home rank
//   download  draws                      (in host memory; a GPU's logits come there before sample)
//   commit    draws                      request state, events      engine
//   draft     draws, hidden that ranks   the drafts of the next     engine, and as forward and sample
//             kept                       step
//   retire    finished requests          free pages, final events   engine
#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/planning/step_plan.h"
#include "lockstep/runtime/engine.h"

namespace lockstep::runtime {

enum class RowKind : uint8_t {
  kPrompt,  // part of a prompt (or of one that is computed again after preemption)
  kDecode,  // the one token drawn last, and drafts of what follows it
};
// kAll: of a prompt, to be scored; kEach: of a row and the drafts behind it, a draw each.
enum class WantedLogits : uint8_t { kNone, kLast, kAll, kEach };
// kLargest: all that is wanted of the logits is the largest and whose it is, which spares a GPU the way of
// the others to the host.
enum class LogitUse : uint8_t { kAny, kLargest };

// The rows that one request has in a step: tokens context - token_ids.size() … context - 1 of its sequence.
struct SequenceRows {
  RequestId id = 0;
  RowKind kind = RowKind::kPrompt;
  WantedLogits wanted = WantedLogits::kNone;
  LogitUse use = LogitUse::kAny;
  std::vector<int32_t> token_ids;
  int32_t context = 0;              // tokens in the cache once the step has run, these rows included
  std::vector<int32_t> page_table;  // page of token t is page_table[t / page_size]; covers `context` tokens
  // Where the sequence keeps what it has once and not once a token (a recurrent state): its own among the
  // replica's running sequences, 0 <= slot < Capacity::max_requests. When context == token_ids.size() it
  // starts afresh there.
  int32_t slot = 0;
  // Snapshots of slots lie in slots behind those, and are copied whole: before all rows of the step from
  // load_slot to `slot`, after all rows from `slot` to save_slot. -1: nothing is copied.
  int32_t load_slot = -1, save_slot = -1;
  // For the scheduler, which adds to the pages of a row that it gets back what has come since: the state of
  // the table that they were copied from. 0: of none.
  uint64_t pages_version = 0;
};

struct StepInput {
  planning::StepPlan plan;                          // its counts are those of `replicas`
  std::vector<std::vector<SequenceRows>> replicas;  // [replicas] in row order: sequence after sequence
  int32_t num_valid_logits = 0;                     // ids at or above are not drawn; 0: all are valid
  // Of a draft, [replicas][rows]: the row of the forward before that each follows, whose hidden it takes up.
  // Its token_ids are those that come after these rows' tokens.
  std::vector<std::vector<int32_t>> kept_rows = {};
};

constexpr int32_t kNoToken = -1;

// The logits of one wanted row, at its home rank.
struct LogitRow {
  int replica = 0;
  int32_t row = 0;             // among the replica's rows of this step
  std::span<float> logits;     // [vocab]; the receiver may change them; empty where `largest` is given
  std::string fault;           // not empty: a logit is not finite; names layer, rank and row range
  int32_t largest = kNoToken;  // the id of the largest valid logit, where that suffices
};

// Called once a wanted row, on the thread of its home rank, concurrently with other rows.
using LogitSink = std::function<void(const LogitRow&)>;

// How long the parts of a step took, in seconds.
struct StepTimes {
  double upload = 0;  // rows laid out for the ranks
  double sample = 0;  // on the rank that took longest
};

// What a rank did, when. On a GPU these are the times at which work was given to it.
struct RankSpan {
  std::string what;
  std::chrono::steady_clock::time_point begin, end;
};

class Executor {
 public:
  virtual ~Executor() = default;
  // Runs a step on all ranks and returns when every sink call has returned. Throws Fatal when a rank failed;
  // the executor is then unusable and every later call throws the same.
  virtual void run(const StepInput& input, const LogitSink& sink) = 0;
  // The same, and calls `meanwhile` once on the caller's thread: while the ranks compute, where the executor
  // can. What `meanwhile` throws comes through when they are done.
  virtual void run_beside(const StepInput& input, const LogitSink& sink,
                          const std::function<void()>& meanwhile) {
    meanwhile();
    run(input, sink);
  }

  // Both from any thread while run() runs on another.
  // What has failed already in that step, though other ranks have not come back yet; empty: nothing.
  virtual std::string failure() const { return {}; }
  // Ends that step as far as ranks can be reached: each fails when it next waits for another. Returns `why`
  // with what the ranks were doing.
  virtual std::string interrupt(const std::string& why) { return why; }

  // Of the last step; while none runs.
  virtual StepTimes last_times() const { return {}; }
  // [ranks] what each did in the steps since the last call, in order; empty where nothing is recorded.
  virtual std::vector<std::vector<RankSpan>> take_spans() { return {}; }
};

}  // namespace lockstep::runtime
