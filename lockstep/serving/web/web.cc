#include "lockstep/serving/web/web.h"

#include <algorithm>
#include <string>

namespace lockstep::serving::web {
namespace {

// Nothing but this server's own files and answers: even if model text became markup, it could load and run
// nothing.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri "
    "'none'; "
    "form-action 'none'; frame-ancestors 'none'";

}  // namespace

std::optional<http::Response> page_response(const http::Request& request) {
  const auto files = page_files();
  const auto file =
      std::find_if(files.begin(), files.end(), [&](const PageFile& f) { return f.path == request.target; });
  if (file == files.end()) return std::nullopt;
  if (request.method != "GET" && request.method != "HEAD") {
    http::Response refusal = http::error_response(405, "the chat page can only be read: use GET");
    refusal.headers.push_back({"Allow", "GET, HEAD"});
    return refusal;
  }
  const std::string tag = '"' + std::string(file->hash) + '"';
  http::Response response{
      .status = 200, .content_type = std::string(file->content_type), .headers = {}, .body = {}};
  response.headers = {{"ETag", tag},
                      {"Cache-Control", "no-cache"},  // keep it, but ask whether it is still the one
                      {"Content-Security-Policy", std::string(kPolicy)},
                      {"X-Content-Type-Options", "nosniff"},
                      {"Referrer-Policy", "no-referrer"}};
  if (request.header("If-None-Match").find(tag) != std::string_view::npos) {
    response.status = 304;
  } else {
    response.body = std::string(file->bytes);
  }
  return response;
}

}  // namespace lockstep::serving::web
