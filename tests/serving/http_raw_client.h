#pragma once
// For the tests of the HTTP server: a socket that sends exactly the bytes it is given, and a server on its
// own thread.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "lockstep/serving/http/http.h"

namespace lockstep::serving::http {

inline constexpr std::chrono::milliseconds kPatience{10000};

struct RawResponse {
  int status = 0;                              // 0: none came
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;
  int num_chunks = 0;
  bool is_complete = false;

  std::string header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? "" : found->second;
  }
};

class RawClient {
 public:
  explicit RawClient(int port, int receive_buffer_bytes = 0) {
    fd_ = ::socket(AF_INET, SOCK_STREAM, 0);
    if (receive_buffer_bytes > 0)
      ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer_bytes, sizeof receive_buffer_bytes);
    const int one = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    is_connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~RawClient() { close(); }
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;

  bool is_connected() const { return is_connected_; }

  bool send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }

  void shut_down_sending() { ::shutdown(fd_, SHUT_WR); }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  // Ends the connection with a reset instead of a FIN, as a crashed client's kernel does.
  void reset() {
    const linger now{1, 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    close();
  }

  // Reads until `buffered_` holds `what` (true) or the server closes or patience ends (false).
  bool read_until(std::string_view what, std::chrono::milliseconds patience = kPatience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (buffered_.find(what) == std::string::npos)
      if (!read_more(deadline)) return false;
    return true;
  }

  // True when the server ends the connection in time; what it sends before is kept in buffered().
  bool read_to_end(std::chrono::milliseconds patience = kPatience) {
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (read_more(deadline)) {
    }
    return has_ended_;
  }

  // Waits for bytes without taking any.
  bool is_readable() {
    pollfd ready{fd_, POLLIN, 0};
    return ::poll(&ready, 1, static_cast<int>(kPatience.count())) == 1;
  }

  // One whole answer off the front of what comes. `method` HEAD: without a body.
  RawResponse read_response(std::string_view method = "GET") {
    RawResponse response;
    if (!read_until("\r\n\r\n")) return response;
    const size_t head_end = buffered_.find("\r\n\r\n");
    parse_head(buffered_.substr(0, head_end + 2), response);
    buffered_.erase(0, head_end + 4);
    if (method == "HEAD" || response.status == 204 || response.status == 304 || response.status < 200) {
      response.is_complete = true;
    } else if (response.headers.count("content-length") != 0) {
      const size_t length = std::stoul(response.headers["content-length"]);
      response.is_complete = read_bytes(length);
      response.body = take(length);
    } else if (response.header("transfer-encoding") == "chunked") {
      read_chunks(response);
    } else {
      response.is_complete = read_to_end();
      response.body = take(buffered_.size());
    }
    return response;
  }

  const std::string& buffered() const { return buffered_; }

 private:
  static void parse_head(const std::string& head, RawResponse& response) {
    response.status = std::stoi(head.substr(9, 3));
    for (size_t begin = head.find("\r\n") + 2; begin < head.size();) {
      const size_t end = head.find("\r\n", begin);
      const std::string line = head.substr(begin, end - begin);
      const size_t colon = line.find(": ");
      std::string name = line.substr(0, colon);
      for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      EXPECT_EQ(response.headers.count(name), 0u) << "the header " << name << " came twice";
      response.headers[name] = line.substr(colon + 2);
      begin = end + 2;
    }
  }

  void read_chunks(RawResponse& response) {
    for (;;) {
      if (!read_until("\r\n")) return;
      const std::string line = take(buffered_.find("\r\n") + 2);
      const size_t size = std::stoul(line, nullptr, 16);
      if (!read_bytes(size + 2)) return;
      response.body += take(size);
      if (take(2) != "\r\n") return;
      if (size == 0) break;
      ++response.num_chunks;
    }
    response.is_complete = true;
  }

  bool read_bytes(size_t count) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (buffered_.size() < count)
      if (!read_more(deadline)) return false;
    return true;
  }

  std::string take(size_t count) {
    std::string front = buffered_.substr(0, count);
    buffered_.erase(0, count);
    return front;
  }

  bool read_more(std::chrono::steady_clock::time_point deadline) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now())
            .count();
    pollfd ready{fd_, POLLIN, 0};
    if (left <= 0 || ::poll(&ready, 1, static_cast<int>(left)) <= 0) return false;
    char block[65536];
    const ssize_t n = ::recv(fd_, block, sizeof block, 0);
    if (n <= 0) {
      has_ended_ = true;
      was_reset_ = n < 0;
      return false;
    }
    buffered_.append(block, static_cast<size_t>(n));
    return true;
  }

 public:
  bool was_reset() const { return was_reset_; }

 private:
  int fd_ = -1;
  bool is_connected_ = false, has_ended_ = false, was_reset_ = false;
  std::string buffered_;
};

// A server that runs until it goes out of scope.
class RunningServer {
 public:
  explicit RunningServer(Handler handler, ServerOptions options = {}) {
    options.port = 0;
    auto listening = Server::listen(options, std::move(handler));
    if (!listening.ok()) throw std::runtime_error(listening.error().message);
    server_ = std::move(listening.value());
    thread_ = std::thread([this] { server_->run(); });
  }
  ~RunningServer() { stop_and_join(); }

  int port() const { return server_->port(); }
  void stop() { server_->stop(); }
  void join() {
    if (thread_.joinable()) thread_.join();
  }
  void stop_and_join() {
    if (!thread_.joinable()) return;
    stop();
    join();
  }
  void destroy() {  // stops first
    stop_and_join();
    server_.reset();
  }

 private:
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

inline Response text_response(std::string body, int status = 200) {
  return {.status = status, .content_type = "text/plain", .headers = {}, .body = std::move(body)};
}

// Polls, for things that another thread is about to make true.
template <class Condition>
bool eventually(Condition condition, std::chrono::milliseconds patience = kPatience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

}  // namespace lockstep::serving::http
