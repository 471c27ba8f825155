#include "lockstep/serving/cors.h"

#include <algorithm>
#include <utility>

namespace lockstep::serving {
namespace {

constexpr std::string_view kOrigin = "Origin";

class NamingResponder final : public http::Responder {
 public:
  NamingResponder(std::string origin, std::shared_ptr<http::Responder> inner)
      : origin_(std::move(origin)), inner_(std::move(inner)) {}

  void send(http::Response response) override {
    add(response.headers);
    inner_->send(std::move(response));
  }
  void start_stream(int status, std::string content_type, std::vector<http::Header> headers) override {
    add(headers);
    inner_->start_stream(status, std::move(content_type), std::move(headers));
  }
  void write(std::string chunk) override { inner_->write(std::move(chunk)); }
  void finish() override { inner_->finish(); }
  bool connected() const override { return inner_->connected(); }
  void on_disconnect(std::function<void()> callback) override { inner_->on_disconnect(std::move(callback)); }

 private:
  void add(std::vector<http::Header>& headers) const {
    headers.push_back({"Access-Control-Allow-Origin", origin_});
    headers.push_back({"Access-Control-Expose-Headers", "Retry-After, X-Request-Id"});
    headers.push_back({"Vary", std::string(kOrigin)});
  }

  const std::string origin_;
  const std::shared_ptr<http::Responder> inner_;
};

}  // namespace

bool CorsPolicy::allows(const http::Request& request) const {
  const std::string_view origin = request.header(kOrigin);
  return !origin.empty() && std::any_of(origins_.begin(), origins_.end(), [&](const std::string& allowed) {
    return allowed == "*" || allowed == origin;
  });
}

bool CorsPolicy::is_preflight(const http::Request& request) {
  return request.method == "OPTIONS" && !request.header("Access-Control-Request-Method").empty();
}

http::Response CorsPolicy::preflight_answer(const http::Request& request) {
  http::Response response{.status = 204, .content_type = {}};
  response.headers = {
      {"Access-Control-Allow-Methods", "GET, POST, DELETE"},
      {"Access-Control-Allow-Headers", std::string(request.header("Access-Control-Request-Headers"))},
      {"Access-Control-Max-Age", "600"}};
  return response;
}

std::shared_ptr<http::Responder> CorsPolicy::naming_origin(const http::Request& request,
                                                           std::shared_ptr<http::Responder> responder) {
  return std::make_shared<NamingResponder>(std::string(request.header(kOrigin)), std::move(responder));
}

}  // namespace lockstep::serving
