#include "lockstep/runtime/executor/rank_executor.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <system_error>
#include <thread>

#include "lockstep/base/log.h"
#include "lockstep/collectives/in_process/world.h"
#include "lockstep/runtime/executor/rank.h"

namespace lockstep::runtime {
namespace {

// Threads that all run the same job once, over and over.
class RankThreads {
 public:
  using Job = std::function<void(int rank)>;

  explicit RankThreads(int num_ranks) : errors_(static_cast<size_t>(num_ranks)) {
    try {
      for (int rank = 0; rank < num_ranks; ++rank) threads_.emplace_back([this, rank] { loop(rank); });
    } catch (const std::system_error& failure) {
      stop();
      throw Fatal(
          fmt::format("only {} of {} rank threads could be started ({}): lower --tp-size or raise the limit",
                      threads_.size(), num_ranks, failure.what()));
    }
  }
  ~RankThreads() { stop(); }

  // Runs the job on every rank and returns what each threw, empty where nothing. on_error is called at once,
  // on the thread that threw, so that the others do not wait for it.
  std::vector<std::string> run(const Job& job, const std::function<void(int, const std::string&)>& on_error) {
    std::unique_lock lock(mutex_);
    job_ = &job;
    on_error_ = &on_error;
    std::fill(errors_.begin(), errors_.end(), "");
    num_running_ = static_cast<int>(threads_.size());
    ++generation_;
    wake_.notify_all();
    done_.wait(lock, [this] { return num_running_ == 0; });
    return errors_;
  }

 private:
  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
  }

  void loop(int rank) {
    uint64_t seen = 0;
    for (;;) {
      const Job* job = nullptr;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stopping_ || generation_ != seen; });
        if (stopping_) return;
        seen = generation_;
        job = job_;
      }
      const std::string error = run_one(*job, rank);
      const std::lock_guard lock(mutex_);
      errors_[static_cast<size_t>(rank)] = error;
      if (--num_running_ == 0) done_.notify_one();
    }
  }

  // The engine's threads are where Fatal is caught.
  std::string run_one(const Job& job, int rank) {
    try {
      job(rank);
      return "";
    } catch (const std::exception& failure) {
      (*on_error_)(rank, failure.what());
      return failure.what();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  const Job* job_ = nullptr;
  const std::function<void(int, const std::string&)>* on_error_ = nullptr;
  std::vector<std::string> errors_;
  uint64_t generation_ = 0;
  int num_running_ = 0;
  bool stopping_ = false;
  std::vector<std::jthread> threads_;
};

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

class RankExecutor final : public Executor {
 public:
  explicit RankExecutor(RankExecutorParts parts)
      : parts_(std::move(parts)),
        world_(parts_.plans->grid, {.deadline = parts_.options.deadline}),
        threads_(parts_.plans->grid.num_ranks()) {
    for (int rank = 0; rank < parts_.plans->grid.num_ranks(); ++rank)
      ranks_.push_back(std::make_unique<Rank>(parts_, rank, world_));
  }

  // Every tensor of the file is checked before a rank reads one, so that all that does not fit is listed at
  // once.
  Status load() {
    models::WeightSource whole(*parts_.checkpoint);
    whole.purpose = models::WeightSource::Purpose::kInspect;
    whole.encode_as = parts_.options.quantization;
    std::vector<std::string> left_aside;
    whole.left_aside = &left_aside;
    if (const auto inspected = parts_.description->load(whole, {}); !inspected) return inspected.error();
    for (const std::string& line : left_aside) log_info("{}", line);
    std::vector<Status> loaded(ranks_.size(), Done{});
    {
      const ReadingReport report(static_cast<int>(ranks_.size()));
      run_all([&](int rank) {
        loaded[static_cast<size_t>(rank)] = ranks_[static_cast<size_t>(rank)]->load(report.bytes_read);
      });
    }
    if (!failure_.empty()) return Error{ErrorCode::kInternal, failure_, ""};
    for (const Status& status : loaded)
      if (!status) return status.error();
    return Done{};
  }

  void run(const StepInput& input, const LogitSink& sink) override {
    if (!failure_.empty()) throw Fatal(failure_);
    const StepRows rows = flatten(input);
    run_all([&](int rank) { ranks_[static_cast<size_t>(rank)]->run(input, rows, sink); });
    if (!failure_.empty()) throw Fatal(failure_);
  }

 private:
  void run_all(const RankThreads::Job& job) {
    std::mutex first;
    std::string reason;
    threads_.run(job, [&](int rank, const std::string& what) {
      const std::lock_guard lock(first);
      if (reason.empty()) reason = fmt::format("rank {} failed: {}", rank, what);
      world_.fail(reason);  // wakes the others; the first reason is kept
    });
    if (!reason.empty()) failure_ = reason;
  }

  const RankExecutorParts parts_;
  collectives::InProcessWorld world_;
  std::string failure_;
  std::vector<std::unique_ptr<Rank>> ranks_;
  RankThreads threads_;  // last: they end before what they use
};

}  // namespace

Result<std::unique_ptr<Executor>> make_rank_executor(RankExecutorParts parts) {
  auto executor = std::make_unique<RankExecutor>(std::move(parts));
  if (const Status status = executor->load(); !status) return status.error();
  return std::unique_ptr<Executor>(std::move(executor));
}

StepInput warm_up_step(const planning::StepShape& shape, int32_t rows, int page_size) {
  StepInput input;
  std::vector<planning::ReplicaCounts> counts;
  for (int32_t replica = 0; replica < shape.num_replicas; ++replica) {
    SequenceRows sequence{.kind = RowKind::kPrompt, .wanted = WantedLogits::kLast, .context = rows};
    sequence.token_ids.assign(static_cast<size_t>(rows), 0);
    for (int32_t page = 0; page * page_size < rows; ++page) sequence.page_table.push_back(page);
    input.replicas.push_back({std::move(sequence)});
    counts.push_back({.num_requests = 1, .num_target_rows = rows, .logit_rows = {rows - 1}});
  }
  input.plan = planning::make_step_plan(0, shape, std::move(counts));
  return input;
}

}  // namespace lockstep::runtime
