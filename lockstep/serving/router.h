#pragma once
// Which handler answers a request: paths, methods, API keys, and whether a handler runs on the I/O thread or
// on a worker. Answers 404, 405 (with Allow), 401, 415 and, when too many requests wait for a worker, 503 by
// itself.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/serving/cors.h"
#include "lockstep/serving/http/http.h"
#include "lockstep/serving/openai/api_error.h"
#include "lockstep/serving/request_log.h"
#include "lockstep/serving/serving_metrics.h"
#include "lockstep/serving/task_queue.h"

namespace lockstep::serving {

using Endpoint = std::function<void(const http::Request&, std::shared_ptr<http::Responder>)>;

enum class Access : unsigned char { kOpen, kNeedsKey };
enum class RunsOn : unsigned char { kIoThread, kWorker };  // the I/O thread is for what cannot take time

struct Route {
  std::string method;  // "GET" answers HEAD as well
  std::string path;    // one that ends in '/' matches everything below it, but not itself
  Access access = Access::kNeedsKey;
  RunsOn runs_on = RunsOn::kWorker;
  Endpoint endpoint;
  openai::ErrorForm error_form = openai::error_response;  // of what the router itself refuses
};

class Router {
 public:
  // Without keys everything is open. `metrics` must outlive the router.
  Router(std::vector<std::string> api_keys, CorsPolicy cors, std::shared_ptr<TaskQueue> workers,
         size_t max_waiting, ServingMetrics& metrics, RequestLog log = RequestLog::kFailures);

  void add(Route route);
  void handle(http::Request request, std::shared_ptr<http::Responder> responder) const;

 private:
  const Route* find(const http::Request& request, std::string& allowed) const;
  bool has_key(const http::Request& request) const;

  std::vector<std::string> api_keys_;
  CorsPolicy cors_;
  std::shared_ptr<TaskQueue> workers_;
  size_t max_waiting_;
  ServingMetrics& metrics_;
  const RequestLog log_;
  std::vector<Route> routes_;
};

// The key that a client sends: as "Authorization: Bearer KEY", or as Anthropic's clients do, in x-api-key.
std::string_view given_key(const http::Request& request);

// Takes the same time wherever the texts differ; only their lengths can be told from it.
bool equal_in_constant_time(std::string_view a, std::string_view b);

// "%2F" and the like decoded; what is not valid stays.
std::string percent_decoded(std::string_view text);

}  // namespace lockstep::serving
