// The client for load against the server of this folder, and against one that misbehaves.
#include "lockstep/serving/http/client.h"

#include <gtest/gtest.h>

#include <mutex>
#include <thread>

namespace lockstep::serving::http {
namespace {

class Served {
 public:
  explicit Served(Handler handler, ServerOptions options = {}) {
    options.port = 0;
    server_ = std::move(*Server::listen(std::move(options), std::move(handler)));
    thread_ = std::thread([this] { server_->run(); });
  }
  ~Served() {
    server_->stop();
    thread_.join();
  }
  Url url() const { return {.host = "127.0.0.1", .port = server_->port()}; }

 private:
  std::unique_ptr<Server> server_;
  std::thread thread_;
};

constexpr std::chrono::seconds kLong{20};

TEST(HttpClient, ReadsUrls) {
  const auto url = *parse_url("http://example.org:8000/v1/");
  EXPECT_EQ(std::tuple(url.host, url.port, url.path), std::tuple("example.org", 8000, "/v1"));
  EXPECT_EQ(parse_url("http://[::1]:9")->host, "::1");
  EXPECT_EQ(parse_url("http://h")->port, 80);
  for (const char* wrong : {"", "h:80", "https://h", "http://", "http://h:0", "http://h:70000", "http://h:x",
                            "http://[::1", "http://a@b", "http://h/a b", "http://h:"})
    EXPECT_FALSE(parse_url(wrong).ok()) << wrong;
}

TEST(HttpClient, ManyRequestsAtOnceEachGetTheirOwnAnswer) {
  const Served served([](const Request& request, const std::shared_ptr<Responder>& responder) {
    if (request.target == "/stream") {
      responder->start_stream(200, "text/plain", {});
      for (int i = 0; i < 3; ++i) responder->write(request.body);
      return responder->finish();
    }
    responder->send({.status = 201, .body = request.method + request.body});
  });
  const auto client = std::move(*Client::make(served.url(), kLong));
  std::vector<std::string> bodies(100);
  std::vector<ClientOutcome> outcomes(100);
  for (size_t i = 0; i < 100; ++i) {
    const std::string body(1 + 1000 * (i % 7), static_cast<char>('a' + i % 26));
    client->send(
        {.target = i % 2 == 0 ? "/stream" : "/whole", .body = body}, nullptr,
        [&, i](std::string_view bytes) { bodies[i] += bytes; },
        [&, i](const ClientOutcome& outcome) { outcomes[i] = outcome; });
  }
  client->run();
  for (size_t i = 0; i < 100; ++i) {
    const std::string body(1 + 1000 * (i % 7), static_cast<char>('a' + i % 26));
    EXPECT_EQ(outcomes[i].error, "");
    EXPECT_EQ(outcomes[i].status, i % 2 == 0 ? 200 : 201);
    EXPECT_EQ(bodies[i], i % 2 == 0 ? body + body + body : "POST" + body);
  }
}

// One connection after another is one connection; and one that the server closes meanwhile is made again.
TEST(HttpClient, UsesConnectionsAgain) {
  std::mutex mutex;  // of remotes
  std::vector<std::string> remotes;
  ServerOptions options;
  options.idle_timeout = std::chrono::milliseconds(300);
  const Served served(
      [&](const Request& request, const std::shared_ptr<Responder>& responder) {
        const std::lock_guard lock(mutex);
        remotes.push_back(request.remote);
        responder->send({.body = std::to_string(remotes.size())});
      },
      options);
  const auto client = std::move(*Client::make(served.url(), kLong));
  int ended = 0;
  std::function<void()> next = [&] {
    client->send(
        {.target = "/"}, nullptr, [](std::string_view) {},
        [&](const ClientOutcome& outcome) {
          EXPECT_EQ(outcome.error, "");
          if (++ended == 3) return client->at(Client::Clock::now() + std::chrono::milliseconds(1200), next);
          if (ended < 4) next();
        });
  };
  next();
  client->run();
  const std::lock_guard lock(mutex);
  ASSERT_EQ(remotes.size(), 4U);
  EXPECT_EQ(remotes[0], remotes[1]);
  EXPECT_EQ(remotes[0], remotes[2]);
  EXPECT_NE(remotes[0], remotes[3]);
}

TEST(HttpClient, SaysWhenNobodyAnswers) {
  int port = 0;
  {
    const Served served([](const Request&, const std::shared_ptr<Responder>&) {});
    port = served.url().port;
  }
  const auto client = std::move(*Client::make({.host = "127.0.0.1", .port = port}, kLong));
  ClientOutcome outcome;
  client->send(
      {.target = "/"}, nullptr, [](std::string_view) {},
      [&](const ClientOutcome& ended) { outcome = ended; });
  client->run();
  EXPECT_EQ(outcome.status, 0);
  EXPECT_NE(outcome.error.find("cannot connect"), std::string::npos);
}

TEST(HttpClient, SilenceEndsARequestAndStopEndsAll) {
  std::vector<std::shared_ptr<Responder>> kept;
  const Served served(
      [&](const Request&, const std::shared_ptr<Responder>& responder) { kept.push_back(responder); });
  {
    const auto client = std::move(*Client::make(served.url(), std::chrono::milliseconds(200)));
    ClientOutcome outcome;
    client->send(
        {.target = "/"}, nullptr, [](std::string_view) {},
        [&](const ClientOutcome& ended) { outcome = ended; });
    client->run();
    EXPECT_NE(outcome.error, "");
  }
  const auto client = std::move(*Client::make(served.url(), kLong));
  int ended = 0;
  for (int i = 0; i < 5; ++i)
    client->send(
        {.target = "/"}, nullptr, [](std::string_view) {},
        [&](const ClientOutcome& outcome) { ended += outcome.error.empty() ? 0 : 1; });
  client->at(Client::Clock::now() + std::chrono::hours(1), [] { FAIL() << "a timer of a stopped client"; });
  client->at(Client::Clock::now() + std::chrono::milliseconds(50), [&] { client->stop(); });
  client->run();
  EXPECT_EQ(ended, 5);
}

}  // namespace
}  // namespace lockstep::serving::http
