#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <csignal>
#include <functional>
#include <utility>

#include "lockstep/base/log.h"
#include "lockstep/serving/http/connection.h"

namespace lockstep::serving::http {
namespace {

namespace net = boost::asio;
using boost::system::error_code;

// One timer looks after every deadline of every connection; a deadline may be this much late.
constexpr std::chrono::milliseconds kSweepPeriod{250};
constexpr std::chrono::milliseconds kAcceptRetry{100};
// What happens when the time to drain is over, in sweeps since then: a sweep that comes late leaves nothing
// out.
constexpr int kSweepsForLastWords = 2;  // whoever makes answers is told to end them
constexpr int kSweepsToClose = 4;
// How many connections beyond max_connections are told so; more are closed without a word.
constexpr size_t kMaxRefusals = 64;

constexpr auto kAwait = net::as_tuple(net::use_awaitable);

std::string without_brackets(const std::string& host) {
  return host.size() > 2 && host.front() == '[' && host.back() == ']' ? host.substr(1, host.size() - 2)
                                                                      : host;
}

Error cannot_listen(const ServerOptions& options, const error_code& ec) {
  const auto say = [&](ErrorCode code, std::string_view why, std::string_view field) {
    return Error{code, fmt::format("cannot listen on host {} port {}: {}", options.host, options.port, why),
                 std::string(field)};
  };
  if (ec == net::error::address_in_use)
    return say(ErrorCode::kUnavailable,
               "another program listens there; end it, or choose another port (port 0 takes any free one)",
               "port");
  if (ec == net::error::access_denied)
    return say(ErrorCode::kInvalidArgument, "only root may listen on ports below 1024; choose a higher port",
               "port");
  if (ec == boost::system::errc::address_not_available)
    return say(
        ErrorCode::kInvalidArgument,
        "this machine has no such address; 127.0.0.1 serves this machine only, 0.0.0.0 all its networks",
        "host");
  return say(ErrorCode::kInvalidArgument, ec.message(), "host");
}

Status check(const ServerOptions& options) {
  if (options.port < 0 || options.port > 65535)
    return invalid_argument("port", "port {} is not between 0 and 65535", options.port);
  if (options.max_connections < 1)
    return invalid_argument("max_connections", "max_connections is {}, at least 1 is needed",
                            options.max_connections);
  if (options.max_header_bytes < 1024 || options.max_header_bytes > (size_t{1} << 24))
    return invalid_argument("max_header_bytes", "max_header_bytes is {}, allowed are 1024 to {}",
                            options.max_header_bytes, size_t{1} << 24);
  return Done{};
}

}  // namespace

class Server::Impl {
 public:
  explicit Impl(ServerOptions options) : sweep_timer_(io_) {
    hub_.options = std::move(options);
    hub_.mailbox = std::make_shared<Mailbox>([this] { net::post(io_, [this] { hub_.deliver_mail(); }); });
    hub_.on_connection_gone = [this] { end_if_drained(); };
  }

  ~Impl() {
    hub_.mailbox->close();  // Responders may outlive the server
    hub_.on_connection_gone = [] {};
    close_connections();
  }

  // Every address that the host name has; a name such as localhost may have one of each family.
  Status bind() {
    error_code ec;
    tcp::resolver resolver(io_);
    const auto found =
        resolver.resolve(without_brackets(hub_.options.host), std::to_string(hub_.options.port),
                         tcp::resolver::passive | tcp::resolver::numeric_service, ec);
    if (ec || found.empty()) return cannot_listen(hub_.options, ec);
    error_code first_failure;
    for (const auto& entry : found) {
      tcp::endpoint endpoint = entry.endpoint();
      if (port_ != 0) endpoint.port(static_cast<unsigned short>(port_));  // the port that the first one got
      if (open_acceptor(endpoint, ec)) continue;
      if (!first_failure) first_failure = ec;
      if (ec == net::error::address_in_use && hub_.options.port != 0) return cannot_listen(hub_.options, ec);
    }
    // One address that works is enough: many machines name an IPv6 address that they do not have.
    if (acceptors_.empty()) return cannot_listen(hub_.options, first_failure);
    return Done{};
  }

  int port() const { return port_; }

  // Another program may have bound the same port and been the first to listen.
  Status open(Handler handler) {
    hub_.handler = std::move(handler);
    error_code ec;
    for (tcp::acceptor& acceptor : acceptors_) {
      acceptor.listen(net::socket_base::max_listen_connections, ec);
      if (ec) return cannot_listen(hub_.options, ec);
    }
    return Done{};
  }

  void run() {
    std::signal(SIGPIPE,
                SIG_IGN);  // a client that left is an error code of a write, not the end of the process
    for (tcp::acceptor& acceptor : acceptors_) net::co_spawn(io_, accept_loop(acceptor), rethrow);
    net::co_spawn(io_, sweep_loop(), rethrow);
    io_.run();
  }

  void stop() {
    net::post(io_, [this] { drain(); });
  }

  void when_drain_is_over(std::function<void()> callback) {
    net::post(io_,
              [this, callback = std::move(callback)]() mutable { on_drain_over_ = std::move(callback); });
  }

