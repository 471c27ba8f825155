// What one request may cost, what one key may do to others' requests, and how aborted ones are counted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "lockstep/serving/openai/open_generations.h"
#include "lockstep/serving/serving_metrics.h"
#include "tests/serving/scripted_engine.h"

namespace lockstep::serving {
namespace {

using ::testing::HasSubstr;

void expect_refused(const ServedScript& served, const char* path, const Json& body, const char* field) {
  const auto response = served.ask("POST", path, to_text(body));
  EXPECT_EQ(response.status, 400) << response.body;
  EXPECT_EQ(ServedScript::json(response)["error"]["param"], field);
}

// Each choice has its copy of both.
TEST(Limits, OfWhatEveryChoiceCopies) {
  const ServedScript served("x");
  expect_refused(served, "/generate", {{"text", "x"}, {"rid", std::string(513, 'r')}}, "rid");
  EXPECT_EQ(served.post("/generate", {{"text", "x"}, {"rid", std::string(512, 'r')}})["meta_info"]["id"],
            std::string(512, 'r'));
  const Json ids(std::vector<int>(1025, 0));
  expect_refused(served, "/v1/completions", {{"prompt", "x"}, {"stop_token_ids", ids}}, "stop_token_ids");
}

TEST(Limits, OfScoredPrompts) {
  const ServedScript served("x");
  const Json prompt(std::vector<int>(2100, 1));
  Json body = {{"prompt", prompt}, {"echo", true}, {"logprobs", 1}, {"max_tokens", 1}, {"n", 128}};
  expect_refused(served, "/v1/completions", body, "prompt");
  body["n"] = 2;
  EXPECT_EQ(served.post("/v1/completions", body)["choices"].size(), 2U);
  body["max_tokens"] = 0;
  expect_refused(served, "/v1/completions", body, "n");
}

// Both keys call their requests alike.
// Errors repeat what the client sent, but not all of it, and characters stay whole.
TEST(Limits, OfWhatErrorsRepeat) {
  const ServedScript served("");
  std::string many;
  for (int i = 0; i < 100000; ++i) many += "\u20ac";
  Json model = user_says("Hi"), role = user_says("Hi"), key = user_says("Hi");
  model["model"] = many;
  model["max_tokens"] = 5;
  role["messages"][0]["role"] = many;
  key["response_format"] = {
      {"type", "json_schema"},
      {"json_schema", {{"name", "x"}, {"schema", {{"properties", {{many.substr(0, 30000), 5}}}}}}}};
  const std::vector<std::tuple<std::string, Json, int>> asked = {
      {"/v1/chat/completions", model, 404},
      {"/v1/messages", model, 404},
      {"/v1/chat/completions", role, 400},
      {"/v1/chat/completions", key, 400},
      {"/v1/responses", {{"input", "Hi"}, {"previous_response_id", many}}, 400},
  };
  for (const auto& [path, body, status] : asked) {
    const http::RawResponse response = served.ask("POST", path, to_text(body));
    EXPECT_EQ(response.status, status) << path;
    EXPECT_LE(response.body.size(), 3000U) << path;
    const auto error = parse_json(response.body);
    ASSERT_TRUE(error.ok()) << path << ": " << response.body;
    const std::string message = (*error)["error"]["message"];
    EXPECT_NE(message.find("\u20ac [... "), std::string::npos) << path << ": " << message;
    EXPECT_EQ(message.find("\ufffd"), std::string::npos) << path << ": " << message;
  }
  const std::string message = served.post("/v1/messages", model)["error"]["message"];
  EXPECT_TRUE(message.ends_with("this server has `tutor`")) << message;
}

TEST(Keys, AbortOnlyWhatIsTheirOwn) {
  const ServedScript served("again ...", {.api_keys = {"one", "two"}});
  const std::string body = R"({"text": "x", "rid": "1", "sampling_params": {"max_new_tokens": 4000}})";
  const auto abort = [&](const char* key, const char* what) {
    EXPECT_EQ(served.ask("POST", "/abort_request", what, fmt::format("x-api-key: {}\r\n", key)).status, 200);
  };
  http::RawClient mine(served.server->port()), others(served.server->port());
  mine.send(ServedScript::request_bytes("POST", "/generate", body, "x-api-key: one\r\n"));
  others.send(ServedScript::request_bytes("POST", "/generate", body, "x-api-key: two\r\n"));
  ASSERT_TRUE(http::eventually([&] { return served.engine.num_running() == 2; }));
  abort("two", R"({"rid": "1"})");
  EXPECT_EQ(ServedScript::json(others.read_response("POST"))["meta_info"]["finish_reason"]["type"], "abort");
  abort("two", R"({"abort_all": true})");
  abort("two", R"({"rid": "1"})");
  EXPECT_EQ(served.engine.num_cancelled, 1);
  abort("one", R"({"abort_all": true})");
  EXPECT_EQ(ServedScript::json(mine.read_response("POST"))["meta_info"]["finish_reason"]["type"], "abort");
  EXPECT_EQ(served.ask("POST", "/flush_cache", "", "x-api-key: one\r\n").status, 403);
  EXPECT_EQ(served.engine.num_clears, 0);
}

TEST(OpenGenerations, AreForgottenWithTheirPlace) {
  const auto open = std::make_shared<openai::OpenGenerations>();
  auto a = open->add("me", "1", {}), b = open->add("me", "1", {}), c = open->add("you", "1", {});
  EXPECT_EQ(open->find("me", "1").size(), 2U);
  EXPECT_EQ(open->find_all("you").size(), 1U);
  EXPECT_EQ(open->find_all("").size(), 0U);
  a = nullptr;
  EXPECT_EQ(open->find_all("me").size(), 1U);
  b = c = nullptr;
  EXPECT_EQ(open->size(), 0U);
}

// Notes what it is told.
class NotingListener : public GenerationListener {
 public:
  explicit NotingListener(std::vector<std::string>& notes) : notes_(notes) {}
  void started() override { notes_.push_back("started"); }
  void on_deltas(int, Deltas, const ChoiceSoFar&) override { notes_.push_back("deltas"); }
  void on_choice_end(int choice_idx, const ChoiceEnd& end) override {
    notes_.push_back(
        fmt::format("{} {}", choice_idx, end.finish == ChoiceFinish::kAborted ? "aborted" : "ended"));
  }
  void finished() override { notes_.push_back("finished"); }
  void failed(const Error& error) override { notes_.push_back(error.message); }

