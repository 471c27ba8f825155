#include "lockstep/runtime/open_requests.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

#include "lockstep/base/log.h"

namespace lockstep::runtime {
namespace {

// Sinks return quickly; one that does not is stuck itself.
bool locked_soon(std::unique_lock<std::mutex>& lock) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    if (lock.try_lock()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace

EventSink OpenRequests::add(RequestId id, EventSink sink, uint64_t fingerprint, std::string label) {
  auto open = std::make_shared<Open>();
  open->id = id;
  open->sink = std::move(sink);
  open->fingerprint = fingerprint;
  open->label = std::move(label);
  {
    const std::lock_guard lock(mutex_);
    open_.emplace(id, open);
  }
  return [self = shared_from_this(), open](const Event& event) { self->pass_on(*open, event); };
}

// What a sink throws passes through: the step loop then cancels the request, unless this was its end.
void OpenRequests::pass_on(Open& open, const Event& event) {
  const bool is_final = event.finish != FinishReason::kNotFinished;
  struct AtTheEnd {
    OpenRequests& of;
    const RequestId id;
    bool is_final;
    ~AtTheEnd() {
      if (is_final) of.forget(id);
    }
  } at_the_end{*this, open.id, false};
  const std::lock_guard lock(open.mutex);
  if (open.has_ended) return;
  open.has_ended = is_final;
  open.has_begun = true;
  at_the_end.is_final = is_final;
  if (event.finish == FinishReason::kStop || event.finish == FinishReason::kLength)
    suspects_.clear(open.fingerprint);
  if (event.finish == FinishReason::kError && !open.label.empty())
    log_warning("request {} ({}) failed: {}", open.id, open.label, event.error);
  open.sink(event);
}

void OpenRequests::forget(RequestId id) {
  const std::lock_guard lock(mutex_);
  open_.erase(id);
  if (open_.empty()) emptied_.notify_all();
}

bool OpenRequests::contains(RequestId id) const {
  const std::lock_guard lock(mutex_);
  return open_.contains(id);
}

uint64_t OpenRequests::size() const {
  const std::lock_guard lock(mutex_);
  return open_.size();
}

void OpenRequests::blame(std::span<const RequestId> ids) {
  std::set<uint64_t> fingerprints;  // one failure counts once, however often the same was asked for
  {
    const std::lock_guard lock(mutex_);
    for (const RequestId id : ids)
      if (const auto found = open_.find(id); found != open_.end())
        fingerprints.insert(found->second->fingerprint);
  }
  for (const uint64_t fingerprint : fingerprints) suspects_.blame(fingerprint);
}

uint64_t OpenRequests::end_all(const std::string& error, std::span<const RequestId> running) {
  std::vector<std::shared_ptr<Open>> open;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, entry] : open_) open.push_back(entry);
  }
  uint64_t num_ended = 0;
  for (const auto& entry : open) {
    std::unique_lock lock(entry->mutex, std::defer_lock);
    if (!locked_soon(lock)) {
      log_error("request {} cannot be told of its end: its sink does not return", entry->id);
      forget(entry->id);
      continue;
    }
    if (entry->has_ended) continue;
    entry->has_ended = true;
    ++num_ended;
    const bool has_run =
        entry->has_begun || std::find(running.begin(), running.end(), entry->id) != running.end();
    if (!entry->label.empty()) log_warning("request {} ({}) failed: {}", entry->id, entry->label, error);
    try {
      entry->sink({.id = entry->id,
                   .finish = FinishReason::kError,
                   .error = error,
                   .error_code = has_run ? ErrorCode::kInternal : ErrorCode::kUnavailable});
    } catch (const std::exception& failure) {
      log_error("the sink of request {} threw: {}", entry->id, failure.what());
    }
    forget(entry->id);
  }
  return num_ended;
}

bool OpenRequests::wait_until_empty(std::optional<double> seconds) const {
  std::unique_lock lock(mutex_);
  const auto is_empty = [this] { return open_.empty(); };
  if (seconds) return emptied_.wait_for(lock, std::chrono::duration<double>(*seconds), is_empty);
  emptied_.wait(lock, is_empty);
  return true;
}

}  // namespace lockstep::runtime
