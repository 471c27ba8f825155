#include "lockstep/runtime/executor/rank_executor.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "lockstep/base/log.h"
#include "lockstep/collectives/in_process/world.h"
#include "lockstep/runtime/executor/job_threads.h"
#include "lockstep/runtime/executor/rank.h"

namespace lockstep::runtime {
namespace {

// Says in the log how far ranks have come with reading weights, every few seconds and at the end.
class ReadingReport {
 public:
  explicit ReadingReport(int num_ranks) : num_ranks_(num_ranks) {
    thread_ = std::jthread([this](const std::stop_token& stop) {
      std::mutex mutex;
      std::unique_lock lock(mutex);
      std::condition_variable_any wake;
      while (!wake.wait_for(lock, stop, std::chrono::seconds(3), [] { return false; }) &&
             !stop.stop_requested())
        log_info("reading weights: {}", so_far());
    });
  }
  ~ReadingReport() {
    thread_.request_stop();
    thread_.join();
    log_info("read {}", so_far());
  }

  mutable std::atomic<uint64_t> bytes_read = 0;

 private:
  std::string so_far() const {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    const auto bytes = static_cast<double>(bytes_read.load(std::memory_order_relaxed));
    return fmt::format("{:.1f} MB on {} ranks in {:.2f} s, {:.2f} GB/s", bytes / 1e6, num_ranks_, seconds,
                       bytes / 1e9 / std::max(seconds, 1e-9));
  }

  const int num_ranks_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::jthread thread_;
};

Range ranks_here(const RankExecutorParts& parts) {
  return parts.links == nullptr ? Range{0, parts.plans->grid.num_ranks()}
                                : parts.links->ranks_of(parts.links->own());
}

class RankExecutor final : public LoadedRanks {
 public:
  explicit RankExecutor(RankExecutorParts parts)
      : parts_(std::move(parts)),
        here_(ranks_here(parts_)),
        world_(parts_.plans->grid, {.deadline = parts_.options.deadline, .links = parts_.links}),
        threads_(static_cast<int>(here_.size()), "--tp-size") {
    for (int64_t rank = here_.begin; rank < here_.end; ++rank)
      ranks_.push_back(std::make_unique<Rank>(parts_, static_cast<int>(rank), world_));
  }
  // After a failure a rank's device may still read rows of a rank whose memory would be freed first.
  ~RankExecutor() override {
    for (const auto& rank : ranks_) rank->wait_idle();
  }

  // Every tensor of the file is checked before a rank reads one, so that all that does not fit is listed at
  // once.
  Status load() {
    models::WeightSource whole(*parts_.checkpoint);
    whole.purpose = models::WeightSource::Purpose::kInspect;
    whole.encode_as = parts_.options.quantization;
    std::vector<std::string> left_aside;
    whole.left_aside = &left_aside;
    models::Shards shards;
    shards.drafting = parts_.stages.drafting;
    if (const auto inspected = parts_.description->load(whole, shards); !inspected) return inspected.error();
    for (const std::string& line : left_aside) log_info("{}", line);
    std::vector<Status> loaded(ranks_.size(), Done{});
    {
      const ReadingReport report(static_cast<int>(ranks_.size()));
      run_all([&](int at) {
        loaded[static_cast<size_t>(at)] = ranks_[static_cast<size_t>(at)]->load(report.bytes_read);
      });
    }
    if (std::string failed = failure(); !failed.empty())
      return Error{ErrorCode::kInternal, std::move(failed), ""};
    for (const Status& status : loaded)
      if (!status) return status.error();
    return Done{};
  }

  void run(const StepInput& input, const LogitSink& sink) override { run_beside(input, sink, {}); }

  void run_beside(const StepInput& input, const LogitSink& sink,
                  const std::function<void()>& meanwhile) override {
    if (const std::string failed = failure(); !failed.empty()) throw Fatal(failed);
    const auto begin = std::chrono::steady_clock::now();
    const StepRows rows = flatten(input);
    times_.upload = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    busy_ = threads_.size();
    run_all(
        [&](int at) {
          ranks_[static_cast<size_t>(at)]->run(input, rows, sink);
          --busy_;
        },
        meanwhile);
    if (const std::string failed = failure(); !failed.empty()) throw Fatal(failed);
    times_.sample = 0;
    for (const auto& rank : ranks_) times_.sample = std::max(times_.sample, rank->sample_seconds());
  }

  std::string failure() const override {
    const std::lock_guard lock(mutex_);
    return failure_;
  }