 private:
  static void rethrow(std::exception_ptr failure) {
    if (failure) std::rethrow_exception(failure);
  }

  bool open_acceptor(const tcp::endpoint& endpoint, error_code& ec) {
    tcp::acceptor acceptor(io_);
    acceptor.open(endpoint.protocol(), ec);
    if (!ec) acceptor.set_option(net::socket_base::reuse_address(true), ec);
    // "::" serves IPv4 too, as users of other servers expect; an address of a host name serves itself only.
    if (!ec && endpoint.protocol() == tcp::v6())
      acceptor.set_option(net::ip::v6_only(!endpoint.address().is_unspecified()), ec);
    if (!ec) acceptor.bind(endpoint, ec);
    if (ec) return false;
    port_ = acceptor.local_endpoint().port();
    acceptors_.push_back(std::move(acceptor));
    return true;
  }

  net::awaitable<void> accept_loop(tcp::acceptor& acceptor) {
    net::steady_timer pause(io_);
    while (acceptor.is_open()) {
      auto [ec, socket] = co_await acceptor.async_accept(kAwait);
      if (!acceptor.is_open()) break;
      if (!ec) {
        admit(std::move(socket));
      } else if (ec != net::error::connection_aborted) {  // out of files or memory: both pass
        log_warning("http: cannot accept a connection: {}; {} are open", ec.message(),
                    hub_.connections.size());
        pause.expires_after(kAcceptRetry);
        co_await pause.async_wait(kAwait);
      }
    }
  }

  void admit(tcp::socket socket) {
    const auto limit = static_cast<size_t>(hub_.options.max_connections);
    if (hub_.connections.size() >= limit + kMaxRefusals) return;
    const auto connection = std::make_shared<Connection>(hub_, std::move(socket));
    hub_.connections.emplace(connection.get(), connection);
    connection->start(hub_.connections.size() > limit ? Connection::Admission::kRefuse
                                                      : Connection::Admission::kServe);
  }

  std::vector<std::shared_ptr<Connection>> connections() const {
    std::vector<std::shared_ptr<Connection>> all;
    all.reserve(hub_.connections.size());
    for (const auto& [key, connection] : hub_.connections) all.push_back(connection);
    return all;
  }

  net::awaitable<void> sweep_loop() {
    while (!is_ended_) {
      sweep_timer_.expires_after(kSweepPeriod);
      co_await sweep_timer_.async_wait(kAwait);
      const Clock::time_point now = Clock::now();
      for (const auto& connection : connections()) connection->sweep(now);
      if (hub_.is_draining && now - hub_.drain_began >= hub_.options.drain_timeout) end_exchanges();
    }
  }

  // A client is to hear why its answer has no end.
  void end_exchanges() {
    const int num_sweeps = num_sweeps_overdue_++;
    if (num_sweeps >= kSweepsToClose) return close_connections();
    if (num_sweeps < kSweepsForLastWords) {
      if (on_drain_over_) on_drain_over_();
    } else {
      for (const auto& connection : connections()) connection->answer_unavailable();
    }
  }

  void drain() {
    if (std::exchange(hub_.is_draining, true)) return;
    hub_.drain_began = Clock::now();
    error_code ec;
    for (tcp::acceptor& acceptor : acceptors_) acceptor.close(ec);
    for (const auto& connection : connections()) connection->stop_when_idle();
    end_if_drained();
  }

  void close_connections() {
    for (const auto& connection : connections()) connection->close();
  }

  // With acceptors, connections and timer gone, io_.run() has nothing left and returns.
  void end_if_drained() {
    if (!hub_.is_draining || !hub_.connections.empty() || is_ended_) return;
    is_ended_ = true;
    sweep_timer_.cancel();
  }

  net::io_context io_{1};  // first, so that it outlives every socket
  Hub hub_;
  std::vector<tcp::acceptor> acceptors_;
  int port_ = 0;
  net::steady_timer sweep_timer_;
  std::function<void()> on_drain_over_;
  int num_sweeps_overdue_ = 0;
  bool is_ended_ = false;
};

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::bind(ServerOptions options) {
  if (const Status status = check(options); !status.ok()) return status.error();
  auto impl = std::make_unique<Impl>(std::move(options));
  if (const Status status = impl->bind(); !status.ok()) return status.error();
  return std::unique_ptr<Server>(new Server(std::move(impl)));
}

Status Server::open(Handler handler) { return impl_->open(std::move(handler)); }

Result<std::unique_ptr<Server>> Server::listen(ServerOptions options, Handler handler) {
  auto server = bind(std::move(options));
  if (!server) return server;
  if (const Status status = (*server)->open(std::move(handler)); !status.ok()) return status.error();
  return server;
}

int Server::port() const { return impl_->port(); }
void Server::run() { impl_->run(); }
void Server::stop() { impl_->stop(); }
void Server::when_drain_is_over(std::function<void()> callback) {
  impl_->when_drain_is_over(std::move(callback));
}

}  // namespace lockstep::serving::http
