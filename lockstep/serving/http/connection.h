#pragma once
// One client: reads requests one after another, hands each to the handler and writes its answer before the
// next. Lives on the I/O thread. It keeps reading while an answer is being made, which is how a client that
// leaves is noticed. No buffer is pinned while it waits: it waits for readiness, then reads into the hub's
// scratch and writes from its own output. Includes Asio: only connection.cc and server.cc may include this.
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "lockstep/serving/http/exchange.h"
#include "lockstep/serving/http/http.h"
#include "lockstep/serving/http/request_parser.h"
#include "lockstep/serving/http/response_writer.h"

namespace lockstep::serving::http {

using Clock = std::chrono::steady_clock;
using boost::asio::ip::tcp;

// What the connections of one server share.
struct Hub {
  ServerOptions options;
  Handler handler;
  std::shared_ptr<Mailbox> mailbox;
  std::unordered_map<Connection*, std::shared_ptr<Connection>> connections;
  std::vector<char> scratch = std::vector<char>(size_t{64} << 10);
  bool is_draining = false;
  Clock::time_point drain_began;
  std::function<void()> on_connection_gone;

  std::string_view date();  // of now, as a Date header says it
  void deliver_mail();      // carries out what Responders said; only on the I/O thread

 private:
  std::time_t date_second_ = -1;
  std::string date_;
  std::vector<Command> spare_batch_;
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  enum class Admission : unsigned char { kServe, kRefuse };  // kRefuse: 503, then closed

  Connection(Hub& hub, tcp::socket socket);
  void start(Admission admission);
  void sweep(Clock::time_point now);  // closes it if it let a deadline pass
  void stop_when_idle();              // called once, when the server begins to drain
  void answer_unavailable();          // 503 for what has not come in whole or has no status yet
  void close();                       // at once; an exchange in flight learns that the client is gone

  // For Hub::deliver_mail: all commands of a batch are applied, then each touched connection flushes once.
  void apply(Command& command);
  void flush();
  bool is_touched = false;

 private:
  enum class Phase : unsigned char {
    kIdle,       // no byte of a request yet
    kHead,       // some bytes of one
    kBody,       // its headers are complete
    kHandling,   // an exchange is in flight, or its answer is being written
    kClosing,    // an answer of the server's own is being written, after which the connection ends
    kLingering,  // our side is shut down; what the client still sends is thrown away, so that it can read the
                 // answer
    kClosed,
  };

  boost::asio::awaitable<void> read_loop(std::shared_ptr<Connection> self);
  boost::asio::awaitable<void> write_loop(std::shared_ptr<Connection> self);
  void start_reading();
  void read_once();
  void client_left();
  void advance();
  void parse();
  void dispatch();
  void refuse(int status, std::string_view message);
  void send_whole(Response response);
  void start_stream(Response response);
  void stream(std::string_view data);
  void abandon();
  Reuse decide_reuse(const std::vector<Header>& headers);
  void write_some();
  void on_flushed();
  void linger();
  void enter(Phase phase);

  bool is_reading_a_request() const {
    return phase_ == Phase::kIdle || phase_ == Phase::kHead || phase_ == Phase::kBody;
  }
  size_t num_waiting_bytes() const { return output_.size() - output_begin_; }
  std::string_view unread() const { return std::string_view(input_).substr(input_begin_); }

  Hub& hub_;
  tcp::socket socket_;
  std::string remote_;
  RequestParser parser_;

  Phase phase_ = Phase::kIdle;
  Clock::time_point phase_began_;
  bool is_advancing_ = false, is_reading_ = false, is_writing_ = false;
  bool has_client_shut_down_ = false, has_sent_continue_ = false;

  std::string input_;  // bytes that the parser has not taken; from input_begin_ on
  size_t input_begin_ = 0;
  std::string output_;  // bytes that the client has not taken; from output_begin_ on
  size_t output_begin_ = 0;
  Clock::time_point write_progress_;

  std::shared_ptr<Exchange> exchange_;  // in kHandling
  bool is_head_request_ = false, is_http10_ = false;
  bool may_keep_alive_ = false;  // what the request allows; then what the answer says
  Framing framing_ = Framing::kLength;
};

}  // namespace lockstep::serving::http
