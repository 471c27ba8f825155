// Paths, methods, keys, status pages, and errors in OpenAI's shape.
#include <gtest/gtest.h>

#include "lockstep/serving/router.h"
#include "lockstep/serving/status_pages.h"
#include "tests/serving/scripted_engine.h"

namespace lockstep::serving {
namespace {

constexpr const char* kChat = "/v1/chat/completions";

void expect_error(const http::RawResponse& response, int status, const Json& param, const Json& code) {
  EXPECT_EQ(response.status, status) << response.body;
  EXPECT_EQ(response.header("content-type"), "application/json");
  const Json error = ServedScript::json(response)["error"];
  EXPECT_EQ(error.size(), 4U);
  EXPECT_FALSE(error["message"].get<std::string>().empty());
  EXPECT_EQ(error["type"], status >= 500 ? "server_error" : "invalid_request_error");
  EXPECT_EQ(error["param"], param) << response.body;
  EXPECT_EQ(error["code"], code) << response.body;
}

TEST(Routes, UnknownPathsAndWrongMethods) {
  const ServedScript served("x");
  expect_error(served.ask("GET", "/v1/nothing"), 404, nullptr, nullptr);
  expect_error(served.ask("POST", "/v1/chat"), 404, nullptr, nullptr);
  const auto response = served.ask("GET", kChat);
  expect_error(response, 405, nullptr, "method_not_allowed");
  EXPECT_EQ(response.header("allow"), "POST");
  EXPECT_EQ(served.ask("DELETE", "/v1/models").header("allow"), "GET, HEAD");
  EXPECT_EQ(served.ask("HEAD", "/health").status, 200);
}

TEST(Routes, EncodedBodiesAreNotGuessedAt) {
  const ServedScript served("x");
  const std::string body = to_text(user_says("Hi"));
  const auto response = served.ask("POST", kChat, body, "Content-Encoding: gzip\r\n");
  expect_error(response, 415, nullptr, "unsupported_content_encoding");
  EXPECT_EQ(response.header("accept-encoding"), "identity");
  EXPECT_EQ(served.ask("POST", kChat, body, "Content-Encoding: Identity\r\n").status, 200);
}

// What its client has given up while it waited for a worker is not worked for.
TEST(Routes, RequestsThatWereGivenUpAreNotWorkedFor) {
  class Client final : public http::Responder {
   public:
    explicit Client(bool connected) : connected_(connected) {}
    void send(http::Response) override {}
    void start_stream(int, std::string, std::vector<http::Header>) override {}
    void write(std::string) override {}
    void finish() override {}
    bool connected() const override { return connected_; }
    void on_disconnect(std::function<void()>) override {}

   private:
    const bool connected_;
  };
  ScriptedEngine engine([](const runtime::Request&) { return std::string("x"); });
  ServingMetrics metrics(engine, "tutor");
  std::vector<std::string> worked_for;
  {
    Workers workers(1);
    Router router({}, CorsPolicy({}), workers.queue(), 100, metrics);
    router.add({"POST", "/abacus", Access::kOpen, RunsOn::kWorker,
                [&](const http::Request& request, const std::shared_ptr<http::Responder>&) {
                  worked_for.push_back(request.body);
                }});
    for (const auto& [body, connected] : {std::pair{"1", true}, {"2", false}, {"3", false}, {"4", true}})
      router.handle({.method = "POST", .target = "/abacus", .body = body},
                    std::make_shared<Client>(connected));
    workers.stop();  // what waits is worked through while its routes are there
  }
  EXPECT_EQ(worked_for, (std::vector<std::string>{"1", "4"}));
}

TEST(Routes, PagesOfOthersAreToldOnlyWhereTheyMayRead) {
  const std::string page = "Origin: https://page.example\r\n";
  const std::string preflight =
      page + "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization\r\n";
  const ServedScript served("x", {.api_keys = {"key"}, .cors_origins = {"https://page.example"}});
  const auto asked = served.ask("OPTIONS", kChat, "", preflight);
  EXPECT_EQ(asked.status, 204);
  EXPECT_EQ(asked.header("access-control-allow-origin"), "https://page.example");
  EXPECT_EQ(asked.header("access-control-allow-headers"), "authorization");
  EXPECT_EQ(asked.header("vary"), "Origin");
  // An answer to a key that is wrong can be read as well, and a stream too.
  EXPECT_EQ(served.ask("GET", "/v1/models", "", page).header("access-control-allow-origin"),
            "https://page.example");
  Json body = user_says("Hi");
  body["stream"] = true;
  const auto stream = served.ask("POST", kChat, to_text(body), page + "Authorization: Bearer key\r\n");
  EXPECT_NE(stream.header("access-control-expose-headers").find("X-Request-Id"), std::string::npos);
  EXPECT_EQ(stream.status, 200);
  EXPECT_EQ(stream.header("access-control-allow-origin"), "https://page.example");
  const std::string other = "Origin: https://other.example\r\nAccess-Control-Request-Method: POST\r\n";
  EXPECT_EQ(served.ask("OPTIONS", kChat, "", other).status, 405);
  EXPECT_EQ(served.ask("GET", "/health", "", other).header("access-control-allow-origin"), "");
  const ServedScript open("x", {.cors_origins = {"*"}});
  EXPECT_EQ(open.ask("OPTIONS", kChat, "", other).status, 204);
  const ServedScript closed("x");
  EXPECT_EQ(closed.ask("OPTIONS", kChat, "", preflight).status, 405);
  EXPECT_EQ(closed.ask("GET", "/health", "", page).header("access-control-allow-origin"), "");
}

TEST(Routes, KeysComeInEitherHeader) {
  const ServedScript served("x", {.api_keys = {"right", "other"}});
  for (const auto& [header, status] : {std::pair("Authorization: Bearer right\r\n", 200),
                                       {"x-api-key: other\r\n", 200},
                                       {"x-api-key: wrong\r\n", 401},
                                       {"Authorization: Bearer wrong\r\nx-api-key: right\r\n", 401},
                                       {"", 401}})
    EXPECT_EQ(served.ask("GET", "/v1/models", "", header).status, status) << header;
}

TEST(Routes, EmbeddingsAreRefusedByName) {
  const ServedScript served("x");
  expect_error(served.ask("POST", "/v1/embeddings", R"({"model": "tutor", "input": "a"})"), 400, "model",
               "model_not_supported");
  expect_error(served.ask("POST", "/v1/embeddings", R"({"model": "other", "input": "a"})"), 404, "model",
               "model_not_found");
}

TEST(Routes, TheCacheIsForgottenOnRequest) {
  const ServedScript served("x", {.api_keys = {"key"}});
  EXPECT_EQ(served.ask("POST", "/flush_cache").status, 401);
  EXPECT_EQ(served.engine.num_clears, 0);
  EXPECT_EQ(served.ask("POST", "/flush_cache", "", "x-api-key: key\r\n").status, 200);
  EXPECT_EQ(served.ask("GET", "/flush_cache", "", "x-api-key: key\r\n").status, 200);
  EXPECT_EQ(served.engine.num_clears, 2);
}

TEST(Routes, AbortedAnswersEndWithWhatHasCome) {
  const ServedScript served("again ...");
  const std::string body = R"({"text": "x", "rid": "mine", "sampling_params": {"max_new_tokens": 4000}})";
  http::RawClient client(served.server->port());
  client.send(ServedScript::request_bytes("POST", "/generate", body));
  ASSERT_TRUE(http::eventually([&] { return served.engine.num_running() > 0; }));
  expect_error(served.ask("POST", "/abort_request", "{}"), 400, "rid", nullptr);
  EXPECT_EQ(served.ask("POST", "/abort_request", R"({"rid": "another"})").status, 200);
  EXPECT_EQ(served.engine.num_cancelled, 0);
  EXPECT_EQ(served.ask("POST", "/abort_request", R"({"rid": "mine"})").status, 200);
  const Json answer = ServedScript::json(client.read_response("POST"));
  EXPECT_EQ(answer["meta_info"]["finish_reason"]["type"], "abort");
  client.send(ServedScript::request_bytes("POST", kChat, to_text(user_says("Hi"))));
  ASSERT_TRUE(http::eventually([&] { return served.engine.num_running() > 0; }));
  EXPECT_EQ(served.ask("POST", "/abort_request", R"({"abort_all": true})").status, 200);
  EXPECT_EQ(ServedScript::json(client.read_response("POST"))["choices"][0]["finish_reason"], "abort");
  EXPECT_EQ(served.engine.num_cancelled, 2);
}

TEST(Routes, Models) {
  const ServedScript served("x", {.served_model_name = "org/the tutor"});
  const Json list = ServedScript::json(served.ask("GET", "/v1/models"));
  EXPECT_EQ(list["object"], "list");
  ASSERT_EQ(list["data"].size(), 1U);
  EXPECT_EQ(list["data"][0]["id"], "org/the tutor");
  EXPECT_EQ(list["data"][0]["object"], "model");
  EXPECT_EQ(list["data"][0]["owned_by"], "lockstep");
  EXPECT_EQ(ServedScript::json(served.ask("GET", "/v1/models/org/the%20tutor")), list["data"][0]);
  EXPECT_EQ(ServedScript::json(served.ask("GET", "/v1/models/org%2Fthe%20tutor")), list["data"][0]);
  expect_error(served.ask("GET", "/v1/models/other"), 404, "model", "model_not_found");
}

TEST(Routes, ModelOfTheRequest) {
  const ServedScript served("x");
  Json body = user_says("Hi");
  body["model"] = "gpt-4";
  expect_error(served.ask("POST", kChat, to_text(body)), 404, "model", "model_not_found");
  body["model"] = "tutor";
  EXPECT_EQ(served.ask("POST", kChat, to_text(body)).status, 200);
}

TEST(Routes, BodiesThatAreNoRequest) {
  const ServedScript served("x");
  for (const char* body : {"", "{", "{\"a\":1,}", "\xff\xfe", "{\"messages\": [], \"messages\": []}"})
    expect_error(served.ask("POST", kChat, body), 400, nullptr, nullptr);
  expect_error(served.ask("POST", kChat, std::string(100000, '[')), 400, nullptr, nullptr);
  expect_error(served.ask("POST", kChat, "[]"), 400, nullptr, nullptr);
  expect_error(served.ask("POST", kChat, R"({"messages": [{"role": "user", "content": 1}]})"), 400,
               "messages[0].content", nullptr);
}

TEST(Routes, PromptsThatAreTooLong) {
  const ServedScript served("x");
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "7 ";
  const auto response = served.ask("POST", kChat, to_text(user_says(text)));
  expect_error(response, 400, "messages", "context_length_exceeded");
  const std::string message = ServedScript::json(response)["error"]["message"];
  EXPECT_NE(message.find("4096"), std::string::npos) << message;
  expect_error(served.ask("POST", "/v1/completions", to_text({{"prompt", text}})), 400, "prompt",
               "context_length_exceeded");
  const Json full = {{"prompt", std::vector<int>(4096, 5)}};
  expect_error(served.ask("POST", "/v1/completions", to_text(full)), 400, "prompt",
               "context_length_exceeded");
  const Json almost = {{"prompt", std::vector<int>(4095, 5)}};
  EXPECT_EQ(served.ask("POST", "/v1/completions", to_text(almost)).status, 200);
  EXPECT_EQ(served.engine.request(0).max_new_tokens, 1);
}

TEST(Routes, ReplicaHeader) {
  const ServedScript served("x");
  for (const char* value : {"2", "-1", "x", "1.0"})
    expect_error(served.ask("POST", kChat, to_text(user_says("Hi")),
                            fmt::format("X-Data-Parallel-Rank: {}\r\n", value)),
                 400, "X-Data-Parallel-Rank", nullptr);
}

TEST(Routes, WhatTheEngineRefuses) {
  ServedScript served("x");
  served.engine.refusal = Error{ErrorCode::kUnavailable, "the queue holds 512 requests", ""};
  const auto busy = served.ask("POST", kChat, to_text(user_says("Hi")));
  expect_error(busy, 503, nullptr, "overloaded");
  EXPECT_EQ(busy.header("retry-after"), "1");
  Json streamed = user_says("Hi");
  streamed["stream"] = true;
  expect_error(served.ask("POST", kChat, to_text(streamed)), 503, nullptr, "overloaded");
  served.engine.refusal = invalid_argument("prompt", "the prompt needs 900 pages and the cache has 800");
  expect_error(served.ask("POST", kChat, to_text(user_says("Hi"))), 400, "prompt", nullptr);
}

TEST(Routes, EngineErrorsBeforeAndInsideAStream) {
  ServedScript served("</think>one two three four");
  served.engine.fail_after("rank 3 is gone", 3);
  expect_error(served.ask("POST", kChat, to_text(user_says("Hi"))), 500, nullptr, nullptr);
  Json body = user_says("Hi");
  body["stream"] = true;
  const auto response = served.ask("POST", kChat, to_text(body));
  EXPECT_EQ(response.status, 200);
  const std::vector<Json> events = ServedScript::events(response.body);
  EXPECT_EQ(events.back()["error"]["message"], "rank 3 is gone");
  EXPECT_EQ(events.back()["error"]["type"], "server_error");
  for (size_t i = 0; i + 1 < events.size(); ++i)
    EXPECT_TRUE(events[i]["choices"][0]["finish_reason"].is_null());
}

TEST(Routes, Keys) {
  const ServedScript served("x", {.api_keys = {"key-one", "key-two"}});
  const auto with = [&](const std::string& authorization) {
    return served.ask("POST", kChat, to_text(user_says("Hi")),
                      authorization.empty() ? "" : "Authorization: " + authorization + "\r\n");
  };
  expect_error(with(""), 401, nullptr, "invalid_api_key");
  for (const char* wrong :
       {"Bearer key-thr", "Bearer key-one2", "Bearer ", "Bearer", "Basic key-one", "key-one"})
    expect_error(with(wrong), 401, nullptr, "invalid_api_key");
  EXPECT_EQ(with("").header("www-authenticate"), "Bearer");
  EXPECT_EQ(with("Bearer key-one").status, 200);
  EXPECT_EQ(with("bearer  key-two").status, 200);
  for (const char* path : {"/v1/models", "/metrics"}) EXPECT_EQ(served.ask("GET", path).status, 401) << path;
  for (const char* path : {"/health", "/", "/live", "/plan"})
    EXPECT_EQ(served.ask("GET", path).status, 200) << path;
  EXPECT_EQ(served.ask("GET", "/v1/nothing").status, 404);
}

TEST(Keys, CompareAsTextsDo) {
  EXPECT_TRUE(equal_in_constant_time("abc", "abc"));
  EXPECT_FALSE(equal_in_constant_time("abc", "abd"));
  EXPECT_FALSE(equal_in_constant_time("abc", "ab"));
  EXPECT_FALSE(equal_in_constant_time("ab", "abc"));
  EXPECT_FALSE(equal_in_constant_time("", "a"));
  EXPECT_TRUE(equal_in_constant_time("", ""));
}

TEST(PercentDecoded, OnlyWhatIsValid) {
  EXPECT_EQ(percent_decoded("a%2Fb%20c"), "a/b c");
  EXPECT_EQ(percent_decoded("%zz%2"), "%zz%2");
  EXPECT_EQ(percent_decoded("100%"), "100%");
  EXPECT_EQ(percent_decoded("%+1"), "%+1");
}

TEST(StatusPages, Health) {
  ServedScript served("x");
  EXPECT_EQ(served.ask("GET", "/health").status, 200);
  served.engine.failure = "rank 2 did not answer for 30 s";
  const auto sick = served.ask("GET", "/health");
  EXPECT_EQ(sick.status, 503);
  EXPECT_EQ(ServedScript::json(sick)["reason"], "rank 2 did not answer for 30 s");
}

TEST(StatusPages, Live) {
  const ServedScript served("x");
  const Json live = ServedScript::json(served.ask("GET", "/live"));
  EXPECT_EQ(live["model"], "tutor");
  EXPECT_EQ(live["num_ranks"], 4);
  EXPECT_EQ(live["steps"], 12);
  EXPECT_EQ(live["rows_per_rank"], Json::array({2, 2, 1, 1}));
  EXPECT_EQ(
      live["replicas"][1],
      Json({{"running", 0}, {"queued", 0}, {"pages_used", 0}, {"pages_cached", 0}, {"pages_total", 100}}));
  EXPECT_GE(live["uptime_seconds"].get<double>(), 0);
  EXPECT_EQ(live["tokens_per_second"], 0);
}

TEST(StatusPages, Metrics) {
  const ServedScript served("</think>one two");
  served.post(kChat, user_says("Hi"));
  served.ask("POST", kChat, "{");
  const auto response = served.ask("GET", "/metrics");
  EXPECT_EQ(response.header("content-type"), "text/plain; version=0.0.4; charset=utf-8");
  for (const char* line :
       {"lockstep_http_requests_total{endpoint=\"/v1/chat/completions\"} 2",
        "lockstep_refused_requests_total{endpoint=\"/v1/chat/completions\",status=\"400\"} 1",
        "lockstep_generations_total{endpoint=\"/v1/chat/completions\",outcome=\"finished\"} 1",
        "lockstep_time_to_first_token_seconds_count{endpoint=\"/v1/chat/completions\"} 1",
        "lockstep_steps_total 12", "lockstep_cache_pages{replica=\"1\"} 100",
        "lockstep_cache_slots{replica=\"1\"} 8", "lockstep_serving 1"})
    EXPECT_NE(response.body.find(line), std::string::npos) << line << "\n" << response.body;
}

TEST(StatusPages, Plan) {
  const ServedScript served("x");
  const auto page = served.ask("GET", "/plan");
  EXPECT_EQ(page.header("content-type"), "text/html; charset=utf-8");
  EXPECT_NE(page.body.find("edge &lt;0&gt;: all_reduce &amp; add"), std::string::npos) << page.body;
  EXPECT_EQ(ServedScript::json(served.ask("GET", "/plan?format=json"))["edges"][0], "all_reduce");
}

TEST(StatusPages, ThePageIsServed) {
  const ServedScript served("x");
  const auto page = served.ask("GET", "/");
  EXPECT_EQ(page.status, 200);
  EXPECT_TRUE(page.header("content-type").starts_with("text/html"));
  EXPECT_EQ(served.ask("GET", "/web/nothing.js").status, 404);
}

TEST(RateMeter, MeanOverTheWindow) {
  using std::chrono::seconds;
  RateMeter rate;
  const RateMeter::Clock::time_point start{};
  EXPECT_EQ(rate.update(100, start), 0);
  EXPECT_EQ(rate.update(150, start + seconds(1)), 50);
  EXPECT_EQ(rate.update(250, start + seconds(5)), 30);
  EXPECT_EQ(rate.update(1250, start + seconds(15)), 100);  // since the sample at 5 s
  EXPECT_EQ(rate.update(1250, start + seconds(25)), 0);
}

}  // namespace
}  // namespace lockstep::serving