  std::string interrupt(const std::string& why) override {
    std::string told = fmt::format("{}: {}", why, what_ranks_do());
    fail(told);
    return told;
  }

  StepTimes last_times() const override { return times_; }
  std::vector<std::vector<RankSpan>> take_spans() override {
    std::vector<std::vector<RankSpan>> spans;
    if (parts_.options.spans == SpanRecording::kOff) return spans;
    for (const auto& rank : ranks_) spans.push_back(rank->take_spans());
    return spans;
  }
  int busy() const override { return busy_; }

 private:
  // Jobs are numbered from 0, whichever ranks are here.
  void run_all(const JobThreads::Job& job, const std::function<void()>& meanwhile = {}) {
    threads_.run(
        job,
        [&](int at, const std::string& what) {
          fail(fmt::format("rank {} failed: {}", here_.begin + at, what));
        },
        meanwhile);
  }

  // The first reason is kept. It wakes the others.
  void fail(const std::string& reason) {
    {
      const std::lock_guard lock(mutex_);
      if (failure_.empty()) failure_ = reason;
    }
    world_.fail(reason);
  }

  // Who waits for whom and, of those who do not wait, what they do.
  std::string what_ranks_do() const {
    constexpr size_t kMostNamed = 8;
    const collectives::InProcessWorld::Waits waits = world_.waits();
    std::vector<std::string> all = waits.texts;
    for (size_t at = 0; at < ranks_.size(); ++at)
      if (const auto rank = static_cast<int>(here_.begin) + static_cast<int>(at); !waits.ranks.contains(rank))
        all.push_back(fmt::format("rank {} {}", rank, ranks_[at]->doing()));
    const size_t left_out = all.size() - std::min(all.size(), kMostNamed);
    all.resize(all.size() - left_out);
    std::string text = fmt::format("{}", fmt::join(all, "; "));
    if (left_out > 0) text += fmt::format("; and {} more", left_out);
    return text;
  }

  const RankExecutorParts parts_;
  const Range here_;
  collectives::InProcessWorld world_;
  mutable std::mutex mutex_;
  std::string failure_;  // guarded by mutex_
  StepTimes times_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::atomic<int> busy_{0};
  JobThreads threads_;  // last: they end before what they use
};

}  // namespace

Result<std::unique_ptr<LoadedRanks>> make_rank_executor(RankExecutorParts parts) {
  try {
    auto executor = std::make_unique<RankExecutor>(std::move(parts));
    if (const Status status = executor->load(); !status) return status.error();
    return std::unique_ptr<LoadedRanks>(std::move(executor));
  } catch (const Fatal& failure) {  // threads that could not be started, a device that was lost
    return Error{ErrorCode::kUnavailable, failure.what(), ""};
  }
}

StepInput warm_up_step(const planning::StepShape& shape, const std::vector<WarmUpSequence>& sequences,
                       const WarmUpPages& pages, planning::Forward forward) {
  StepInput input;
  std::vector<planning::ReplicaCounts> counts;
  for (int32_t replica = 0; replica < shape.num_replicas; ++replica) {
    std::vector<SequenceRows>& rows = input.replicas.emplace_back();
    planning::ReplicaCounts& count = counts.emplace_back();
    int32_t next_page = 0;
    for (const WarmUpSequence& sequence : sequences) {
      SequenceRows& own = rows.emplace_back(SequenceRows{.kind = sequence.kind,
                                                         .wanted = WantedLogits::kLast,
                                                         .context = sequence.context,
                                                         .slot = count.num_requests});
      own.token_ids.assign(static_cast<size_t>(sequence.rows), 0);
      const int32_t needed = (sequence.context + pages.page_size - 1) / pages.page_size;
      if (next_page + needed > pages.per_replica) next_page = 0;  // nobody reads what they share
      for (int32_t page = 0; page < needed; ++page) own.page_table.push_back(next_page++);
      ++count.num_requests;
      int32_t& rows_so_far = planning::num_rows(count, forward);
      rows_so_far += sequence.rows;
      if (sequence.kind == RowKind::kPrompt && forward == planning::Forward::kTarget)
        count.prompt_rows.push_back(sequence.rows);
      count.logit_rows.push_back(rows_so_far - 1);
    }
    if (forward == planning::Forward::kDraft)  // all of the first row that was kept
      input.kept_rows.emplace_back(static_cast<size_t>(count.num_draft_rows), 0);
  }
  input.plan = planning::make_step_plan(0, shape, std::move(counts), forward);
  return input;
}

}  // namespace lockstep::runtime
