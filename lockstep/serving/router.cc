#include "lockstep/serving/router.h"

#include <algorithm>
#include <charconv>
#include <exception>
#include <utility>

#include "lockstep/base/log.h"

namespace lockstep::serving {
namespace {

bool matches_path(const Route& route, std::string_view target) {
  if (!route.path.ends_with('/') || route.path == "/") return target == route.path;
  return target.starts_with(route.path) && target.size() > route.path.size();
}

bool matches_method(const Route& route, std::string_view method) {
  return method == route.method || (method == "HEAD" && route.method == "GET");
}

std::string_view bearer_token(std::string_view authorization) {
  constexpr std::string_view kScheme = "bearer ";
  if (authorization.size() < kScheme.size()) return {};
  for (size_t i = 0; i < kScheme.size(); ++i) {
    const char c = authorization[i];
    if ((c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c) != kScheme[i]) return {};
  }
  authorization.remove_prefix(kScheme.size());
  while (authorization.starts_with(' ')) authorization.remove_prefix(1);
  while (authorization.ends_with(' ')) authorization.remove_suffix(1);
  return authorization;
}

bool is_identity(std::string_view encoding) {
  constexpr std::string_view kIdentity = "identity";
  return std::equal(encoding.begin(), encoding.end(), kIdentity.begin(), kIdentity.end(), [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? static_cast<char>(a + 32) : a) == b;
  });
}

// An exception here is a bug of ours; its text is for the log.
void run(const Route& route, const http::Request& request,
         const std::shared_ptr<http::Responder>& responder) {
  try {
    route.endpoint(request, responder);
  } catch (const std::exception& e) {
    log_error("{} {} failed: {}", request.method, request.target, e.what());
    responder->send(
        route.error_form({.status = 500, .message = "the server failed on this request; its log says why"}));
  }
}

}  // namespace

Router::Router(std::vector<std::string> api_keys, CorsPolicy cors, std::shared_ptr<TaskQueue> workers,
               size_t max_waiting, ServingMetrics& metrics, RequestLog log)
    : api_keys_(std::move(api_keys)),
      cors_(std::move(cors)),
      workers_(std::move(workers)),
      max_waiting_(max_waiting),
      metrics_(metrics),
      log_(log) {}

void Router::add(Route route) { routes_.push_back(std::move(route)); }

void Router::handle(http::Request request, std::shared_ptr<http::Responder> responder) const {
  responder = identified(request, std::move(responder), log_);
  if (cors_.allows(request)) {
    responder = CorsPolicy::naming_origin(request, std::move(responder));
    // Browsers ask without the key whether they may send it.
    if (CorsPolicy::is_preflight(request)) return responder->send(CorsPolicy::preflight_answer(request));
  }
  std::string allowed;
  const Route* route = find(request, allowed);
  metrics_.count_request(route == nullptr ? "other" : route->path);
  const auto refuse = [&](openai::ApiError error, std::vector<http::Header> headers = {}) {
    metrics_.count_refusal(route == nullptr ? "other" : route->path, error.status);
    http::Response response = route == nullptr ? openai::error_response(error) : route->error_form(error);
    for (http::Header& header : headers) response.headers.push_back(std::move(header));
    responder->send(std::move(response));
  };
  if (route == nullptr && allowed.empty())
    return refuse(
        {.status = 404, .message = fmt::format("Invalid URL ({} {})", request.method, request.target)});
  if (route == nullptr)
    return refuse({.status = 405,
                   .message = fmt::format("Not allowed to {} on {} (it takes {})", request.method,
                                          request.target, allowed),
                   .code = "method_not_allowed"},
                  {{"Allow", allowed}});
  if (route->access == Access::kNeedsKey && !has_key(request))
    return refuse(
        {.status = 401,
         .message = given_key(request).empty()
                        ? "You did not provide an API key: send it in the header Authorization: Bearer KEY"
                        : "Incorrect API key provided",
         .code = "invalid_api_key"});
  if (const std::string_view encoding = request.header("Content-Encoding");
      !encoding.empty() && !is_identity(encoding))
    return refuse(
        {.status = 415,
         .message = fmt::format("Content-Encoding {} is not read: send the body as it is", encoding),
         .code = "unsupported_content_encoding"},
        {{"Accept-Encoding", "identity"}});
  if (route->runs_on == RunsOn::kIoThread) return run(*route, request, responder);
  if (workers_->size() >= max_waiting_)
    return refuse({.status = 503,
                   .message = fmt::format("{} requests are waiting already; try again later", max_waiting_),
                   .code = "overloaded"});
  workers_->push([route, request = std::make_shared<http::Request>(std::move(request)),
                  responder = std::move(responder)] {
    // Whoever has gone while it waited is not worked for.
    if (responder->connected()) run(*route, *request, responder);
  });
}

const Route* Router::find(const http::Request& request, std::string& allowed) const {
  for (const Route& route : routes_) {
    if (!matches_path(route, request.target)) continue;
    if (matches_method(route, request.method)) return &route;
    if (!allowed.empty()) allowed += ", ";
    allowed += route.method == "GET" ? "GET, HEAD" : route.method;
  }
  return nullptr;
}

bool Router::has_key(const http::Request& request) const {
  if (api_keys_.empty()) return true;
  const std::string_view given = given_key(request);
  bool matched = false;
  for (const std::string& key : api_keys_) matched = equal_in_constant_time(given, key) || matched;
  return matched;
}

std::string_view given_key(const http::Request& request) {
  const std::string_view bearer = bearer_token(request.header("Authorization"));
  return bearer.empty() ? request.header("x-api-key") : bearer;
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  unsigned difference = a.size() != b.size();
  for (size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned>(static_cast<unsigned char>(a[i]) ^
                                        static_cast<unsigned char>(i < b.size() ? b[i] : 0));
  return difference == 0;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char byte = 0;
    if (text[i] == '%' && i + 2 < text.size()) {
      const auto [end, failure] = std::from_chars(text.data() + i + 1, text.data() + i + 3, byte, 16);
      if (failure == std::errc() && end == text.data() + i + 3) {
        out += static_cast<char>(byte);
        i += 2;
        continue;
      }
    }
    out += text[i];
  }
  return out;
}

}  // namespace lockstep::serving
