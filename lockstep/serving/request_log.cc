#include "lockstep/serving/request_log.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>
#include <vector>

#include "lockstep/base/log_format.h"
#include "lockstep/serving/openai/reply_head.h"

namespace lockstep::serving {
namespace {

using Clock = std::chrono::steady_clock;

bool equal_names(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](char x, char y) { return lower(x) == lower(y); });
}

class IdentifiedResponder final : public http::Responder {
 public:
  IdentifiedResponder(std::string id, std::string method, std::string path,
                      std::shared_ptr<http::Responder> inner, RequestLog log)
      : id_(std::move(id)),
        method_(std::move(method)),
        path_(std::move(path)),
        inner_(std::move(inner)),
        log_(log) {}
  // A stream that nobody finished, or a request that nobody answered: the client has gone, or a bug.
  ~IdentifiedResponder() override {
    if (!is_answered_.load()) note(status_.load(), "left");
  }

  void send(http::Response response) override {
    response.headers.push_back({std::string(kRequestIdHeader), id_});
    const int status = response.status;
    const std::string why = status >= 500 ? response.body.substr(0, kMostOfAReason) : std::string();
    inner_->send(std::move(response));
    if (!is_answered_.exchange(true)) note(status, why);
  }
  void start_stream(int status, std::string content_type, std::vector<http::Header> headers) override {
    headers.push_back({std::string(kRequestIdHeader), id_});
    status_ = status;
    inner_->start_stream(status, std::move(content_type), std::move(headers));
  }
  void write(std::string chunk) override { inner_->write(std::move(chunk)); }
  void finish() override {
    inner_->finish();
    if (!is_answered_.exchange(true)) note(status_.load(), failure_);
  }
  void note_failure(std::string_view why) override { failure_ = why.substr(0, kMostOfAReason); }
  bool connected() const override { return inner_->connected(); }
  void on_disconnect(std::function<void()> callback) override { inner_->on_disconnect(std::move(callback)); }

 private:
  static constexpr size_t kMostOfAReason = 400;

  // Health checks that say no are no failures of requests: orchestrators ask every second.
  void note(int status, std::string_view why) const {
    const bool has_failed = (status >= 500 && status != 503) || !failure_.empty();
    if (!has_failed && log_ == RequestLog::kFailures) return;
    std::vector<LogField> fields = {
        {"request_id", id_},
        {"method", method_},
        {"path", path_},
        {"status", std::to_string(status)},
        {"seconds", fmt::format("{:.4f}", std::chrono::duration<double>(Clock::now() - received_).count())}};
    if (!why.empty()) fields.push_back({"why", std::string(why)});
    log_fields(has_failed ? LogLevel::kWarning : LogLevel::kInfo, has_failed ? "request failed" : "request",
               fields);
  }

  const std::string id_, method_, path_;
  const std::shared_ptr<http::Responder> inner_;
  const RequestLog log_;
  const Clock::time_point received_ = Clock::now();
  std::string failure_;  // of a stream
  std::atomic<int> status_{0};
  std::atomic<bool> is_answered_{false};
};

}  // namespace

bool is_request_id(std::string_view id) {
  constexpr size_t kLongest = 128;
  const auto may_stand = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_.:/=+").find(c) != std::string_view::npos;
  };
  return !id.empty() && id.size() <= kLongest && std::all_of(id.begin(), id.end(), may_stand);
}

std::shared_ptr<http::Responder> identified(http::Request& request,
                                            std::shared_ptr<http::Responder> responder, RequestLog log) {
  std::string id(request.header(kRequestIdHeader));
  if (!is_request_id(id)) {
    id = openai::random_id("req_");
    std::erase_if(request.headers,
                  [](const http::Header& header) { return equal_names(header.name, kRequestIdHeader); });
    request.headers.push_back({std::string(kRequestIdHeader), id});
  }
  return std::make_shared<IdentifiedResponder>(std::move(id), request.method, request.target,
                                               std::move(responder), log);
}

}  // namespace lockstep::serving
