#pragma once
// An executor without a model: its logits are a function of the token history alone, which it reads back from
// a cache that is addressed by the page tables. A page that is written to while others use it, a context that
// skips a row, a beginning that is another's or a slot that is given twice therefore changes the text, and
// most such faults are reported where they happen.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/runtime/scheduler/limits.h"
#include "lockstep/runtime/step.h"
#include "tests/runtime/scripted_logits.h"

namespace lockstep::runtime {

// kOneEach: each home rank calls the sink from a thread of its own.
enum class RankThreads : uint8_t { kNone, kOneEach };

class ScriptedExecutor final : public Executor {
 public:
  ScriptedExecutor(const SchedulerLimits& limits, int vocab, RankThreads threads = RankThreads::kNone)
      : limits_(limits), vocab_(vocab), threads_(threads) {
    for (int32_t i = 0; i < limits.shape.num_replicas; ++i) {
      Cache& cache = caches_.emplace_back();
      cache.tokens.assign(
          static_cast<size_t>(limits.pages_per_replica) * static_cast<size_t>(limits.page_size), -1);
      cache.followed = cache.tokens;
      cache.states.resize(static_cast<size_t>(limits.shape.capacity.max_requests + limits.num_snapshots));
    }
  }

  // Called before a step; may throw, sleep or look at it.
  std::function<void(const StepInput&)> before_step;
  // A fault for the wanted row of a sequence at a position; empty for none.
  std::function<std::string(RequestId, int32_t position)> fault_of;
  // Whether sequences may step back behind drafts that were rejected.
  enum class Drafts : uint8_t { kNone, kMade } drafts = Drafts::kNone;
  // Changes logits before they are handed out.
  std::function<void(RequestId, std::span<float>)> spoil;

  void run(const StepInput& input, const LogitSink& sink) override {
    if (before_step) before_step(input);
    check_step(input);
    std::vector<std::vector<LogitRow>> rows_of_home(input.plan.rows_per_home.size());
    std::vector<std::vector<float>> storage;  // what the rows' spans point into
    const bool drafting = input.plan.forward == planning::Forward::kDraft;
    const auto run_replica = drafting ? &ScriptedExecutor::draft : &ScriptedExecutor::forward;
    for (int32_t replica = 0; replica < limits_.shape.num_replicas; ++replica)
      (this->*run_replica)(input, replica, rows_of_home, storage);
    hand_out(rows_of_home, sink);
  }

  // Seen so far.
  int64_t num_steps = 0, num_mixed_steps = 0, num_idle_replicas = 0;
  int64_t num_loads = 0, num_saves = 0, num_computed_rows = 0;
  int32_t most_prompt_rows = 0, most_running = 0;

 private:
  struct Cache {
    std::vector<int32_t> tokens;    // [pages * page_size]
    std::vector<History> states;    // [slots]
    std::vector<int32_t> followed;  // [pages * page_size] what drafts cache: the token after each
    std::vector<std::pair<RequestId, int32_t>>
        kept;                           // of the rows of the last forward: whose, and which token
    std::map<RequestId, int32_t> seen;  // the context that each sequence had after its last step here
  };

  void check_step(const StepInput& input) {
    LOCKSTEP_CHECK_EQ(static_cast<int64_t>(input.plan.step), num_steps);
    LOCKSTEP_CHECK_EQ(input.replicas.size(), caches_.size());
    ++num_steps;
    int32_t num_sequences = 0, num_rows = 0;
    for (size_t replica = 0; replica < input.replicas.size(); ++replica) {
      if (input.plan.forward == planning::Forward::kTarget)
        check_counts(input.replicas[replica], input.plan.counts[replica]);
      num_sequences += static_cast<int32_t>(input.replicas[replica].size());
      num_rows += planning::num_rows(input.plan.counts[replica], input.plan.forward);
      num_idle_replicas += input.replicas[replica].empty() ? 1 : 0;
    }
    LOCKSTEP_CHECK(num_rows > 0, "step {} has {} rows", input.plan.step, num_rows);
    LOCKSTEP_CHECK_LE(num_sequences, limits_.max_running_requests);
    most_running = std::max(most_running, num_sequences);
  }

