#pragma once
// The HTTP server from before there is an engine: bound, then answering that it is starting, then handing
// every request to whoever came. Private to server.h.
#include <memory>
#include <mutex>
#include <thread>

#include "lockstep/serving/http/http.h"

namespace lockstep::serving {

class StartingServer {
 public:
  static Result<std::unique_ptr<StartingServer>> bind(http::ServerOptions options);
  // Stops, and waits for the thread that answers.
  ~StartingServer();
  StartingServer(const StartingServer&) = delete;
  StartingServer& operator=(const StartingServer&) = delete;

  // From now on clients are answered, on a thread of its own: 503, but /livez 200, for a process that loads
  // is worth keeping. At most once.
  Status answer_starting();
  // Requests go here from now on. Clients may connect once this has returned.
  Status hand_over(http::Handler handler);

  // Returns once stop() has been called and answers on their way have ended.
  void run();
  http::Server& http() { return *server_; }

 private:
  explicit StartingServer(std::unique_ptr<http::Server> server) : server_(std::move(server)) {}
  Status open();

  std::unique_ptr<http::Server> server_;
  std::mutex mutex_;
  std::shared_ptr<const http::Handler> handler_;  // guarded by mutex_; null while starting
  std::thread thread_;
  bool is_open_ = false;
};

}  // namespace lockstep::serving
