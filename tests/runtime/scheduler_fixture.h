#pragma once
// A scheduler without an executor: limits, prompts and steps as text.
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/scheduler/scheduler.h"

namespace lockstep::runtime {

// Roomy unless a test says otherwise.
inline SchedulerLimits roomy() {
  SchedulerLimits limits;
  limits.shape.num_replicas = 1;
  limits.shape.capacity = {.max_requests = 8, .max_rows = 64, .max_decode_rows = 8, .max_logit_rows = 64};
  limits.max_running_requests = 64;
  limits.chunked_prefill_size = 64;
  limits.page_size = 4;
  limits.pages_per_replica = 64;
  limits.context_length = 128;
  return limits;
}

inline NewSequence prompt_of(RequestId id, int length) {
  NewSequence sequence{.id = id};
  for (int i = 0; i < length; ++i) sequence.prompt.push_back(i);
  return sequence;
}

// "3:PPP" is three prompt rows of request 3, "3:D" its decode row; then + for the last row's logits, * for
// all.
inline std::string text_of(const std::vector<SequenceRows>& sequences) {
  std::string text;
  for (const SequenceRows& rows : sequences) {
    text += fmt::format("{}{}:{}{}", text.empty() ? "" : " ", rows.id,
                        std::string(rows.token_ids.size(), rows.kind == RowKind::kDecode ? 'D' : 'P'),
                        rows.wanted == WantedLogits::kAll    ? "*"
                        : rows.wanted == WantedLogits::kLast ? "+"
                                                             : "");
  }
  return text;
}

// Forms a step, runs it and draws token 5 for each sequence whose last known row is done.
inline std::vector<std::string> play(Scheduler& scheduler) {
  std::optional<StepInput> input = scheduler.next();
  if (!input) return {};
  scheduler.commit();
  std::vector<std::string> texts;
  for (const std::vector<SequenceRows>& sequences : input->replicas) {
    texts.push_back(text_of(sequences));
    for (const SequenceRows& rows : sequences)
      if (scheduler.sequence(rows.id).num_pending() == 0) scheduler.append(rows.id, 5);
  }
  scheduler.check_invariants();
  scheduler.recycle(*std::move(input));
  return texts;
}

}  // namespace lockstep::runtime
