#include "lockstep/serving/http/connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <ctime>
#include <exception>
#include <utility>

#include "lockstep/base/log.h"

namespace lockstep::serving::http {
namespace {

namespace net = boost::asio;
using boost::system::error_code;

// What a client may send ahead of the answer it waits for, before it is left waiting itself.
constexpr size_t kMaxReadAhead = size_t{64} << 10;
// An output buffer that grew beyond this is given back once it is empty.
constexpr size_t kMaxKeptOutput = size_t{64} << 10;
constexpr std::chrono::seconds kLingerTime{2};

constexpr auto kAwait = net::as_tuple(net::use_awaitable);

std::string name_of(const tcp::socket& socket) {
  error_code ec;
  const tcp::endpoint end = socket.remote_endpoint(ec);
  if (ec) return "unknown";
  const std::string address = end.address().to_string();
  if (end.address().is_v6()) return fmt::format("[{}]:{}", address, end.port());
  return fmt::format("{}:{}", address, end.port());
}

// A peer whose machine vanished sends nothing: a long answer in the making is given up after about a minute.
void probe_when_silent(tcp::socket& socket) {
  error_code ec;
  socket.set_option(net::socket_base::keep_alive(true), ec);
  const int idle_seconds = 30, probe_seconds = 10, num_probes = 3;
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds, sizeof idle_seconds);
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_KEEPINTVL, &probe_seconds, sizeof probe_seconds);
  ::setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_KEEPCNT, &num_probes, sizeof num_probes);
}

// An exception in a coroutine (memory that ran out, a bug) ends that connection and no other.
struct CloseOnFailure {
  std::weak_ptr<Connection> connection;
  void operator()(std::exception_ptr failure) const {
    if (!failure) return;
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& e) {
      log_error("http: a connection failed: {}", e.what());
    }
    if (const auto alive = connection.lock()) alive->close();
  }
};

bool is_final(int status) { return status >= 200 && status <= 599; }

}  // namespace

std::string_view Hub::date() {
  const std::time_t now = std::time(nullptr);
  if (now != date_second_) {
    date_second_ = now;
    date_ = http_date(now);
  }
  return date_;
}

void Hub::deliver_mail() {
  std::vector<Command> batch =
      std::move(spare_batch_);  // empty in a nested call, which then allocates its own
  batch.clear();
  mailbox->take(batch);
  std::vector<std::shared_ptr<Connection>> touched;
  for (Command& command : batch) {
    Connection* connection = command.exchange->connection;
    if (connection == nullptr) continue;  // the client has gone, or the answer was complete already
    if (!std::exchange(connection->is_touched, true)) touched.push_back(connection->shared_from_this());
    connection->apply(command);
  }
  for (const auto& connection : touched) {
    connection->is_touched = false;
    connection->flush();
  }
  batch.clear();
  spare_batch_ = std::move(batch);
}

Connection::Connection(Hub& hub, tcp::socket socket)
    : hub_(hub),
      socket_(std::move(socket)),
      remote_(name_of(socket_)),
      parser_({.max_header_bytes = hub.options.max_header_bytes,
               .max_body_bytes = hub.options.max_body_bytes,
               .max_headers = hub.options.max_headers}),
      phase_began_(Clock::now()) {}

void Connection::start(Admission admission) {
  error_code ec;
  socket_.non_blocking(true, ec);
  socket_.set_option(tcp::no_delay(true), ec);
  probe_when_silent(socket_);
  if (admission == Admission::kRefuse)
    return refuse(
        503, fmt::format("all {} connections are in use; try again later", hub_.options.max_connections));
  start_reading();
}

void Connection::enter(Phase phase) {
  phase_ = phase;
  phase_began_ = Clock::now();
}

