#include "lockstep/runtime/hosts/head_executor.h"

#include <fmt/ranges.h>

#include <exception>
#include <utility>

#include "lockstep/base/log.h"
#include "lockstep/runtime/hosts/step_codec.h"

namespace lockstep::runtime {
namespace {

using collectives::ByteReader;
using collectives::WrongBytes;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kLook{100};
constexpr milliseconds kTell{5000};

}  // namespace

Status HeadExecutor::take_ranks(std::unique_ptr<LoadedRanks> ranks) {
  ranks_ = std::move(ranks);
  await_all();
  auto next_line = Clock::now() + kTell;
  try {
    while (is_awaiting()) {
      if (Clock::now() >= next_line) {
        log_info("waiting for the weights of {}", names_of_awaited());
        next_line = Clock::now() + kTell;
      }
      const auto letter = box_.wait_for(kLook);
      if (!letter) continue;
      ByteReader reader(letter->frame.span());
      if (reader.get<WorkKind>() != WorkKind::kLoaded)
        throw WrongBytes(fmt::format("{} said something else", parts_.links->name_of(letter->process)));
      was_awaited(letter->process);
    }
  } catch (const std::exception& failure) {  // Fatal, WrongBytes
    return Error{ErrorCode::kUnavailable, failure.what(), ""};
  }
  return Done{};
}

Status HeadExecutor::tell_started(const RestartBudget& restarts) {
  collectives::ByteWriter writer;
  writer.put(WorkKind::kStarted);
  writer.put_array(std::span<const int64_t>(restarts.ages(Clock::now())));
  const auto part = writer.bytes();
  try {
    for (int process = 1; process < parts_.links->num_processes(); ++process)
      parts_.links->send(process, collectives::FrameKind::kWork, {&part, 1});
  } catch (const Fatal& failure) {
    return Error{ErrorCode::kUnavailable, failure.what(), ""};
  }
  return Done{};
}

void HeadExecutor::run_beside(const StepInput& input, const LogitSink& sink,
                              const std::function<void()>& meanwhile) {
  send(input);
  ranks_->run_beside(input, sink, [&] {
    std::exception_ptr thrown;  // comes through once the step has run in all processes
    try {
      if (meanwhile) meanwhile();
    } catch (...) {
      thrown = std::current_exception();
    }
    take_from_others(input, sink);
    if (thrown) std::rethrow_exception(thrown);
  });
}

void HeadExecutor::send(const StepInput& input) {
  collectives::ByteWriter writer;
  writer.put(WorkKind::kStep);
  write_step(input, writer);
  const auto part = writer.bytes();
  await_all();
  awaited_rows_.clear();
  for (int process = 1; process < parts_.links->num_processes(); ++process)
    parts_.links->send(process, collectives::FrameKind::kWork, {&part, 1});
  for (int32_t replica = 0; replica < parts_.shape.num_replicas; ++replica)
    for (const int32_t row : input.plan.counts[static_cast<size_t>(replica)].logit_rows) {
      const int home = planning::home_of(input.plan, parts_.shape, replica, row).home;
      if (parts_.links->process_of(home) != parts_.links->own())
        awaited_rows_.insert(replica * parts_.shape.capacity.max_rows + row);
    }
}

void HeadExecutor::await_all() {
  const std::lock_guard lock(mutex_);
  for (int process = 1; process < parts_.links->num_processes(); ++process) awaited_.insert(process);
}

bool HeadExecutor::is_awaiting() const {
  const std::lock_guard lock(mutex_);
  return !awaited_.empty();
}

bool HeadExecutor::was_awaited(int process) {
  const std::lock_guard lock(mutex_);
  return awaited_.erase(process) > 0;
}

std::string HeadExecutor::failure() const {
  const std::string of_links = parts_.links->failure();
  return of_links.empty() ? ranks_->failure() : of_links;
}

// The ranks of the others fail when they next wait for a rank of this process.
std::string HeadExecutor::interrupt(const std::string& why) {
  const std::string names = names_of_awaited();
  return ranks_->interrupt(names.empty() ? why : fmt::format("{}; not done are {}", why, names));
}

std::string HeadExecutor::names_of_awaited() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const int process : awaited_) names.push_back(parts_.links->name_of(process));
  return fmt::format("{}", fmt::join(names, ", "));
}

// While ranks of this process run they keep their own deadline; after that this is the only one who waits.
void HeadExecutor::take_from_others(const StepInput& input, const LogitSink& sink) {
  try {
    auto last_sign = Clock::now();
    while (is_awaiting()) {
      if (auto letter = box_.wait_for(kLook)) {
        take(*std::move(letter), input, sink);
        last_sign = Clock::now();
      } else if (ranks_->busy() > 0) {
        last_sign = Clock::now();
      } else if (Clock::now() - last_sign > parts_.deadline) {
        throw Fatal(
            fmt::format("no sign for {} ms in engine step {} of {}; --collective-timeout sets how long "
                        "ranks wait",
                        parts_.deadline.count(), input.plan.step, names_of_awaited()));
      }
    }
    if (!awaited_rows_.empty())
      throw Fatal(fmt::format("{} rows of engine step {} came without logits", awaited_rows_.size(),
                              input.plan.step));
  } catch (const std::exception& failure) {
    parts_.links->fail(failure.what());  // ends the ranks of this process too
    throw Fatal(parts_.links->failure());
  }
}

void HeadExecutor::take(WorkBox::Letter letter, const StepInput& input, const LogitSink& sink) {
  const std::string from = parts_.links->name_of(letter.process);
  ByteReader reader(letter.frame.span());
  switch (reader.get<WorkKind>()) {
    case WorkKind::kLogits: {
      const ReceivedLogits received = read_logits(reader, parts_.vocab);
      const LogitRow& row = received.row;
      const int place = row.replica * parts_.shape.capacity.max_rows + row.row;
      if (received.step != input.plan.step || row.replica < 0 || row.row < 0 ||
          awaited_rows_.erase(place) == 0)
        throw WrongBytes(fmt::format("{} sent row {} of replica {} of step {} in step {}", from, row.row,
                                     row.replica, received.step, input.plan.step));
      return sink(row);
    }
    case WorkKind::kStepDone: {
      const auto step = reader.get<uint64_t>(), hash = reader.get<uint64_t>();
      if (step != input.plan.step || hash != input.plan.hash || !was_awaited(letter.process))
        throw WrongBytes(fmt::format("{} ran step {} of plan {:016x}, here it is {} of {:016x}", from, step,
                                     hash, input.plan.step, input.plan.hash));
      return;
    }
    case WorkKind::kLoaded:
    case WorkKind::kStep:
    case WorkKind::kStarted:
      break;
  }
  throw WrongBytes(fmt::format("{} sent a message that the head does not take", from));
}

}  // namespace lockstep::runtime