  void check_counts(const std::vector<SequenceRows>& sequences, const planning::ReplicaCounts& counts) {
    int32_t num_rows = 0, num_prompt_rows = 0, num_decode_rows = 0;
    std::vector<int32_t> logit_rows;
    std::set<int32_t> slots;
    std::multiset<int32_t> pages;
    for (const SequenceRows& rows : sequences) pages.insert(rows.page_table.begin(), rows.page_table.end());
    for (const SequenceRows& rows : sequences) {
      const auto n = static_cast<int32_t>(rows.token_ids.size());
      LOCKSTEP_CHECK_LE(1, n);
      if (rows.kind == RowKind::kDecode && drafts == Drafts::kNone) LOCKSTEP_CHECK_EQ(n, 1);
      (rows.kind == RowKind::kDecode ? num_decode_rows : num_prompt_rows) += n;
      if (rows.kind == RowKind::kDecode)
        LOCKSTEP_CHECK(rows.wanted == (n == 1 ? WantedLogits::kLast : WantedLogits::kEach), "decode of {}",
                       rows.id);
      const int32_t unwanted = rows.wanted == WantedLogits::kEach || rows.wanted == WantedLogits::kAll ? 0
                               : rows.wanted == WantedLogits::kLast                                    ? n - 1
                                                                                                       : n;
      for (int32_t i = unwanted; i < n; ++i) logit_rows.push_back(num_rows + i);
      num_rows += n;
      LOCKSTEP_CHECK_LE(0, rows.slot);
      LOCKSTEP_CHECK_LT(rows.slot, limits_.shape.capacity.max_requests);
      LOCKSTEP_CHECK(slots.insert(rows.slot).second, "slot {} twice", rows.slot);
      LOCKSTEP_CHECK_EQ(static_cast<int64_t>(rows.page_table.size()),
                        (int64_t{rows.context} + limits_.page_size - 1) / limits_.page_size);
      for (int32_t i = (rows.context - n) / limits_.page_size; i < std::ssize(rows.page_table); ++i) {
        const int32_t page = rows.page_table[static_cast<size_t>(i)];  // that rows are written to
        LOCKSTEP_CHECK(pages.count(page) == 1, "page {} in {} places", page, pages.count(page));
      }
    }
    LOCKSTEP_CHECK_EQ(counts.num_requests, static_cast<int32_t>(sequences.size()));
    LOCKSTEP_CHECK_EQ(counts.num_target_rows, num_rows);
    LOCKSTEP_CHECK(counts.logit_rows == logit_rows, "{} rows of logits", logit_rows.size());
    LOCKSTEP_CHECK_LE(num_prompt_rows, limits_.chunked_prefill_size);
    LOCKSTEP_CHECK_LE(num_rows, limits_.shape.capacity.max_rows);
    LOCKSTEP_CHECK_LE(static_cast<int32_t>(logit_rows.size()), limits_.shape.capacity.max_logit_rows);
    most_prompt_rows = std::max(most_prompt_rows, num_prompt_rows);
    num_mixed_steps += num_prompt_rows > 0 && num_decode_rows > 0 ? 1 : 0;
  }

  void forward(const StepInput& input, int32_t replica, std::vector<std::vector<LogitRow>>& rows_of_home,
               std::vector<std::vector<float>>& storage) {
    Cache& cache = caches_[static_cast<size_t>(replica)];
    int32_t row = 0;
    cache.kept.clear();
    copy_slots(cache, input.replicas[static_cast<size_t>(replica)], Copies::kBefore);
    for (const SequenceRows& rows : input.replicas[static_cast<size_t>(replica)]) {
      const auto n = static_cast<int32_t>(rows.token_ids.size());
      const int32_t start = rows.context - n;
      num_computed_rows += n;
      const bool may_start_here = limits_.prefix_cache == PrefixCache::kOn && start % limits_.page_size == 0;
      const int32_t seen = cache.seen[rows.id];
      // Behind drafts that were rejected it goes on from the last token that was accepted.
      const bool steps_back = drafts == Drafts::kMade && start <= seen;
      if (start != 0 && !may_start_here && !steps_back) LOCKSTEP_CHECK_EQ(start, seen);
      cache.seen[rows.id] = rows.context;
      History& state = cache.states[static_cast<size_t>(rows.slot)];
      if (start == 0) state = History();
      // Without anything that is kept once a sequence, the pages are all there is.
      if (limits_.sequence_state == SequenceState::kNone || (drafts == Drafts::kMade && start < seen))
        state = read_back(cache, rows, start);
      LOCKSTEP_CHECK_EQ(state.num_tokens(), start);
      LOCKSTEP_CHECK_EQ(state.value(), read_back(cache, rows, start).value());
      for (int32_t i = 0; i < n; ++i, ++row) {
        cache.tokens[place(rows, start + i)] = rows.token_ids[static_cast<size_t>(i)];
        cache.kept.emplace_back(rows.id, start + i);
        state.add(rows.token_ids[static_cast<size_t>(i)]);
        if (rows.wanted == WantedLogits::kNone || (rows.wanted == WantedLogits::kLast && i + 1 < n)) continue;
        std::vector<float>& logits = storage.emplace_back(scripted_logits(state, vocab_));
        if (spoil) spoil(rows.id, logits);
        const int32_t home = planning::home_of(input.plan, limits_.shape, replica, row).home;
        rows_of_home[static_cast<size_t>(home)].push_back(
            {replica, row, logits, fault_of ? fault_of(rows.id, start + i) : std::string()});
      }
    }
    copy_slots(cache, input.replicas[static_cast<size_t>(replica)], Copies::kAfter);
  }