 private:
  std::vector<std::string>& notes_;
};

// The two come from different threads: the one that aborts may be the first.
TEST(Abort, BeforeTheEngineHasTheRequest) {
  ScriptedEngine engine([](const runtime::Request&) { return std::string("again ..."); });
  std::vector<std::string> notes;
  const auto kept = std::make_shared<int>(0);
  {
    Workers replies(1);
    std::vector<ChoiceInput> choices(2);
    for (ChoiceInput& choice : choices) choice.request.prompt = {1};
    auto generation = std::make_shared<Generation>(engine, engine.tokenizer(), std::move(choices),
                                                   std::make_unique<NotingListener>(notes));
    generation->keep(kept);
    Generation::abort(generation, *replies.queue());
    generation->start(replies.queue());
    generation.reset();
    EXPECT_TRUE(http::eventually([&] { return kept.use_count() == 1; })) << "it has ended";
    replies.stop();
  }
  EXPECT_EQ(notes, (std::vector<std::string>{"started", "0 aborted", "1 aborted", "finished"}));
  EXPECT_TRUE(engine.requests.empty());
}

TEST(NativeStream, EveryEventCountsItsTokens) {
  const ServedScript served("one two three four");
  const auto events = served.stream("/generate", {{"text", "x"}});
  ASSERT_GT(events.size(), 2U);
  int64_t before = 0;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const int64_t tokens = events[i]["meta_info"]["completion_tokens"];
    EXPECT_GT(tokens, before);
    before = tokens;
  }
  EXPECT_EQ(events.back()["meta_info"]["completion_tokens"], before);
}

TEST(AbortMetrics, AreSayingSo) {
  const ServedScript served("again ...");
  http::RawClient client(served.server->port());
  client.send(ServedScript::request_bytes(
      "POST", "/generate", R"({"text": "x", "sampling_params": {"n": 2, "max_new_tokens": 4000}})"));
  ASSERT_TRUE(http::eventually([&] { return served.engine.num_running() == 2; }));
  EXPECT_EQ(served.ask("POST", "/abort_request", R"({"abort_all": true})").status, 200);
  client.read_response("POST");
  const std::string text = served.ask("GET", "/metrics").body;
  for (const char* line : {"sglang:num_aborted_requests_total{model_name=\"tutor\"} 1\n",
                           "vllm:request_success_total{finished_reason=\"abort\",model_name=\"tutor\"} 2\n",
                           "vllm:request_success_total{finished_reason=\"stop\",model_name=\"tutor\"} 0\n",
                           "lockstep_generations_total{endpoint=\"/generate\",outcome=\"aborted\"} 1\n",
                           "vllm:e2e_request_latency_seconds_count{model_name=\"tutor\"} 0\n"})
    EXPECT_THAT(text, HasSubstr(line));
}

// A step with drafts brings several tokens: one interval between deltas, and one for each token.
TEST(TokenMetrics, CountTokensAndNotDeltas) {
  ScriptedEngine engine([](const runtime::Request&) { return std::string("x"); });
  ServingMetrics metrics(engine, "tutor");
  std::vector<std::string> notes;
  const auto listener = metrics.measure(std::make_unique<NotingListener>(notes), "/generate",
                                        std::chrono::steady_clock::now(), 1);
  for (const int num_tokens : {1, 4, 7}) listener->on_deltas(0, {}, {{}, num_tokens});
  listener->on_choice_end(0, {.num_tokens = 7});
  listener->finished();
  const std::string text = metrics.text();
  for (const char* line : {"sglang:inter_token_latency_seconds_count{model_name=\"tutor\"} 6\n",
                           "vllm:time_per_output_token_seconds_count{model_name=\"tutor\"} 6\n",
                           "vllm:inter_token_latency_seconds_count{model_name=\"tutor\"} 2\n"})
    EXPECT_THAT(text, HasSubstr(line));
}

}  // namespace
}  // namespace lockstep::serving
