// Clients that vanish and servers that stop: the engine's slots come free.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "tests/serving/scripted_engine.h"

namespace lockstep::serving {
namespace {

constexpr const char* kPath = "/v1/chat/completions";
constexpr const char* kText = "\"delta\":{\"content\":";  // the first text of a stream

TEST(Disconnect, InTheMiddleOfAStreamCancelsEveryChoice) {
  ServedScript served("</think>again and...");
  Json body = user_says("Hi");
  body["stream"] = true;
  body["n"] = 3;
  {
    http::RawClient client(served.server->port());
    client.send(ServedScript::request_bytes("POST", kPath, to_text(body)));
    ASSERT_TRUE(client.read_until(kText));
    EXPECT_EQ(served.engine.num_running(), 3U);
  }
  EXPECT_TRUE(http::eventually([&] { return served.engine.num_running() == 0; }));
  EXPECT_EQ(served.engine.num_cancelled, 3);
}

TEST(Disconnect, WhileAWholeAnswerIsAwaited) {
  ServedScript served("</think>again and...");
  {
    http::RawClient client(served.server->port());
    client.send(ServedScript::request_bytes("POST", kPath, to_text(user_says("Hi"))));
    ASSERT_TRUE(http::eventually([&] { return served.engine.num_running() == 1; }));
  }
  EXPECT_TRUE(http::eventually([&] { return served.engine.num_running() == 0; }));
  EXPECT_EQ(served.engine.num_cancelled, 1);
}

TEST(Disconnect, OneFailedChoiceEndsTheOthers) {
  ServedScript served("</think>again and...");
  served.engine.fail_after("rank 1 is gone", 5);
  Json body = user_says("Hi");
  body["n"] = 2;
  EXPECT_EQ(served.ask("POST", kPath, to_text(body)).status, 500);
  EXPECT_TRUE(http::eventually([&] { return served.engine.num_running() == 0; }));
}

TEST(Stop, LetsAnswersOnTheirWayEnd) {
  const std::string text = "</think>one two three four five six seven eight nine ten";
  ServedScript served(text);
  http::RawClient client(served.server->port());
  Json body = user_says("Hi");
  body["stream"] = true;
  client.send(ServedScript::request_bytes("POST", kPath, to_text(body)));
  ASSERT_TRUE(client.read_until(kText));
  served.server->stop();
  const http::RawResponse response = client.read_response();
  EXPECT_TRUE(response.is_complete);
  std::string content;
  for (const Json& event : ServedScript::events(response.body))
    content += event["choices"][0]["delta"].value("content", "");
  EXPECT_EQ(content, text.substr(text.find("one")));
}

TEST(Stop, CutsOffWhatNeverEndsAndTheEngineMayOutliveTheServer) {
  ScriptedEngine engine([](const runtime::Request&) { return "</think>again and..."; });
  {
    auto server = ApiServer::make(engine, {.port = 0, .drain_timeout = std::chrono::seconds(1)});
    ASSERT_TRUE(server.ok());
    std::thread thread([&] { (*server)->run(); });
    http::RawClient client((*server)->port());
    Json body = user_says("Hi");
    body["stream"] = true;
    client.send(ServedScript::request_bytes("POST", kPath, to_text(body)));
    EXPECT_TRUE(client.read_until(kText));
    (*server)->stop();
    thread.join();
  }
  EXPECT_TRUE(http::eventually([&] { return engine.num_running() == 0; }));
  EXPECT_EQ(engine.num_cancelled, 1);
}

// One request of each kind when the time is over: nothing of them is cut without a word.
TEST(Stop, EndsWhatIsLeftWithAnError) {
  using Clients = std::vector<std::pair<std::string, std::unique_ptr<http::RawClient>>>;
  ScriptedEngine engine([](const runtime::Request&) { return "again and..."; });
  auto server = ApiServer::make(engine, {.port = 0, .drain_timeout = std::chrono::seconds(0)});
  ASSERT_TRUE(server.ok());
  std::thread thread([&] { (*server)->run(); });
  const auto ask = [&](Clients& clients, const std::string& path, Json body, bool streams) {
    body["stream"] = streams;
    body["max_tokens"] = 4000;
    clients.emplace_back(path, std::make_unique<http::RawClient>((*server)->port()));
    clients.back().second->send(ServedScript::request_bytes("POST", path, to_text(body)));
  };
  Clients streams, whole;
  for (const bool streaming : {true, false}) {
    Clients& clients = streaming ? streams : whole;
    ask(clients, kPath, user_says("Hi"), streaming);
    ask(clients, "/v1/completions", {{"prompt", "Hi"}}, streaming);
    ask(clients, "/v1/messages", user_says("Hi"), streaming);
  }
  for (const auto& [path, client] : streams) EXPECT_TRUE(client->read_until("data: ")) << path;
  EXPECT_TRUE(http::eventually([&] { return engine.num_running() == 6; }));
  const auto began = std::chrono::steady_clock::now();
  (*server)->stop();
  for (const auto& [path, client] : streams) {
    const http::RawResponse response = client->read_response();
    EXPECT_TRUE(response.is_complete) << path;
    const std::string last = response.body.substr(response.body.rfind("data: {"));
    EXPECT_NE(last.find("\"error\""), std::string::npos) << path << ": " << last;
    EXPECT_NE(last.find("the server is stopping"), std::string::npos) << path << ": " << last;
    EXPECT_EQ(last.ends_with("data: [DONE]\n\n"), path != "/v1/messages") << path << ": " << last;
  }
  for (const auto& [path, client] : whole) {
    const http::RawResponse response = client->read_response();
    EXPECT_EQ(response.status, 503) << path;
    EXPECT_NE(response.body.find("the server is stopping"), std::string::npos) << path;
  }
  streams.clear();
  whole.clear();
  thread.join();
  EXPECT_LE(std::chrono::steady_clock::now() - began, http::kPatience);
  EXPECT_TRUE(http::eventually([&] { return engine.num_running() == 0; }));
}

TEST(Make, SaysWhatIsMissing) {
  class Elsewhere : public ScriptedEngine {
   public:
    Elsewhere() : ScriptedEngine([](const runtime::Request&) { return ""; }) {}
    const runtime::ModelInfo& model() const override { return nowhere_; }

   private:
    runtime::ModelInfo nowhere_{.name = "x", .directory = "/nonexistent"};
  };
  Elsewhere engine;
  const auto server = ApiServer::make(engine, {.port = 0});
  ASSERT_FALSE(server.ok());
  EXPECT_NE(server.error().message.find("/nonexistent"), std::string::npos) << server.error().message;
}

TEST(ManyClients, EachGetsItsOwnWholeAnswer) {
  const ServedScript served([](const runtime::Request& request) {
    return "</think>" + std::to_string(request.sampling.seed.value()) + " is mine";
  });
  std::vector<std::thread> threads;
  std::atomic<int> num_right{0};
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 10; ++i) {
        Json body = user_says("Hi");
        body["seed"] = t * 100 + i;
        const Json answer = served.post(kPath, body);
        num_right += answer["choices"][0]["message"]["content"] == std::to_string(t * 100 + i) + " is mine";
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(num_right, 80);
}

}  // namespace
}  // namespace lockstep::serving