void Connection::sweep(Clock::time_point now) {
  const auto in_phase = now - phase_began_;
  const ServerOptions& limits = hub_.options;
  if (is_writing_ && now - write_progress_ > limits.write_timeout) {
    log_info("http: {} took none of {} bytes for {} ms and is cut off", remote_, num_waiting_bytes(),
             limits.write_timeout.count());
    return close();
  }
  if (phase_ == Phase::kIdle && in_phase > limits.idle_timeout) return close();
  if (phase_ == Phase::kLingering && in_phase > kLingerTime) return close();
  if (phase_ == Phase::kHead && in_phase > limits.header_timeout)
    return refuse(408, fmt::format("the headers did not come within {} ms", limits.header_timeout.count()));
  if (phase_ == Phase::kBody && in_phase > limits.body_timeout)
    return refuse(408, fmt::format("the body did not come within {} ms", limits.body_timeout.count()));
  if (hub_.is_draining && is_reading_a_request() && now - hub_.drain_began > limits.drain_read_timeout)
    return refuse(503, "the server is stopping, and this request had not come in whole");
}

void Connection::stop_when_idle() {
  if (phase_ == Phase::kIdle) close();
}

void Connection::answer_unavailable() {
  if (is_reading_a_request() && phase_ != Phase::kIdle)
    return refuse(503, "the server is stopping, and this request had not come in whole");
  if (phase_ != Phase::kHandling || exchange_->stage != Exchange::Stage::kWaiting) return;
  exchange_->client_gone();  // whoever is still at it need not go on
  send_whole(error_response(503, "the server is stopping, and this answer had not come to its end"));
  flush();
}

void Connection::close() {
  if (phase_ == Phase::kClosed) return;
  enter(Phase::kClosed);
  const auto self = shared_from_this();
  error_code ec;
  socket_.close(ec);
  hub_.connections.erase(this);
  if (const auto exchange = std::exchange(exchange_, nullptr)) {
    exchange->connection = nullptr;
    if (exchange->stage == Exchange::Stage::kComplete) {
      exchange->complete();
    } else {
      exchange->client_gone();
    }
  }
  hub_.on_connection_gone();
}

// ---- reading ----

void Connection::start_reading() {
  if (is_reading_ || phase_ == Phase::kClosed || has_client_shut_down_) return;
  is_reading_ = true;
  net::co_spawn(socket_.get_executor(), read_loop(shared_from_this()), CloseOnFailure{weak_from_this()});
}

net::awaitable<void> Connection::read_loop([[maybe_unused]] std::shared_ptr<Connection> self) {
  while (is_reading_ && phase_ != Phase::kClosed) {
    const auto [ec] = co_await socket_.async_wait(tcp::socket::wait_read, kAwait);
    if (ec || phase_ == Phase::kClosed) break;
    read_once();
  }
  is_reading_ = false;
}

void Connection::read_once() {
  error_code ec;
  const size_t n = socket_.read_some(net::buffer(hub_.scratch), ec);
  if (ec == net::error::would_block || ec == net::error::try_again) return;
  if (ec) return client_left();
  if (phase_ == Phase::kClosing || phase_ == Phase::kLingering) return;
  if (phase_ == Phase::kIdle) enter(Phase::kHead);
  input_.append(hub_.scratch.data(), n);
  advance();
}

void Connection::client_left() {
  has_client_shut_down_ = true;
  is_reading_ = false;
  // A client may shut down its side and still read an answer that is already on its way out.
  const bool is_answered =
      phase_ == Phase::kClosing || (exchange_ != nullptr && exchange_->stage == Exchange::Stage::kComplete);
  if (!is_answered || num_waiting_bytes() == 0) close();
}

// All progress that is possible without more input. Calls of it from within (an answer that is complete at
// once) return to the loop that is already running, so a pipeline of requests costs no stack.
void Connection::advance() {
  if (std::exchange(is_advancing_, true)) return;
  while (is_reading_a_request() && !unread().empty()) {
    parse();
    if (parser_.state() != RequestParser::State::kDone) break;
    dispatch();
  }
  is_advancing_ = false;
  input_.erase(0, std::exchange(input_begin_, 0));
  if (phase_ == Phase::kHandling && input_.size() >= kMaxReadAhead) {
    is_reading_ = false;  // ends the loop; on_flushed() comes back here
  } else {
    start_reading();
  }
}

