#pragma once
// An HTTP/1.1 server: requests in whole, answers whole or streamed. It knows no JSON API, no model, no
// engine. All connections live on the one thread that calls Server::run(), the I/O thread; answers may come
// from any thread. The front door of this folder: everything else in it is private to it.
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/check.h"

namespace lockstep::serving::http {

struct Header {
  std::string name, value;
};

struct Request {
  std::string method;  // as sent; methods are case-sensitive
  std::string target;  // the path, percent-encoding left alone, without the query
  std::string query;   // what follows the first '?', without it
  std::vector<Header> headers;
  std::string body;    // unchunked
  std::string remote;  // "127.0.0.1:40312" or "[::1]:40312"

  // The first header of that name in any case; "" when there is none.
  std::string_view header(std::string_view name) const;
};

// Content-Length, Transfer-Encoding and Date are the server's: among `headers` they are left out.
// "Connection: close" in `headers` is obeyed. Characters that would end a header are replaced by spaces.
struct Response {
  int status = 200;
  std::string content_type = "application/json";  // none when empty
  std::vector<Header> headers = {};
  std::string body = {};
};

// OpenAI's error shape: {"error": {"message", "type", "param": null, "code": null}}. The type is
// "server_error" from 500 on, else "invalid_request_error".
Response error_response(int status, std::string_view message);

// One exchange. Any thread may call any method; calls after the client has gone are no-ops, and so are calls
// after the Server is no more. An answer is either one send(), or start_stream(), any number of write()s and
// one finish(); calls out of that order are logged and ignored. A Responder that is dropped without an answer
// becomes a 500, or a broken-off stream.
class Responder {
 public:
  virtual ~Responder() = default;
  virtual void send(Response response) = 0;
  virtual void start_stream(int status, std::string content_type, std::vector<Header> headers) = 0;
  virtual void write(std::string chunk) = 0;
  virtual void finish() = 0;
  // Before finish(): what the stream ends with is an error, of which its status says nothing.
  virtual void note_failure(std::string_view /*why*/) {}
  virtual bool connected() const = 0;
  // Called once, on the I/O thread, when the client goes (or the server gives the connection up) before the
  // answer is complete; at once, on the calling thread, when that has happened already. A client that closes
  // only its sending side counts as gone. The callback must not block.
  virtual void on_disconnect(std::function<void()> callback) = 0;
};

// Runs on the I/O thread and must not block. An exception becomes a 500 (its text goes to the log, not to the
// client). HEAD requests are to be answered like GET: the server leaves the body out.
using Handler = std::function<void(Request, std::shared_ptr<Responder>)>;

struct ServerOptions {
  std::string host = "127.0.0.1";  // a name or an address, IPv6 with or without brackets
  int port = 8000;                 // 0: any free one, see Server::port()
  size_t max_body_bytes = size_t{16} << 20;
  size_t max_header_bytes = size_t{64} << 10;  // request line and headers together
  int max_connections = 4096;                  // further ones are answered with 503
  // Deadlines, kept to a quarter of a second: between requests; from a request's first byte to its last
  // header; from there to the end of its body; for the client to take any of the bytes that wait for it.
  std::chrono::milliseconds idle_timeout = std::chrono::seconds(75);
  std::chrono::milliseconds header_timeout = std::chrono::seconds(10);
  std::chrono::milliseconds body_timeout = std::chrono::seconds(60);
  std::chrono::milliseconds write_timeout = std::chrono::seconds(60);
  size_t max_queued_write_bytes = size_t{8} << 20;  // a client that lets more than this wait is cut off
  int max_headers = 128;
  std::chrono::milliseconds drain_timeout = std::chrono::seconds(30);  // how long stop() lets exchanges go on
  std::chrono::milliseconds drain_read_timeout = std::chrono::seconds(2);
};

class Server {
 public:
  // Binds: the port is ours, or the error says that it cannot be. Clients are refused until open().
  static Result<std::unique_ptr<Server>> bind(ServerOptions options);
  // Clients may connect from now on; they are served once run() runs. Once, before run().
  Status open(Handler handler);
  // Both at once.
  static Result<std::unique_ptr<Server>> listen(ServerOptions options, Handler handler);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const;

  // Serves on the calling thread until stop() was called and its work is done. At most once.
  void run();

  // From any thread: stops accepting, closes idle connections and lets exchanges in flight end, at most
  // drain_timeout. A request that is on its way in may come in whole for drain_read_timeout, then it gets a
  // 503. When drain_timeout is over, when_drain_is_over() is heard, what has no status yet gets a 503, and a
  // second later connections are closed and run() returns.
  void stop();

  // From any thread: called on the I/O thread, more than once, when streams should be ended with what their
  // clients take for an error. It must not block; what it refers to must outlive the server.
  void when_drain_is_over(std::function<void()> callback);

 private:
  class Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::serving::http
