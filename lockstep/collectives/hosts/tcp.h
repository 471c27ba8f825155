#pragma once
// TCP as processes of one engine need it: whole messages sent and received by threads that wait, connections
// that end at once when somebody else says so. Private to hosts/.
#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/base/check.h"

namespace lockstep::collectives {

using Clock = std::chrono::steady_clock;

// The other side closed, the network said so, or shut_down() was called.
struct ConnectionLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class TcpStream {
 public:
  explicit TcpStream(int socket);
  TcpStream(TcpStream&& other) noexcept;
  TcpStream& operator=(TcpStream&&) = delete;
  ~TcpStream();

  // One thread at a time sends, one receives; shut_down() may be called from any thread and ends both.
  // All three throw ConnectionLost.
  void send(std::span<const std::span<const std::byte>> parts);
  void receive(std::span<std::byte> all);
  void receive_until(std::span<std::byte> all, Clock::time_point deadline);
  // Something, or the end, can be received.
  bool has_something_until(Clock::time_point deadline) const;
  void shut_down() const;
  // The other side hears the end after everything that was sent; from it can still be received.
  void shut_down_sending() const;
  // send() gives up when the other side takes nothing for so long.
  void set_send_patience(std::chrono::milliseconds patience) const;

  std::string peer_address() const;   // without the port
  std::string local_address() const;  // by which the other side can reach this one

 private:
  int socket_;
};

class TcpListener {
 public:
  // Every address of this machine where `address` is empty. Port 0 takes any that is free.
  static Result<TcpListener> open(const std::string& address, int port);
  TcpListener(TcpListener&& other) noexcept;
  TcpListener& operator=(TcpListener&&) = delete;
  ~TcpListener();

  int port() const { return port_; }
  std::optional<TcpStream> accept_until(Clock::time_point deadline) const;

 private:
  TcpListener(int socket, int port) : socket_(socket), port_(port) {}
  int socket_;
  int port_;
};

// Tries every address that the name stands for, each for at most `patience`. The error holds what the system
// said of the last.
Result<TcpStream> connect_to(const std::string& host, int port, std::chrono::milliseconds patience);

// Does the name stand for this machine alone, as 127.0.0.1 does?
bool is_loopback(const std::string& host);

// What speaks against the name or address standing for this machine: that the resolver does not know it, or
// knows it by addresses that no interface has. Empty: nothing.
std::string why_not_of_this_machine(const std::string& host);

// The addresses of this machine's interfaces by which others may reach it: not loopback, not link-local.
std::vector<std::string> interface_addresses();

}  // namespace lockstep::collectives
