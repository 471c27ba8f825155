#pragma once
// What lies between the threads that answer and the I/O thread: an Exchange is one request on its way, the
// Mailbox carries what Responders say to the I/O thread. One mailbox a server, woken once for everything that
// is put in before it is emptied: an engine step that feeds 256 streams costs one wake-up. No sockets here.
#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/serving/http/http.h"

namespace lockstep::serving::http {

class Connection;

class Exchange {
 public:
  enum class Stage : unsigned char { kWaiting, kStreaming, kComplete };

  // Any thread.
  bool connected() const { return connected_.load(std::memory_order_acquire); }
  void on_disconnect(std::function<void()> callback);

  // The I/O thread only.
  void client_gone();                // runs the callbacks
  void complete();                   // drops them
  Connection* connection = nullptr;  // null once it is gone or has gone on to another exchange
  Stage stage = Stage::kWaiting;

 private:
  std::atomic<bool> connected_{true};
  std::mutex mutex_;
  bool is_over_ = false;
  std::vector<std::function<void()>> callbacks_;
};

struct Command {
  enum class Kind : unsigned char { kSend, kStart, kWrite, kFinish, kAbandon };
  Kind kind = Kind::kAbandon;
  std::shared_ptr<Exchange> exchange;
  std::string data;                    // kWrite
  std::unique_ptr<Response> response;  // kSend, kStart
};

class Mailbox {
 public:
  // `wake` is called with the mailbox locked and must only ask the I/O thread to come and take().
  explicit Mailbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  void push(Command command);              // any thread; forgets it once closed
  void take(std::vector<Command>& batch);  // everything that waits, in order; `batch` must be empty
  void close();                            // from now on `wake` is never called

 private:
  std::mutex mutex_;
  std::function<void()> wake_;
  std::vector<Command> waiting_;
  bool is_closed_ = false;
};

std::shared_ptr<Responder> make_responder(std::shared_ptr<Exchange> exchange,
                                          std::shared_ptr<Mailbox> mailbox);

}  // namespace lockstep::serving::http
