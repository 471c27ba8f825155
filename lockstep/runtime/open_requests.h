#pragma once
// The requests that were accepted and have not ended, and the one gate through which their events go: whoever
// ends a request first, the engine's thread or its supervisor, the client gets one final event and nothing
// after it. Any thread. Private to the engine loop.
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>

#include "lockstep/runtime/engine.h"
#include "lockstep/runtime/suspects.h"

namespace lockstep::runtime {

class OpenRequests : public std::enable_shared_from_this<OpenRequests> {
 public:
  explicit OpenRequests(int max_request_failures) : suspects_(max_request_failures) {}

  // The sink for the engine's thread: passes events on while the request is open. `label`: for the log.
  EventSink add(RequestId id, EventSink sink, uint64_t fingerprint, std::string label = {});
  bool contains(RequestId id) const;
  uint64_t size() const;

  Suspects& suspects() { return suspects_; }
  // Those of these requests that are open were running when the engine failed.
  void blame(std::span<const RequestId> ids);

  // Ends all that are open with kError, on the caller's thread; returns how many. Of those that were not
  // `running` and that nothing has come of the code is kUnavailable. A sink that another thread
  // is in and does not leave within a moment loses its request without an event.
  uint64_t end_all(const std::string& error, std::span<const RequestId> running);

  // Waits until none is open; at most so long, if that is said. True when none is.
  bool wait_until_empty(std::optional<double> seconds) const;

 private:
  struct Open {
    RequestId id = 0;
    EventSink sink;
    uint64_t fingerprint = 0;
    std::string label;
    std::mutex mutex;        // held while the sink runs
    bool has_ended = false;  // guarded by mutex, as is what follows
    bool has_begun = false;  // an event has come
  };
  void pass_on(Open& open, const Event& event);
  void forget(RequestId id);

  Suspects suspects_;
  mutable std::mutex mutex_;
  mutable std::condition_variable emptied_;
  std::map<RequestId, std::shared_ptr<Open>> open_;  // guarded by mutex_
};

}  // namespace lockstep::runtime
