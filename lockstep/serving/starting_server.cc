#include "lockstep/serving/starting_server.h"

#include <utility>

#include "lockstep/base/json.h"

namespace lockstep::serving {
namespace {

http::Response starting(const http::Request& request) {
  const bool is_good = request.target == "/livez";
  http::Response response{.status = is_good ? 200 : 503,
                          .headers = {{"Cache-Control", "no-store"}},
                          .body = to_text({{"status", is_good ? "ok" : "unavailable"},
                                           {"state", "starting"},
                                           {"reason", "the model is being loaded and warmed up"}})};
  if (!is_good) response.headers.push_back({"Retry-After", "5"});
  return response;
}

}  // namespace

Result<std::unique_ptr<StartingServer>> StartingServer::bind(http::ServerOptions options) {
  auto server = http::Server::bind(std::move(options));
  if (!server) return server.error();
  return std::unique_ptr<StartingServer>(new StartingServer(std::move(*server)));
}

StartingServer::~StartingServer() {
  if (!thread_.joinable()) return;
  server_->stop();
  thread_.join();
}

Status StartingServer::open() {
  is_open_ = true;
  return server_->open([this](http::Request request, std::shared_ptr<http::Responder> responder) {
    std::shared_ptr<const http::Handler> handler;
    {
      const std::lock_guard lock(mutex_);
      handler = handler_;
    }
    if (handler) return (*handler)(std::move(request), std::move(responder));
    responder->send(starting(request));
  });
}

Status StartingServer::answer_starting() {
  if (Status status = open(); !status) return status;
  thread_ = std::thread([this] { server_->run(); });
  return Done{};
}

Status StartingServer::hand_over(http::Handler handler) {
  {
    const std::lock_guard lock(mutex_);
    handler_ = std::make_shared<const http::Handler>(std::move(handler));
  }
  return is_open_ ? Status(Done{}) : open();
}

void StartingServer::run() {
  if (thread_.joinable()) return thread_.join();
  server_->run();
}

}  // namespace lockstep::serving
