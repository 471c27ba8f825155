#include "lockstep/collectives/hosts/tcp.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <system_error>
#include <utility>

namespace lockstep::collectives {
namespace {

constexpr int kBacklog = 128;
constexpr size_t kMostParts = 64;  // of one system call

std::string words(int error) { return std::system_category().message(error); }

[[noreturn]] void lost(const char* doing) {
  const int error = errno;
  throw ConnectionLost(fmt::format("{}: {}", doing, words(error)));
}

// Small messages must not wait for others, and a machine that is gone must not be waited for.
void set_options(int socket) {
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
}

bool ready(int socket, short events, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd waiting{.fd = socket, .events = events, .revents = 0};
    const int found = poll(&waiting, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30)));
    if (found > 0) return true;
    if (found == 0) return false;
    if (errno != EINTR) return true;  // the call that follows says what is wrong
  }
}

std::string text_of(const sockaddr* address, socklen_t size) {
  char host[NI_MAXHOST] = {};
  if (getnameinfo(address, size, host, sizeof(host), nullptr, 0, NI_NUMERICHOST) != 0) return "?";
  const std::string text = host;
  constexpr std::string_view kMapped = "::ffff:";  // an IPv4 address, seen by a socket of IPv6
  return text.starts_with(kMapped) ? text.substr(kMapped.size()) : text;
}

std::string address_of(int socket, int (*which)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  if (which(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "?";
  return text_of(reinterpret_cast<const sockaddr*>(&address), size);
}

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Result<Addresses> resolve(const std::string& host, int port, int flags) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(host.empty() ? nullptr : host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) return Error{ErrorCode::kUnavailable, fmt::format("{}: {}", host, gai_strerror(error)), ""};
  return Addresses(found, &freeaddrinfo);
}

// An open socket, or the error's number negated.
int connected(const addrinfo& address, Clock::time_point deadline) {
  const int made =
      socket(address.ai_family, address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address.ai_protocol);
  if (made < 0) return -errno;
  int error = 0;
  if (connect(made, address.ai_addr, address.ai_addrlen) != 0) error = errno;
  if (error == EINPROGRESS) {
    error = ETIMEDOUT;
    socklen_t size = sizeof(error);
    if (ready(made, POLLOUT, deadline)) getsockopt(made, SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error == 0) {
    fcntl(made, F_SETFL, fcntl(made, F_GETFL) & ~O_NONBLOCK);
    return made;
  }
  close(made);
  return -error;
}

// The port that was bound, or the error's number negated.
int listen_at(int made, const addrinfo& address) {
  const int on = 1, off = 0;
  setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.ai_family == AF_INET6) setsockopt(made, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (bind(made, address.ai_addr, address.ai_addrlen) != 0 || listen(made, kBacklog) != 0) return -errno;
  sockaddr_storage bound{};
  socklen_t size = sizeof(bound);
  if (getsockname(made, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return -errno;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port
                                           : reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
}

}  // namespace

TcpStream::TcpStream(int socket) : socket_(socket) { set_options(socket); }
TcpStream::TcpStream(TcpStream&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
TcpStream::~TcpStream() {
  if (socket_ >= 0) close(socket_);
}

void TcpStream::send(std::span<const std::span<const std::byte>> parts) {
  size_t part = 0, sent = 0;  // of that part
  while (part < parts.size()) {
    iovec pieces[kMostParts];
    size_t count = 0;
    for (size_t at = part; at < parts.size() && count < kMostParts; ++at) {
      const auto rest = parts[at].subspan(at == part ? sent : 0);
      // sendmsg() only reads.
      pieces[count++] = {.iov_base = const_cast<std::byte*>(rest.data()), .iov_len = rest.size()};
    }
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = count;
    const ssize_t wrote = sendmsg(socket_, &message, MSG_NOSIGNAL);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) lost("sending");
    sent += static_cast<size_t>(wrote);
    for (; part < parts.size() && sent >= parts[part].size(); ++part) sent -= parts[part].size();
  }
}

void TcpStream::receive(std::span<std::byte> all) {
  while (!all.empty()) {
    const ssize_t got = recv(socket_, all.data(), all.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) lost("receiving");
    if (got == 0) throw ConnectionLost("the connection was closed");
    all = all.subspan(static_cast<size_t>(got));
  }
}

void TcpStream::receive_until(std::span<std::byte> all, Clock::time_point deadline) {
  while (!all.empty()) {
    if (!ready(socket_, POLLIN, deadline)) throw ConnectionLost("nothing came in time");
    const ssize_t got = recv(socket_, all.data(), all.size(), MSG_DONTWAIT);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0) lost("receiving");
    if (got == 0) throw ConnectionLost("the connection was closed");
    all = all.subspan(static_cast<size_t>(got));
  }
}

bool TcpStream::has_something_until(Clock::time_point deadline) const {
  return ready(socket_, POLLIN, deadline);
}
void TcpStream::shut_down() const { shutdown(socket_, SHUT_RDWR); }
void TcpStream::shut_down_sending() const { shutdown(socket_, SHUT_WR); }
void TcpStream::set_send_patience(std::chrono::milliseconds patience) const {
  const timeval most{.tv_sec = patience.count() / 1000, .tv_usec = patience.count() % 1000 * 1000};
  setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &most, sizeof(most));
}
std::string TcpStream::peer_address() const { return address_of(socket_, &getpeername); }
std::string TcpStream::local_address() const { return address_of(socket_, &getsockname); }

Result<TcpListener> TcpListener::open(const std::string& address, int port) {
  auto found = resolve(address, port, AI_PASSIVE);
  if (!found) return found.error();
  // Of the addresses that stand for all of this machine's, the one of IPv6 takes calls of both.
  int error = EADDRNOTAVAIL;
  for (const int family : {AF_INET6, AF_INET})
    for (const addrinfo* one = found->get(); one != nullptr; one = one->ai_next) {
      if (one->ai_family != family) continue;
      const int made = socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol);
      const int bound = made < 0 ? -errno : listen_at(made, *one);
      if (bound >= 0) return TcpListener(made, bound);
      error = -bound;
      if (made >= 0) close(made);
      if (error == EADDRINUSE) break;
    }
  return Error{ErrorCode::kUnavailable,
               fmt::format("cannot listen at {}:{}: {}", address.empty() ? "*" : address, port, words(error)),
               "--coordinator"};
}

