#pragma once
// An HTTP/1.1 client for load: any number of requests at once and timers, all on the thread that calls run().
// Bodies are handed on as their bytes come. It knows no JSON and no TLS. Connections are used again.
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/serving/http/http.h"

namespace lockstep::serving::http {

struct Url {
  std::string host;  // without brackets
  int port = 80;
  std::string path;  // without a '/' at its end; may be empty
};

// "http://host:port/path"; errors say what is wrong with it.
Result<Url> parse_url(std::string_view text);

struct ClientRequest {
  std::string method = "POST";
  std::string target;  // the whole path
  std::vector<Header> headers = {};
  std::string body = {};
};

struct ClientOutcome {
  int status = 0;     // 0: no answer came
  std::string error;  // why the answer is not whole; empty when it is
};

class Client {
 public:
  using Clock = std::chrono::steady_clock;
  using OnStart = std::function<void()>;  // the connection is there; the request's bytes go out now
  using OnData = std::function<void(std::string_view bytes)>;
  using OnEnd = std::function<void(const ClientOutcome& outcome)>;

  // Looks the host up; nothing is sent yet.
  static Result<std::unique_ptr<Client>> make(const Url& url, std::chrono::milliseconds timeout);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Both only before run() or on its thread. on_end is called once, last.
  void send(ClientRequest request, OnStart on_start, OnData on_data, OnEnd on_end);
  void at(Clock::time_point time, std::function<void()> task);

  // Until nothing is left to do.
  void run();
  // From any thread: requests in flight end with an error and timers are forgotten.
  void stop();

 private:
  class Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::serving::http
