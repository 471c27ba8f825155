// Health, readiness, request ids, and metrics under the names that others read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "lockstep/base/file.h"
#include "lockstep/serving/request_log.h"
#include "tests/serving/scripted_engine.h"
#include "tests/source_dir.h"

namespace lockstep::serving {
namespace {

using ::testing::HasSubstr;
using State = runtime::Health::State;

constexpr const char* kChat = "/v1/chat/completions";

struct Statuses {
  int health, ready, live;
};
Statuses statuses_in(State state) {
  ServedScript served("x");
  served.engine.state = state;
  if (state != State::kServing) served.engine.failure = "rank 2 failed: the reason";
  return {served.ask("GET", "/health").status, served.ask("GET", "/ready").status,
          served.ask("GET", "/livez").status};
}

// Whoever kills processes asks /livez, whoever sends requests asks /ready.
TEST(Status, ByTheStateOfTheEngine) {
  const std::pair<State, Statuses> expected[] = {{State::kServing, {200, 200, 200}},
                                                 {State::kRestarting, {503, 503, 200}},
                                                 {State::kDraining, {503, 503, 200}},
                                                 {State::kFailed, {503, 503, 503}}};
  for (const auto& [state, want] : expected) {
    const Statuses found = statuses_in(state);
    EXPECT_EQ(found.health, want.health) << static_cast<int>(state);
    EXPECT_EQ(found.ready, want.ready) << static_cast<int>(state);
    EXPECT_EQ(found.live, want.live) << static_cast<int>(state);
  }
}

TEST(Status, ASickEngineSaysWhyAndWhenToAskAgain) {
  ServedScript served("x");
  served.engine.state = State::kRestarting;
  served.engine.failure = "the engine failed: rank 1 computes experts.3; restart 1 of 5 begins in 0.5 s";
  const auto sick = served.ask("GET", "/health");
  EXPECT_EQ(sick.header("retry-after"), "1");
  const Json body = ServedScript::json(sick);
  EXPECT_EQ(body["status"], "unavailable");
  EXPECT_EQ(body["state"], "restarting");
  EXPECT_EQ(body["reason"], served.engine.failure);
  EXPECT_EQ(ServedScript::json(served.ask("GET", "/live"))["state"], "restarting");
}

// A token of every replica, drawn for the answer.
TEST(Status, HealthGenerateAsksEveryReplica) {
  ServedScript served("a b c");
  EXPECT_EQ(served.ask("GET", "/health_generate").status, 200);
  ASSERT_EQ(served.engine.requests.size(), 2U);
  std::set<int> replicas;
  for (size_t i = 0; i < 2; ++i) {
    const runtime::Request request = served.engine.request(i);
    EXPECT_EQ(request.max_new_tokens, 1);
    EXPECT_TRUE(request.ignore_eos);
    EXPECT_EQ(request.blame, runtime::Request::Blame::kExempt) << "the same each time: it would be convicted";
    replicas.insert(request.replica.value());
  }
  EXPECT_EQ(replicas, (std::set<int>{0, 1}));
}

TEST(Status, HealthGenerateSaysWhatFailed) {
  ServedScript served("a b c");
  served.engine.fail_after("rank 3 failed: lost", 0);
  const auto sick = served.ask("GET", "/health_generate");
  EXPECT_EQ(sick.status, 503);
  EXPECT_THAT(sick.body, HasSubstr("rank 3 failed: lost"));
  served.engine.refusal = Error{ErrorCode::kUnavailable, "the engine is draining", ""};
  EXPECT_THAT(served.ask("GET", "/health_generate").body, HasSubstr("the engine is draining"));
}

http::RawResponse get(int port, const std::string& path) {
  http::RawClient client(port);
  client.send(ServedScript::request_bytes("GET", path, ""));
  return client.read_response("GET");
}

// Before there is an engine clients hear that it is coming, on the port that it will have.
TEST(Status, WhileTheModelIsLoaded) {
  const ServeOptions options{.port = 0};
  auto address = ReservedAddress::bind(options);
  ASSERT_TRUE(address.ok());
  ASSERT_TRUE(address->answer_starting().ok());
  const int port = address->port();
  for (const char* path : {"/health", "/ready", "/v1/models"}) {
    const auto response = get(port, path);
    EXPECT_EQ(response.status, 503) << path;
    EXPECT_EQ(response.header("retry-after"), "5");
    EXPECT_EQ(ServedScript::json(response)["state"], "starting");
  }
  EXPECT_EQ(get(port, "/livez").status, 200);
  ScriptedEngine engine([](const runtime::Request&) { return std::string("x"); });
  const auto server = ApiServer::make(engine, options, *std::move(address)).value();
  std::thread thread([&] { server->run(); });
  EXPECT_EQ(server->port(), port);
  EXPECT_EQ(get(port, "/ready").status, 200);
  EXPECT_EQ(get(port, "/v1/models").status, 200);
  server->stop();
  thread.join();
}

TEST(Status, AnAddressThatNoServerTakesIsGivenUp) {
  auto address = ReservedAddress::bind({.port = 0});
  ASSERT_TRUE(address->answer_starting().ok());
  const int port = address->port();
  EXPECT_EQ(get(port, "/ready").status, 503);
  {
    const ReservedAddress gone = *std::move(address);
  }
  http::RawClient client(port);
  EXPECT_FALSE(client.is_connected());
}

TEST(RequestIds, TheClientsComesBackAndReachesTheEngine) {
  ServedScript served("</think>one two");
  const auto answer = served.ask("POST", kChat, to_text(user_says("Hi")), "X-Request-Id: job-7/a.3\r\n");
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_EQ(answer.header("x-request-id"), "job-7/a.3");
  EXPECT_EQ(served.engine.request(0).label, "job-7/a.3");
  Json streamed = user_says("Hi");
  streamed["stream"] = true;
  EXPECT_EQ(served.ask("POST", kChat, to_text(streamed), "x-request-id: s1\r\n").header("x-request-id"),
            "s1");
}

TEST(RequestIds, OneIsMadeWhereThereIsNoneOrNoUsableOne) {
  ServedScript served("</think>one two");
  const std::string longest(128, 'a');
  for (const std::string& header :
       {std::string(), std::string("X-Request-Id: two words\r\n"), "X-Request-Id: " + longest + "b\r\n",
        std::string("X-Request-Id: \"quoted\"\r\n")}) {
    const auto answer = served.ask("POST", kChat, to_text(user_says("Hi")), header);
    EXPECT_TRUE(std::string(answer.header("x-request-id")).starts_with("req_")) << header;
  }
  EXPECT_EQ(served.ask("GET", "/health", "", "X-Request-Id: " + longest + "\r\n").header("x-request-id"),
            longest);
  EXPECT_FALSE(served.ask("GET", "/nothing").header("x-request-id").empty()) << "errors have one too";
}

// Its status was sent before it failed.
TEST(RequestLog, AStreamThatBrokeOffIsAFailure) {
  ScriptedEngine engine([](const runtime::Request&) { return std::string("</think>again ..."); });
  engine.fail_after("rank 2 is gone", 5);
  std::string text;
  {
    ::testing::internal::CaptureStderr();
    auto server = ApiServer::make(engine, {.port = 0}).value();
    std::thread thread([&] { server->run(); });
    Json body = user_says("Hi");
    body["stream"] = true;
    http::RawClient client(server->port());
    client.send(ServedScript::request_bytes("POST", kChat, to_text(body), "X-Request-Id: broken\r\n"));
    EXPECT_EQ(client.read_response("POST").status, 200);
    server->stop();
    thread.join();
    server.reset();  // the log is complete once the threads that write it have ended
    text = ::testing::internal::GetCapturedStderr();
  }
  EXPECT_THAT(text, HasSubstr("request failed request_id=broken"));
  EXPECT_THAT(text, HasSubstr("why=rank 2 is gone"));
}

// Names without labels of all samples.
std::set<std::string> names_in(const std::string& metrics) {
  std::set<std::string> names;
  const std::regex sample(R"(^([a-zA-Z_:][a-zA-Z0-9_:]*)[{ ])", std::regex::multiline);
  for (std::sregex_iterator at(metrics.begin(), metrics.end(), sample), end; at != end; ++at)
    names.insert((*at)[1]);
  return names;
}

std::string metrics_after_a_request(const ServedScript& served) {
  served.post(kChat, user_says("Hi"));
  served.ask("POST", kChat, "{");  // one that is refused
  return served.ask("GET", "/metrics").body;
}

TEST(MetricNames, TheDashboardAsksOnlyForWhatThereIs) {
  const ServedScript served("</think>one two three");
  const std::set<std::string> there = names_in(metrics_after_a_request(served));
  const std::string board =
      read_file(std::string(LOCKSTEP_SOURCE_DIR) + "/docs/grafana/lockstep.json").value();
  ASSERT_TRUE(parse_json(board).ok());
  const std::regex name(R"(\b((?:lockstep_|vllm:|sglang:)[a-zA-Z0-9_:]+)[{,])");
  size_t count = 0;
  for (std::sregex_iterator at(board.begin(), board.end(), name), end; at != end; ++at, ++count)
    EXPECT_TRUE(there.contains((*at)[1])) << (*at)[1];
  EXPECT_GE(count, 20U);
}

// As published dashboards of vLLM and SGLang and the Gateway API inference extension name them.
TEST(MetricNames, OfOthersAreThere) {
  const ServedScript served("</think>one two three");
  const std::set<std::string> there = names_in(metrics_after_a_request(served));
  for (const char* name : {"vllm:num_requests_running",
                           "vllm:num_requests_waiting",
                           "vllm:kv_cache_usage_perc",
                           "vllm:gpu_cache_usage_perc",
                           "vllm:cache_config_info",
                           "vllm:prompt_tokens_total",
                           "vllm:generation_tokens_total",
                           "vllm:num_preemptions_total",
                           "vllm:request_success_total",
                           "vllm:time_to_first_token_seconds_bucket",
                           "vllm:time_per_output_token_seconds_bucket",
                           "vllm:inter_token_latency_seconds_bucket",
                           "vllm:e2e_request_latency_seconds_bucket",
                           "vllm:e2e_request_latency_seconds_sum",
                           "vllm:e2e_request_latency_seconds_count",
                           "vllm:request_time_per_output_token_seconds_bucket",
                           "vllm:request_generation_tokens_bucket",
                           "sglang:num_running_reqs",
                           "sglang:num_queue_reqs",
                           "sglang:token_usage",
                           "sglang:num_used_tokens",
                           "sglang:max_total_num_tokens",
                           "sglang:gen_throughput",
                           "sglang:prompt_tokens_total",
                           "sglang:generation_tokens_total",
                           "sglang:num_requests_total",
                           "sglang:num_aborted_requests_total",
                           "sglang:time_to_first_token_seconds_bucket",
                           "sglang:inter_token_latency_seconds_bucket",
                           "sglang:e2e_request_latency_seconds_bucket"})
    EXPECT_TRUE(there.contains(name)) << name;
}

TEST(MetricNames, OneSeriesAReplicaAndTheirSum) {
  const ServedScript served("</think>one...");  // never ends
  http::RawClient client(served.server->port());
  client.send(ServedScript::request_bytes("POST", kChat, to_text(user_says("Hi"))));
  ASSERT_TRUE(http::eventually([&] { return served.engine.num_running() > 0; }));
  const std::string text = served.ask("GET", "/metrics").body;
  for (const char* line :
       {"vllm:num_requests_running{engine=\"0\",model_name=\"tutor\"} 1\n",
        "vllm:num_requests_running{engine=\"1\",model_name=\"tutor\"} 0\n",
        "sglang:num_running_reqs{dp_rank=\"0\",model_name=\"tutor\"} 1\n",
        "vllm:kv_cache_usage_perc{engine=\"0\",model_name=\"tutor\"} 0.01\n",
        "lockstep_engine_running_requests 1\n", "lockstep_engine_cache_usage_ratio 0.005\n"})
    EXPECT_THAT(text, HasSubstr(line));
}

}  // namespace
}  // namespace lockstep::serving
