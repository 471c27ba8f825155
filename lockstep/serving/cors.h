#pragma once
// Cross-origin requests: which pages of other servers may read answers in a browser. Without an origin in the
// list nothing is said to anybody, and browsers refuse.
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/serving/http/http.h"

namespace lockstep::serving {

class CorsPolicy {
 public:
  // "https://example.org", or "*" for all of them.
  explicit CorsPolicy(std::vector<std::string> origins) : origins_(std::move(origins)) {}

  // Whether the request's page may read the answer.
  bool allows(const http::Request& request) const;
  static bool is_preflight(const http::Request& request);
  static http::Response preflight_answer(const http::Request& request);
  // Adds what browsers look for to whatever is answered.
  static std::shared_ptr<http::Responder> naming_origin(const http::Request& request,
                                                        std::shared_ptr<http::Responder> responder);

 private:
  std::vector<std::string> origins_;
};

}  // namespace lockstep::serving
