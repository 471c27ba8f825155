#pragma once
// Who has called and has not said yet who it is. Each has a thread and a deadline of its own, so that nobody
// who calls and is silent (a port scanner, a probe of some health checker) keeps those out who belong here.
// Private to joining.
#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/base/json.h"
#include "lockstep/collectives/hosts/tcp.h"

namespace lockstep::collectives {

// Empty where what came is not of this protocol.
std::optional<Json> receive_json(TcpStream& stream, Clock::time_point deadline);

class Callers {
 public:
  static constexpr int kMost = 64;  // at once; further ones wait until they are accepted

  struct Caller {
    TcpStream stream;
    std::string address;
    std::optional<Json> hello;  // none: it said nothing in time, or something else
  };

  Callers() = default;
  // Cuts off whoever has not spoken.
  ~Callers();
  Callers(const Callers&) = delete;
  Callers& operator=(const Callers&) = delete;

  bool is_empty() const;
  bool is_full() const;
  void listen_to(TcpStream stream, std::chrono::milliseconds patience);
  // One whose time is over or who has spoken; waits for one until the deadline.
  std::optional<Caller> next(Clock::time_point deadline);

 private:
  struct Conversation {
    explicit Conversation(Caller its) : caller(std::move(its)) {}
    Caller caller;
    bool is_over = false;  // guarded by mutex_
    std::jthread thread;
  };

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::list<Conversation> conversations_;
};

}  // namespace lockstep::collectives
