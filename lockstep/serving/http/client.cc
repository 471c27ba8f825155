#include "lockstep/serving/http/client.h"

#include <array>
#include <boost/asio/connect.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <optional>
#include <unordered_set>
#include <utility>

namespace lockstep::serving::http {
namespace {

namespace net = boost::asio;
namespace beast = boost::beast;
namespace beast_http = boost::beast::http;
using boost::system::error_code;
using net::ip::tcp;

constexpr uint64_t kMaxBodyBytes = uint64_t{1} << 30;

struct Connection {
  explicit Connection(net::io_context& io) : stream(io) {}
  beast::tcp_stream stream;
  beast::flat_buffer buffer;
  bool is_used = false;  // it has carried an answer already
};

struct Shared {
  Shared(Url to, std::chrono::milliseconds limit) : url(std::move(to)), timeout(limit) {}
  Url url;
  std::chrono::milliseconds timeout;
  net::io_context io{1};
  tcp::resolver::results_type addresses;
  std::vector<std::unique_ptr<Connection>> idle;
  bool is_stopping = false;
};

// One request on its way; it owns itself through the handlers that wait for it.
class Call : public std::enable_shared_from_this<Call> {
 public:
  Call(Shared& shared, ClientRequest request, Client::OnStart on_start, Client::OnData on_data,
       Client::OnEnd on_end)
      : shared_(shared),
        on_start_(std::move(on_start)),
        on_data_(std::move(on_data)),
        on_end_(std::move(on_end)) {
    message_.method_string(request.method);
    message_.target(request.target);
    message_.version(11);
    const bool is_v6 = shared.url.host.find(':') != std::string::npos;
    message_.set(beast_http::field::host, is_v6 ? fmt::format("[{}]:{}", shared.url.host, shared.url.port)
                                                : fmt::format("{}:{}", shared.url.host, shared.url.port));
    for (const Header& header : request.headers) message_.set(header.name, header.value);
    message_.body() = std::move(request.body);
    message_.prepare_payload();
  }

  void start() {
    if (shared_.idle.empty()) return connect();
    connection_ = std::move(shared_.idle.back());
    shared_.idle.pop_back();
    write();
  }

  void abort() {
    if (connection_) connection_->stream.cancel();
  }

 private:
  void connect() {
    connection_ = std::make_unique<Connection>(shared_.io);
    connection_->stream.expires_after(shared_.timeout);
    connection_->stream.async_connect(
        shared_.addresses, [self = shared_from_this()](error_code ec, const tcp::endpoint&) {
          if (ec) return self->end(fmt::format("cannot connect: {}", ec.message()));
          error_code ignored;
          self->connection_->stream.socket().set_option(tcp::no_delay(true), ignored);
          self->write();
        });
  }

  void write() {
    if (on_start_) on_start_();
    connection_->stream.expires_after(shared_.timeout);
    beast_http::async_write(
        connection_->stream, message_, [self = shared_from_this()](error_code ec, size_t) {
          if (ec) return self->broken(ec);
          self->parser_.emplace();
          self->parser_->body_limit(kMaxBodyBytes);
          beast_http::async_read_header(self->connection_->stream, self->connection_->buffer, *self->parser_,
                                        [self](error_code failure, size_t) {
                                          if (failure) return self->broken(failure);
                                          self->outcome_.status =
                                              static_cast<int>(self->parser_->get().result_int());
                                          self->read();
                                        });
        });
  }

  // Some bytes at a time: a stream's events are seen when they come.
  void read() {
    if (parser_->is_done()) return finish();
    parser_->get().body().data = bytes_.data();
    parser_->get().body().size = bytes_.size();
    connection_->stream.expires_after(shared_.timeout);
    beast_http::async_read_some(connection_->stream, connection_->buffer, *parser_,
                                [self = shared_from_this()](error_code ec, size_t) {
                                  if (ec == beast_http::error::need_buffer) ec = {};
                                  const size_t n = self->bytes_.size() - self->parser_->get().body().size;
                                  if (n > 0) self->on_data_({self->bytes_.data(), n});
                                  if (ec) return self->end(ec.message());
                                  self->read();
                                });
  }

  void finish() {
    if (parser_->keep_alive() && !shared_.is_stopping) {
      connection_->is_used = true;
      connection_->stream.expires_never();
      shared_.idle.push_back(std::move(connection_));
    }
    end({});
  }

  // A kept connection that the server closed in the meantime is no fault of this request.
  void broken(error_code ec) {
    if (connection_->is_used && !shared_.is_stopping && ec != beast::error::timeout) {
      on_start_ = nullptr;
      return connect();
    }
    end(ec.message());
  }

