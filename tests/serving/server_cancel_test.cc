// Clients that vanish and servers that stop: the engine's slots come free.
#include <gtest/gtest.h>

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
