#pragma once
// The front door of serving: an engine behind OpenAI's HTTP API. It owns tokenizer, template, parsers,
// metrics and the listening socket; the engine gets token ids and nothing else. Signals and flags are the
// caller's.
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/runtime/engine.h"
#include "lockstep/serving/chat.h"
#include "lockstep/serving/request_log.h"

namespace lockstep::serving {

struct ServeOptions {
  std::string host = "127.0.0.1";
  int port = 8000;                // 0: any free one, see port()
  std::string served_model_name;  // empty: the engine's name of the model
  std::vector<std::string>
      api_keys;  // empty: everybody may ask. What says how the server is, and the page, are always open
  std::vector<std::string> cors_origins;  // pages of others that browsers may let read answers; "*" is all
  // The folder's tokenizer and template, where the caller has loaded them already; nothing: make() does.
  std::shared_ptr<const ChatModel> chat_model;
  size_t max_body_bytes = size_t{32} << 20;
  size_t max_header_bytes = size_t{64} << 10;
  int max_connections = 4096;
  size_t max_waiting_requests = 1024;  // requests that no worker has looked at yet; further ones get 503
  RequestLog request_log = RequestLog::kFailures;
  int num_workers = 2;  // threads that render templates and encode prompts
  std::chrono::seconds drain_timeout{30};
};

class StartingServer;

// The address of a server that is still to come, bound: a port that is taken is known before an engine is
// started for it. Until the server is made clients are refused, or told that it is starting.
class ReservedAddress {
 public:
  static Result<ReservedAddress> bind(const ServeOptions& options);
  int port() const;
  // Clients get 503 with Retry-After until the server is made; /livez is 200. At most once.
  Status answer_starting();
  ReservedAddress(ReservedAddress&&) noexcept;
  ~ReservedAddress();

 private:
  friend class ApiServer;
  explicit ReservedAddress(std::unique_ptr<StartingServer> server);
  std::unique_ptr<StartingServer> server_;
};

class ApiServer {
 public:
  // Loads the model folder's tokenizer and template if need be, binds and listens. The engine must outlive
  // the server.
  static Result<std::unique_ptr<ApiServer>> make(runtime::Engine& engine, ServeOptions options);
  // The same at an address that was bound with the same options.
  static Result<std::unique_ptr<ApiServer>> make(runtime::Engine& engine, ServeOptions options,
                                                 ReservedAddress address);
  ~ApiServer();
  ApiServer(const ApiServer&) = delete;
  ApiServer& operator=(const ApiServer&) = delete;

  int port() const;

  // Serves on the calling thread until stop() was called and answers on their way have ended; those
  // that have not within drain_timeout end with an error, about a second later at the latest.
  void run();

  // From any thread.
  void stop();

 private:
  class Impl;
  explicit ApiServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::serving