TcpListener::TcpListener(TcpListener&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)), port_(other.port_) {}
TcpListener::~TcpListener() {
  if (socket_ >= 0) close(socket_);
}

std::optional<TcpStream> TcpListener::accept_until(Clock::time_point deadline) const {
  while (ready(socket_, POLLIN, deadline)) {
    const int made = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (made >= 0) return TcpStream(made);
    if (Clock::now() >= deadline) break;  // who called has left again, or there are too many open files
  }
  return std::nullopt;
}

Result<TcpStream> connect_to(const std::string& host, int port, std::chrono::milliseconds patience) {
  auto found = resolve(host, port, 0);
  if (!found) return found.error();
  int error = EADDRNOTAVAIL;
  for (const addrinfo* one = found->get(); one != nullptr; one = one->ai_next) {
    const int made = connected(*one, Clock::now() + patience);
    if (made >= 0) return TcpStream(made);
    error = -made;
  }
  return Error{ErrorCode::kUnavailable, fmt::format("{} port {}: {}", host, port, words(error)), ""};
}

bool is_loopback(const std::string& host) {
  auto found = resolve(host, 0, 0);
  if (!found) return false;
  for (const addrinfo* one = found->get(); one != nullptr; one = one->ai_next) {
    const std::string text = text_of(one->ai_addr, one->ai_addrlen);
    if (!text.starts_with("127.") && text != "::1") return false;
  }
  return true;
}

// Only an address of its own can be bound.
std::string why_not_of_this_machine(const std::string& host) {
  auto found = resolve(host, 0, 0);
  if (!found) return fmt::format("is not known here ({})", found.error().message);
  std::string addresses;
  for (const addrinfo* one = found->get(); one != nullptr; one = one->ai_next) {
    const int made = socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol);
    const bool is_own = made >= 0 && bind(made, one->ai_addr, one->ai_addrlen) == 0;
    if (made >= 0) close(made);
    if (is_own) return "";
    addresses += (addresses.empty() ? "" : ", ") + text_of(one->ai_addr, one->ai_addrlen);
  }
  return fmt::format("stands for {}, which is no address of this machine", addresses);
}

std::vector<std::string> interface_addresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, &freeifaddrs);
  std::vector<std::string> found;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0 || (one->ifa_flags & IFF_LOOPBACK) != 0)
      continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    const std::string text = text_of(one->ifa_addr, size);
    if (!text.starts_with("fe80:") && !text.starts_with("169.254.")) found.push_back(text);
  }
  return found;
}

}  // namespace lockstep::collectives