void Connection::parse() {
  input_begin_ += parser_.feed(unread());
  switch (parser_.state()) {
    case RequestParser::State::kFailed:
      return refuse(parser_.problem().status, parser_.problem().message);
    case RequestParser::State::kHead:
      if (phase_ == Phase::kIdle) enter(Phase::kHead);
      return;
    case RequestParser::State::kBody:
      if (phase_ != Phase::kBody) enter(Phase::kBody);
      if (parser_.expects_continue() && unread().empty() && !std::exchange(has_sent_continue_, true)) {
        output_.append(kContinue);
        flush();
      }
      return;
    case RequestParser::State::kDone:
      return;
  }
}

void Connection::dispatch() {
  may_keep_alive_ = parser_.persistence() == RequestParser::Persistence::kKeepAlive;
  is_http10_ = parser_.version() == RequestParser::Version::kHttp10;
  is_head_request_ = parser_.method() == "HEAD";
  has_sent_continue_ = false;
  enter(Phase::kHandling);
  Request request = parser_.take();
  request.remote = remote_;
  exchange_ = std::make_shared<Exchange>();
  exchange_->connection = this;
  const auto exchange = exchange_;
  std::string failure;
  try {
    hub_.handler(std::move(request), make_responder(exchange, hub_.mailbox));
  } catch (const std::exception& e) {
    failure = e.what();
  } catch (...) {
    failure = "not a std::exception";
  }
  if (!failure.empty()) {
    log_error("http: the handler failed: {}", failure);
    Command command;
    command.exchange = exchange;
    hub_.mailbox->push(std::move(command));
  }
  hub_.deliver_mail();  // an answer that the handler gave at once goes out at once
}

// ---- answering ----

void Connection::apply(Command& command) {
  using Kind = Command::Kind;
  using Stage = Exchange::Stage;
  const Stage stage = exchange_->stage;
  const bool is_in_order =
      command.kind == Kind::kAbandon ||
      ((command.kind == Kind::kSend || command.kind == Kind::kStart) ? stage == Stage::kWaiting
                                                                     : stage == Stage::kStreaming);
  if (stage == Stage::kComplete || !is_in_order) {
    if (command.kind != Kind::kAbandon)
      log_error("http: call {} of a Responder in stage {} is ignored", static_cast<int>(command.kind),
                static_cast<int>(stage));
    return;
  }
  switch (command.kind) {
    case Kind::kSend:
      return send_whole(std::move(*command.response));
    case Kind::kStart:
      return start_stream(std::move(*command.response));
    case Kind::kAbandon:
      return abandon();
    case Kind::kWrite:
      return stream(command.data);
    case Kind::kFinish:
      if (framing_ == Framing::kChunked && !is_head_request_) output_.append(kLastChunk);
      exchange_->stage = Stage::kComplete;
      return;
  }
}

Reuse Connection::decide_reuse(const std::vector<Header>& headers) {
  may_keep_alive_ = may_keep_alive_ && !hub_.is_draining && !has_client_shut_down_ && !asks_to_close(headers);
  if (!may_keep_alive_) return Reuse::kClose;
  return is_http10_ ? Reuse::kSaidKeepAlive : Reuse::kKeepAlive;
}

void Connection::send_whole(Response response) {
  if (!is_final(response.status)) {
    log_error("http: the handler answered with status {}, which is no final one", response.status);
    response = error_response(500, "the server failed to answer this request; its log says why");
  }
  const bool has_body = allows_body(response.status);
  append_head(output_,
              {.status = response.status,
               .content_type = has_body ? std::string_view(response.content_type) : std::string_view(),
               .headers = &response.headers,
               .framing = has_body ? Framing::kLength : Framing::kNone,
               .length = response.body.size(),
               .reuse = decide_reuse(response.headers),
               .date = hub_.date()});
  if (has_body && !is_head_request_) output_.append(response.body);
  exchange_->stage = Exchange::Stage::kComplete;
}

void Connection::start_stream(Response response) {
  if (!is_final(response.status)) return send_whole(std::move(response));
  framing_ = !allows_body(response.status) ? Framing::kNone
             : is_http10_                  ? Framing::kToClose
                                           : Framing::kChunked;
  if (framing_ == Framing::kToClose) may_keep_alive_ = false;
  append_head(output_, {.status = response.status,
                        .content_type = response.content_type,
                        .headers = &response.headers,
                        .framing = framing_,
                        .length = 0,
                        .reuse = decide_reuse(response.headers),
                        .date = hub_.date()});
  exchange_->stage = Exchange::Stage::kStreaming;
}