  void end(std::string error) {
    connection_.reset();
    outcome_.error = std::move(error);
    if (const auto on_end = std::exchange(on_end_, nullptr)) on_end(outcome_);
  }

  Shared& shared_;
  beast_http::request<beast_http::string_body> message_;
  Client::OnStart on_start_;
  Client::OnData on_data_;
  Client::OnEnd on_end_;
  std::unique_ptr<Connection> connection_;
  std::optional<beast_http::response_parser<beast_http::buffer_body>> parser_;
  std::array<char, 16384> bytes_;
  ClientOutcome outcome_;
};

}  // namespace

class Client::Impl {
 public:
  Impl(const Url& url, std::chrono::milliseconds timeout) : shared_(url, timeout) {}

  Status resolve() {
    error_code ec;
    tcp::resolver resolver(shared_.io);
    shared_.addresses = resolver.resolve(shared_.url.host, std::to_string(shared_.url.port), ec);
    if (ec || shared_.addresses.empty())
      return Error{ErrorCode::kUnavailable,
                   fmt::format("the host {} of the URL is not found: {}", shared_.url.host, ec.message()),
                   "url"};
    return Done{};
  }

  void send(ClientRequest request, OnStart on_start, OnData on_data, OnEnd on_end) {
    std::erase_if(calls_, [](const std::weak_ptr<Call>& call) { return call.expired(); });
    auto call = std::make_shared<Call>(shared_, std::move(request), std::move(on_start), std::move(on_data),
                                       std::move(on_end));
    calls_.push_back(call);
    call->start();
  }

  void at(Clock::time_point time, std::function<void()> task) {
    auto timer = std::make_shared<net::steady_timer>(shared_.io, time);
    timers_.insert(timer);
    timer->async_wait([this, timer, task = std::move(task)](error_code ec) {
      timers_.erase(timer);
      if (!ec && !shared_.is_stopping) task();
    });
  }

  void run() {
    shared_.io.run();
    shared_.idle.clear();
  }

  void stop() {
    net::post(shared_.io, [this] {
      shared_.is_stopping = true;
      for (const auto& weak : calls_)
        if (const auto call = weak.lock()) call->abort();
      for (const auto& timer : timers_) timer->cancel();
    });
  }

 private:
  Shared shared_;
  std::vector<std::weak_ptr<Call>> calls_;
  std::unordered_set<std::shared_ptr<net::steady_timer>> timers_;
};

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

Result<std::unique_ptr<Client>> Client::make(const Url& url, std::chrono::milliseconds timeout) {
  auto impl = std::make_unique<Impl>(url, timeout);
  if (const Status found = impl->resolve(); !found) return found.error();
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

void Client::send(ClientRequest request, OnStart on_start, OnData on_data, OnEnd on_end) {
  impl_->send(std::move(request), std::move(on_start), std::move(on_data), std::move(on_end));
}
void Client::at(Clock::time_point time, std::function<void()> task) { impl_->at(time, std::move(task)); }
void Client::run() { impl_->run(); }
void Client::stop() { impl_->stop(); }

Result<Url> parse_url(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    return invalid_argument("url", "the URL \"{}\" {}", text, why);
  };
  constexpr std::string_view kScheme = "http://";
  if (text.starts_with("https://"))
    return refuse(
        "asks for TLS, which is not spoken here: give the http:// address of the server or of a proxy");
  if (!text.starts_with(kScheme)) return refuse("does not begin with http://");
  std::string_view rest = text.substr(kScheme.size());
  Url url;
  const size_t slash = std::min(rest.find('/'), rest.size());
  std::string_view authority = rest.substr(0, slash);
  url.path = rest.substr(slash);
  while (url.path.ends_with('/')) url.path.pop_back();
  if (url.path.find_first_of(" \r\n\t?#") != std::string::npos || authority.find('@') != authority.npos)
    return refuse("has more than a host, a port and a path");
  if (authority.starts_with('[')) {
    const size_t close = authority.find(']');
    if (close == authority.npos) return refuse("has a '[' without a ']'");
    url.host = authority.substr(1, close - 1);
    authority.remove_prefix(close + 1);
  } else {
    const size_t colon = std::min(authority.find(':'), authority.size());
    url.host = authority.substr(0, colon);
    authority.remove_prefix(colon);
  }
  if (url.host.empty()) return refuse("names no host");
  if (authority.empty()) return url;
  const char* end = authority.data() + authority.size();
  const auto parsed = std::from_chars(authority.data() + 1, end, url.port);
  if (authority[0] != ':' || parsed.ec != std::errc() || parsed.ptr != end || url.port < 1 ||
      url.port > 65535)
    return refuse("has no port from 1 to 65535");
  return url;
}

}  // namespace lockstep::serving::http
