#include "lockstep/runtime/hosts/worker.h"

#include <utility>

#include "lockstep/base/log.h"
#include "lockstep/runtime/hosts/step_codec.h"
#include "lockstep/runtime/hosts/work_messages.h"
#include "lockstep/runtime/loaded_engine.h"
#include "lockstep/runtime/restart_budget.h"

namespace lockstep::runtime {
namespace {

using collectives::ByteReader;
using collectives::ByteWriter;

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLong{3600000};

void say_to_head(collectives::Links& links, const ByteWriter& writer) {
  const auto part = writer.bytes();
  links.send(0, collectives::FrameKind::kWork, {&part, 1});
}

// The part that this process has in its engine, for as many lives as the engine has.
class Worker {
 public:
  Worker(const EngineConfig& config, JoinedEngine joined, RankExecutorParts parts, const Progress& progress)
      : config_(config),
        progress_(progress),
        joined_(std::move(joined)),
        parts_(std::move(parts)),
        restarts_(config.faults) {
    parts_.links = nullptr;  // links end with the life that they tie together; the weights stay mapped
  }

  // Until the head has ended in good order, or nothing helps.
  Status run() {
    for (;;) {
      const Status status = serve_once();
      // What fails before the engine has started fails the start, and without its head it does not come back.
      if (status.ok() || !has_started_ || joined_.links->cause(0) == collectives::Links::Cause::kProcessLost)
        return status;
      if (const Status again = join_once_more(status.error().message); !again) return again;
    }
  }

 private:
  Status serve_once();
  void take(WorkBox::Letter letter, LoadedRanks& ranks, const StepBounds& bounds);
  void note_started(ByteReader& reader);
  void note_what_is_left(WorkBox& box);
  void run_step(ByteReader& reader, LoadedRanks& ranks, const StepBounds& bounds);
  StepBounds bounds() const;
  Status join_once_more(std::string why);

  const EngineConfig& config_;
  const Progress& progress_;
  JoinedEngine joined_;
  RankExecutorParts parts_;
  // As the head says.
  bool has_started_ = false;
  RestartBudget restarts_;
};

StepBounds Worker::bounds() const {
  const SchedulerLimits& limits = joined_.described.limits;
  return {.shape = limits.shape,
          .page_size = limits.page_size,
          .pages_per_replica = limits.pages_per_replica,
          .num_slots = limits.shape.capacity.max_requests + limits.num_snapshots,
          .vocab = joined_.described.planned.model.vocab};
}

Status Worker::serve_once() {
  const std::shared_ptr<collectives::Links> links = joined_.links;
  WorkBox box(*links);
  RankExecutorParts parts = parts_;
  parts.links = links;
  parts.options.pages_per_replica = joined_.described.limits.pages_per_replica;
  parts.options.num_snapshots = joined_.described.limits.num_snapshots;
  auto ranks = make_rank_executor(std::move(parts));
  if (!ranks) {
    note_what_is_left(box);
    links->fail(ranks.error().message);
    return ranks.error();
  }
  try {
    ByteWriter loaded;
    loaded.put(WorkKind::kLoaded);
    say_to_head(*links, loaded);
    for (;;)
      if (auto letter = box.wait_for(kLong)) take(*std::move(letter), **ranks, bounds());
  } catch (const std::exception& failure) {  // Fatal, WrongBytes
    if (links->cause(0) == collectives::Links::Cause::kProcessLeft) return Done{};
    note_what_is_left(box);
    links->fail(failure.what());
    return Error{ErrorCode::kInternal, links->failure(), ""};
  }
}

void Worker::take(WorkBox::Letter letter, LoadedRanks& ranks, const StepBounds& bounds) {
  ByteReader reader(letter.frame.span());
  if (letter.process == 0) {
    const auto kind = reader.get<WorkKind>();
    if (kind == WorkKind::kStarted) return note_started(reader);
    if (kind == WorkKind::kStep) return run_step(reader, ranks, bounds);
  }
  throw collectives::WrongBytes(fmt::format("{} sends no steps", joined_.links->name_of(letter.process)));
}

void Worker::note_started(ByteReader& reader) {
  const auto ages = reader.get_array<int64_t>(static_cast<size_t>(config_.faults.max_restarts));
  reader.expect_end();
  restarts_.take_over(ages, Clock::now());
  has_started_ = true;
}

// What the head said before the failure counts, although it was not read before.
void Worker::note_what_is_left(WorkBox& box) {
  try {
    while (auto letter = box.wait_for(std::chrono::milliseconds(0))) {
      ByteReader reader(letter->frame.span());
      if (letter->process == 0 && reader.get<WorkKind>() == WorkKind::kStarted) note_started(reader);
    }
  } catch (const std::exception&) {  // Fatal: the box is empty; WrongBytes
  }
}

void Worker::run_step(ByteReader& reader, LoadedRanks& ranks, const StepBounds& bounds) {
  collectives::Links& links = *joined_.links;
  const StepInput input = read_step(reader, bounds);
  reader.expect_end();
  ranks.run(input, [&](const LogitRow& row) { send_logits(links, input.plan.step, row); });
  ByteWriter done;
  done.put(WorkKind::kStepDone);
  done.put(input.plan.step);
  done.put(input.plan.hash);
  say_to_head(links, done);
}

// As often as the engine may start again, and whenever the head says that it waits once more.
Status Worker::join_once_more(std::string why) {
  bool is_called = false;
  for (;;) {
    const auto now = Clock::now();
    if (config_.hosts.after_failure == HostsConfig::AfterFailure::kEnd ||
        !(is_called || restarts_.has_any(now)))
      return Error{ErrorCode::kInternal, std::move(why), ""};
    restarts_.take(now);
    log_warning("{}; this process joins again, {} of {} times", why, restarts_.num_taken(now),
                config_.faults.max_restarts);
    const Status status = join_again(joined_, progress_);
    if (status.ok()) return status;
    if (status.error().code != ErrorCode::kAborted)
      return Error{status.error().code, fmt::format("{}; then {}", why, status.error().message), ""};
    is_called = true;
    why = status.error().message;
  }
}

}  // namespace

Status serve_ranks(const EngineConfig& config, const Progress& progress) {
  auto joined = join_engine(config, progress);
  if (!joined) return joined.error();
  auto parts = rank_parts(config, *joined, progress);
  if (!parts) {
    joined->links->fail(parts.error().message);
    return parts.error();
  }
  return Worker(config, *std::move(joined), *std::move(parts), progress).run();
}

}  // namespace lockstep::runtime