void Connection::stream(std::string_view data) {
  if (is_head_request_ || framing_ == Framing::kNone) return;
  if (num_waiting_bytes() > hub_.options.max_queued_write_bytes) write_some();
  if (num_waiting_bytes() > hub_.options.max_queued_write_bytes) {
    log_info("http: {} let {} bytes wait and is cut off", remote_, num_waiting_bytes());
    close();
  }
  if (phase_ == Phase::kClosed) return;
  if (framing_ == Framing::kChunked) return append_chunk(output_, data);
  output_.append(data);
}

void Connection::abandon() {
  if (exchange_->stage == Exchange::Stage::kStreaming) {
    // What was written still goes out; a chunked body that ends without its last chunk says that it broke
    // off.
    may_keep_alive_ = false;
    exchange_->stage = Exchange::Stage::kComplete;
    return;
  }
  send_whole(error_response(500, "the server failed to answer this request; its log says why"));
}

// An answer to something that is no request: afterwards nobody knows where the next request would begin.
void Connection::refuse(int status, std::string_view message) {
  enter(Phase::kClosing);
  input_.clear();
  input_begin_ = 0;
  const Response response = error_response(status, message);
  append_head(output_, {.status = response.status,
                        .content_type = response.content_type,
                        .headers = &response.headers,
                        .framing = Framing::kLength,
                        .length = response.body.size(),
                        .reuse = Reuse::kClose,
                        .date = hub_.date()});
  output_.append(response.body);
  flush();
}

// ---- writing ----

void Connection::flush() {
  if (phase_ == Phase::kClosed || is_writing_) return;
  write_some();
  if (phase_ == Phase::kClosed) return;
  if (num_waiting_bytes() == 0) return on_flushed();
  is_writing_ = true;
  write_progress_ = Clock::now();
  net::co_spawn(socket_.get_executor(), write_loop(shared_from_this()), CloseOnFailure{weak_from_this()});
}

net::awaitable<void> Connection::write_loop([[maybe_unused]] std::shared_ptr<Connection> self) {
  while (num_waiting_bytes() > 0) {
    const auto [ec] = co_await socket_.async_wait(tcp::socket::wait_write, kAwait);
    if (phase_ == Phase::kClosed) co_return;
    if (ec) break;
    write_some();
    if (phase_ == Phase::kClosed) co_return;
  }
  is_writing_ = false;
  on_flushed();
}

void Connection::write_some() {
  while (num_waiting_bytes() > 0) {
    error_code ec;
    const size_t n = socket_.write_some(net::buffer(output_.data() + output_begin_, num_waiting_bytes()), ec);
    if (ec == net::error::would_block || ec == net::error::try_again) break;
    if (ec) return close();
    output_begin_ += n;
    write_progress_ = Clock::now();
  }
  if (output_begin_ == output_.size()) {
    output_begin_ = 0;
    output_.clear();
    if (output_.capacity() > kMaxKeptOutput) output_.shrink_to_fit();
  } else if (output_begin_ > kMaxKeptOutput && output_begin_ > output_.size() / 2) {
    output_.erase(0, std::exchange(output_begin_, 0));
  }
}

void Connection::on_flushed() {
  if (phase_ == Phase::kClosing) return linger();
  if (phase_ != Phase::kHandling || exchange_->stage != Exchange::Stage::kComplete) return;
  exchange_->connection = nullptr;
  exchange_->complete();
  exchange_ = nullptr;
  if (!may_keep_alive_ || hub_.is_draining) return linger();
  if (has_client_shut_down_) return close();
  enter(Phase::kIdle);
  advance();
}

void Connection::linger() {
  enter(Phase::kLingering);
  error_code ec;
  socket_.shutdown(tcp::socket::shutdown_send, ec);
  if (ec || has_client_shut_down_) return close();
  start_reading();
}

}  // namespace lockstep::serving::http