  enum class Copies : uint8_t { kBefore, kAfter };
  void copy_slots(Cache& cache, const std::vector<SequenceRows>& sequences, Copies copies) {
    for (const SequenceRows& rows : sequences) {
      const auto own = static_cast<size_t>(rows.slot);
      const int32_t other = copies == Copies::kBefore ? rows.load_slot : rows.save_slot;
      if (other < 0) continue;
      LOCKSTEP_CHECK_GE(other, limits_.shape.capacity.max_requests);
      History& snapshot = cache.states.at(static_cast<size_t>(other));
      (copies == Copies::kBefore ? cache.states[own] : snapshot) =
          copies == Copies::kBefore ? snapshot : cache.states[own];
      ++(copies == Copies::kBefore ? num_loads : num_saves);
    }
  }

  // What a module that drafts would do: it caches the token that followed each, takes up what the row before
  // kept, and says what the model will say, or something else.
  void draft(const StepInput& input, int32_t replica, std::vector<std::vector<LogitRow>>& rows_of_home,
             std::vector<std::vector<float>>& storage) {
    Cache& cache = caches_[static_cast<size_t>(replica)];
    const planning::ReplicaCounts& counts = input.plan.counts[static_cast<size_t>(replica)];
    const std::vector<int32_t>& follows = input.kept_rows[static_cast<size_t>(replica)];
    LOCKSTEP_CHECK_EQ(static_cast<int32_t>(follows.size()), counts.num_draft_rows);
    std::vector<std::pair<RequestId, int32_t>> kept;
    for (const SequenceRows& rows : input.replicas[static_cast<size_t>(replica)]) {
      const auto n = static_cast<int32_t>(rows.token_ids.size());
      for (int32_t token = rows.context - n; token < rows.context; ++token) {
        const auto row = static_cast<int32_t>(kept.size());
        const auto [whose, which] = cache.kept.at(static_cast<size_t>(follows[static_cast<size_t>(row)]));
        LOCKSTEP_CHECK_EQ(whose, rows.id);
        // The first forward takes up the model's own rows; each further one the row before.
        LOCKSTEP_CHECK(which == token || (n == 1 && which == token - 1), "token {} of {} follows {}", token,
                       rows.id, which);
        cache.followed[place(rows, token)] = rows.token_ids[static_cast<size_t>(token - rows.context + n)];
        kept.emplace_back(rows.id, token);
        if (!std::binary_search(counts.logit_rows.begin(), counts.logit_rows.end(), row)) continue;
        History history = history_of({cache.tokens.data() + place(rows, 0), 1});
        for (int32_t earlier = 0; earlier <= token; ++earlier)
          history.add(cache.followed[place(rows, earlier)]);
        std::vector<float>& logits = storage.emplace_back(scripted_logits(history, vocab_));
        if (history.value() % 3 == 0) std::reverse(logits.begin(), logits.end());
        const int32_t home = planning::home_of(input.plan, limits_.shape, replica, row).home;
        rows_of_home[static_cast<size_t>(home)].push_back({replica, row, logits, {}});
      }
    }
    LOCKSTEP_CHECK_EQ(static_cast<int32_t>(kept.size()), counts.num_draft_rows);
    cache.kept = std::move(kept);
  }

  size_t place(const SequenceRows& rows, int32_t token) const {
    const int32_t page = rows.page_table[static_cast<size_t>(token / limits_.page_size)];
    return static_cast<size_t>(page) * static_cast<size_t>(limits_.page_size) +
           static_cast<size_t>(token % limits_.page_size);
  }

  History read_back(const Cache& cache, const SequenceRows& rows, int32_t num_tokens) const {
    History history;
    for (int32_t token = 0; token < num_tokens; ++token) history.add(cache.tokens[place(rows, token)]);
    return history;
  }

  void hand_out(const std::vector<std::vector<LogitRow>>& rows_of_home, const LogitSink& sink) const {
    const auto hand_out_home = [&sink](const std::vector<LogitRow>& rows) {
      for (const LogitRow& row : rows) sink(row);
    };
    std::vector<std::thread> ranks;
    for (const std::vector<LogitRow>& rows : rows_of_home) {
      if (threads_ == RankThreads::kOneEach && !rows.empty())
        ranks.emplace_back([&] { hand_out_home(rows); });
      else
        hand_out_home(rows);
    }
    for (std::thread& rank : ranks) rank.join();
  }

  SchedulerLimits limits_;
  int vocab_;
  RankThreads threads_;
  std::vector<Cache> caches_;
};

}  // namespace lockstep::runtime
