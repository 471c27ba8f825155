#include "lockstep/runtime/hosts/worker.h"

#include <deque>

#include "lockstep/base/log.h"
#include "lockstep/runtime/hosts/step_codec.h"
#include "lockstep/runtime/hosts/work_messages.h"
#include "lockstep/runtime/loaded_engine.h"

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

// Its rows are a client's, or there are none, as when somebody asks for its health: warm-up has rows of
// nobody.
bool is_of_a_server(const StepInput& input) {
  bool has_rows = false, has_requests = false;
  for (const std::vector<SequenceRows>& sequences : input.replicas)
    for (const SequenceRows& rows : sequences) has_rows = true, has_requests = has_requests || rows.id != 0;
  return has_requests || !has_rows;
}

void run_step(collectives::Links& links, LoadedRanks& ranks, const StepBounds& bounds, WorkBox::Letter letter,
              bool& has_served) {
  ByteReader reader(letter.frame.span());
  if (letter.process != 0 || reader.get<WorkKind>() != WorkKind::kStep)
    throw collectives::WrongBytes(fmt::format("{} sends no steps", links.name_of(letter.process)));
  const StepInput input = read_step(reader, bounds);
  reader.expect_end();
  has_served = has_served || is_of_a_server(input);
  ranks.run(input, [&](const LogitRow& row) { send_logits(links, input.plan.step, row); });
  ByteWriter done;
  done.put(WorkKind::kStepDone);
  done.put(input.plan.step);
  done.put(input.plan.hash);
  say_to_head(links, done);
}

// Until the head has ended in good order, or something failed.
Status serve_once(const JoinedEngine& joined, RankExecutorParts parts, bool& has_served) {
  const std::shared_ptr<collectives::Links> links = joined.links;
  WorkBox box(*links);
  parts.links = links;
  parts.options.pages_per_replica = joined.described.limits.pages_per_replica;
  parts.options.num_snapshots = joined.described.limits.num_snapshots;
  auto ranks = make_rank_executor(std::move(parts));
  if (!ranks) {
    links->fail(ranks.error().message);
    return ranks.error();
  }
  const StepBounds bounds{.shape = joined.described.limits.shape,
                          .page_size = joined.described.limits.page_size,
                          .pages_per_replica = joined.described.limits.pages_per_replica,
                          .num_slots = joined.described.limits.shape.capacity.max_requests +
                                       joined.described.limits.num_snapshots,
                          .vocab = joined.described.planned.model.vocab};
  try {
    ByteWriter loaded;
    loaded.put(WorkKind::kLoaded);
    say_to_head(*links, loaded);
    for (;;)
      if (auto letter = box.wait_for(kLong))
        run_step(*links, **ranks, bounds, *std::move(letter), has_served);
  } catch (const std::exception& failure) {  // Fatal, WrongBytes
    if (links->cause(0) == collectives::Links::Cause::kProcessLeft) return Done{};
    links->fail(failure.what());
    return Error{ErrorCode::kInternal, links->failure(), ""};
  }
}

// How often the process has joined its engine again, which is as often as the engine may start again.
class Reunions {
 public:
  explicit Reunions(const EngineConfig& config) : config_(config) {}

  // Again, too, when the head has waited for others in vain: it will wait once more.
  Status join(JoinedEngine& joined, std::string why, const Progress& progress) {
    for (;;) {
      if (!may_join()) return Error{ErrorCode::kInternal, std::move(why), ""};
      log_warning("{}; this process joins again, {} of {} times", why, times_.size(),
                  config_.faults.max_restarts);
      const Status status = join_again(joined, progress);
      if (status.ok()) return status;
      const bool is_interrupted =
          config_.hosts.interrupted != nullptr && config_.hosts.interrupted->load() != 0;
      const bool is_head_there = status.error().field == "--hosts" && !is_interrupted;
      if (!is_head_there)
        return Error{status.error().code, fmt::format("{}; then {}", why, status.error().message), ""};
      why = status.error().message;
    }
  }

 private:
  bool may_join() {
    const auto now = Clock::now();
    while (!times_.empty() && now - times_.front() > config_.faults.restart_window) times_.pop_front();
    if (config_.hosts.after_failure == HostsConfig::AfterFailure::kEnd ||
        std::ssize(times_) >= config_.faults.max_restarts)
      return false;
    times_.push_back(now);
    return true;
  }

  const EngineConfig& config_;
  std::deque<Clock::time_point> times_;  // within the window
};

}  // namespace

Status serve_ranks(const EngineConfig& config, const Progress& progress) {
  auto joined = join_engine(config, progress);
  if (!joined) return joined.error();
  auto parts = rank_parts(config, *joined, progress);
  if (!parts) {
    joined->links->fail(parts.error().message);
    return parts.error();
  }
  parts->links = nullptr;  // links end with the engine that they tie together; the weights stay mapped
  Reunions reunions(config);
  bool has_served = false;
  for (;;) {
    const Status status = serve_once(*joined, *parts, has_served);
    // What fails before it has served fails the start, and without its head an engine does not come back.
    if (status.ok() || !has_served || joined->links->cause(0) == collectives::Links::Cause::kProcessLost)
      return status;
    if (const Status again = reunions.join(*joined, status.error().message, progress); !again) return again;
  }
}

}  // namespace lockstep::runtime
