#pragma once
// What the scheduler knows of one request: its tokens, how far the cache holds them, its pages. No sampling,
// no sink.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/runtime/kv_cache/replica_cache.h"
#include "lockstep/runtime/step.h"

namespace lockstep::runtime {

// What is handed to Scheduler::add.
struct NewSequence {
  RequestId id = 0;
  std::vector<int32_t> prompt;
  WantedLogits prompt_logits = WantedLogits::kLast;  // kAll: of every prompt position
  std::optional<int> replica;                        // none: the scheduler chooses
  std::string cache_salt;                            // only sequences of one salt share pages
  int32_t priority = 0;                              // higher starts first
  std::string tenant;                                // tenants of one priority take turns
};

// What a tenant's sequences have had of a replica since it was last without a queue, in tokens.
struct TenantAccount {
  int64_t tokens_had = 0;
};

// What every step looks at comes first, in as few cache lines as it takes.
struct alignas(64) Sequence {
  RequestId id = 0;
  int32_t replica = 0;
  bool is_pinned = false;  // the request named its replica
  bool is_running = false;
  std::vector<int32_t> tokens;  // the prompt, then what was drawn
  int32_t num_prompt = 0;
  int32_t num_to_score = 0;                // prompt positions whose logits are wanted, the last one's apart
  int32_t num_scored = 0;                  // of these, done; stays when the sequence is preempted
  int32_t num_cached = 0;                  // tokens that the cache holds
  int32_t num_planned = 0;                 // rows in the step that is being formed or run
  int32_t num_verified = 0;                // drafts that the last step ran behind the token drawn last
  int32_t slot = -1;                       // while running
  int32_t load_slot = -1, save_slot = -1;  // as SequenceRows, in the step that is being formed or run
  std::vector<int32_t> drafts;             // to be verified by the next step; not part of the tokens
  PageTable table;
  std::shared_ptr<TenantAccount> account;
  // From here on nothing that every step looks at.
  int32_t priority = 0;
  std::string tenant;
  std::string cache_salt;
  std::vector<uint64_t> page_keys;  // of full pages of `tokens`, with a prefix cache
  int32_t last_snapshot = 0;        // tokens of the state that it began with or copied last
  int32_t wanted_snapshot = 0;      // tokens after which others could go on, had they a copy; 0: none
  // Prompt tokens that were taken from the cache when it first started; -1 before.
  int32_t num_from_cache = -1;

  int32_t num_tokens() const { return static_cast<int32_t>(tokens.size()); }
  int32_t num_pending() const { return num_tokens() - num_cached; }
  TreePath path() const { return {.salt = cache_salt, .tokens = tokens, .keys = page_keys}; }
  bool is_to_score() const { return num_scored < num_to_score; }
  // Only the token drawn last is missing from the cache.
  bool decodes() const { return num_pending() == 1 && num_tokens() > num_prompt; }

  // The logits that the next `num_rows` rows are wanted for. A scored part that is computed again is not
  // scored twice.
  WantedLogits wanted(int32_t num_rows) const {
    if (num_scored < num_to_score && num_cached >= num_scored) return WantedLogits::kAll;
    if (num_rows > num_pending()) return WantedLogits::kEach;  // drafts behind the token drawn last
    return num_rows == num_pending() ? WantedLogits::kLast : WantedLogits::kNone;
  }
};

// Sequences lie apart in memory, and every step looks at each: those ahead are asked for in time, and a
// little later what lies behind their pointers.
inline constexpr size_t kSequencesAhead = 8, kTokensAhead = 4;
inline void fetch_lines(const Sequence& sequence) {
  constexpr size_t kLine = 64, kLines = 3;  // of what every step looks at
  const char* begin = reinterpret_cast<const char*>(&sequence);
  for (size_t line = 0; line < kLines; ++line) __builtin_prefetch(begin + line * kLine);
}
inline void fetch_sequence_ahead(std::span<Sequence* const> sequences, size_t at) {
  if (at + kSequencesAhead < sequences.size()) fetch_lines(*sequences[at + kSequencesAhead]);
}

constexpr int32_t num_logit_rows(WantedLogits wanted, int32_t num_rows) {
  if (wanted == WantedLogits::kAll || wanted == WantedLogits::kEach) return num_rows;
  return wanted == WantedLogits::kLast ? 1 : 0;
}

}  // namespace lockstep::runtime
