#pragma once
// For tests: an engine that answers from a script, one token an event; and a client of its server.
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/runtime/engine.h"
#include "lockstep/serving/server.h"
#include "tests/serving/http_raw_client.h"
#include "tests/source_dir.h"

namespace lockstep::serving {

inline const std::string kTutorDirectory = std::string(LOCKSTEP_SOURCE_DIR) + "/models/tutor-deepseek-v3";

class ScriptedEngine : public runtime::Engine {
 public:
  // The text of a reply, then the end of the sequence; one that ends with "..." never ends by itself.
  using Script = std::function<std::string(const runtime::Request&)>;

  explicit ScriptedEngine(Script script)
      : script_(std::move(script)), tokenizer_(*Tokenizer::load(kTutorDirectory)) {
    info_ = {.name = "tutor", .directory = kTutorDirectory, .family = "deepseek_v3"};
    info_.vocab = 1024;
    info_.context_length = 4096;
    info_.eos_token_ids = {964};
    info_.default_sampling.temperature = 0;
    thread_ = std::thread([this] { run(); });
  }
  ~ScriptedEngine() override {
    std::unique_lock lock(mutex_);
    is_stopping_ = true;
    lock.unlock();
    changed_.notify_all();
    thread_.join();
  }

  Result<runtime::RequestId> submit(runtime::Request request, runtime::EventSink sink) override {
    const std::lock_guard lock(mutex_);
    if (refusal) return *refusal;
    std::string text = script_(request);
    Running running{.id = ++last_id_, .request = request, .sink = std::move(sink)};
    if (text.ends_with("...")) running.is_endless = true;
    running.ids = tokenizer_.encode(text, AddedTokens::kParse);
    running_.push_back(std::move(running));
    requests.push_back(std::move(request));
    changed_.notify_all();
    return last_id_;
  }

  void cancel(runtime::RequestId id) override {
    const std::lock_guard lock(mutex_);
    for (Running& running : running_)
      if (running.id == id && !running.is_cancelled) running.is_cancelled = true, ++num_cancelled;
    changed_.notify_all();
  }

  void clear_cache() override { ++num_clears; }
  const runtime::ModelInfo& model() const override { return info_; }
  runtime::EngineStats stats() const override {
    const std::lock_guard lock(mutex_);
    runtime::EngineStats stats{.num_ranks = 4, .steps = 12};
    stats.replicas = {{static_cast<int>(running_.size()), 0, static_cast<int64_t>(running_.size()), 100},
                      {0, 0, 0, 100, 0, 8}};
    stats.output_tokens = num_tokens_;
    stats.last_step_rows = {2, 2, 1, 1};
    return stats;
  }
  runtime::Health health() const override {
    const std::lock_guard lock(mutex_);
    return {.serving = failure.empty(), .reason = failure, .state = state};
  }
  std::string plan_text() const override { return "edge <0>: all_reduce & add\n"; }
  Json plan_json() const override { return {{"edges", Json::array({"all_reduce"})}}; }
  void drain(double /*seconds*/) override {}

  const Tokenizer& tokenizer() const { return tokenizer_; }
  runtime::Request request(size_t i) const {
    const std::lock_guard lock(mutex_);
    return requests.at(i);
  }
  size_t num_running() const {
    const std::lock_guard lock(mutex_);
    return running_.size();
  }
  void fail_after(std::string error, int num_tokens, ErrorCode code = ErrorCode::kInternal) {
    const std::lock_guard lock(mutex_);
    error_ = Error{code, std::move(error), ""};
    tokens_before_error_ = num_tokens;
  }

  std::function<int32_t(runtime::RequestId)> num_cached_tokens;  // of a prompt; set before requests come
  std::optional<Error> refusal;                                  // of submit()
  std::string failure;                                           // of health()
  runtime::Health::State state = runtime::Health::State::kServing;
  std::vector<runtime::Request> requests;
  std::atomic<int> num_cancelled{0}, num_clears{0};

 private:
  struct Running {
    runtime::RequestId id = 0;
    runtime::Request request;
    runtime::EventSink sink;
    std::vector<int32_t> ids;
    size_t next = 0;
    bool is_endless = false, is_cancelled = false;
  };

  runtime::Event next_event(Running& running) {
    runtime::Event event{.id = running.id};
    const runtime::Request& request = running.request;
    for (size_t i = 0; running.next == 0 && request.prompt_logprobs >= 0 && i < request.prompt.size(); ++i)
      event.prompt.push_back({request.prompt[i], -0.5f, {{request.prompt[i], -0.5f}}});
    if (running.is_cancelled) {
      event.finish = runtime::FinishReason::kCancelled;
    } else if (error_ && running.next >= static_cast<size_t>(tokens_before_error_)) {
      event.finish = runtime::FinishReason::kError;
      event.error = error_->message, event.error_code = error_->code;
    } else if (running.next >= static_cast<size_t>(request.max_new_tokens)) {
      event.finish = runtime::FinishReason::kLength;
    } else if (running.next >= running.ids.size() && !running.is_endless) {
      event.finish = runtime::FinishReason::kStop;
      event.stop_token_id = 964;
    } else {
      if (running.next == 0 && num_cached_tokens) event.num_cached_tokens = num_cached_tokens(running.id);
      const int32_t id = running.ids[running.next++ % running.ids.size()];
      runtime::OutputToken token{.token_id = id, .logprob = -0.25f};
      for (int i = 0; i < request.num_top_logprobs; ++i)
        token.top.push_back({i == 0 ? id : i, -0.25f * static_cast<float>(i + 1)});
      event.tokens.push_back(std::move(token));
      ++num_tokens_;
    }
    return event;
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (!is_stopping_) {
      changed_.wait_for(lock, std::chrono::milliseconds(running_.empty() ? 100 : 1));
      std::vector<std::pair<runtime::EventSink, runtime::Event>> step;
      for (Running& running : running_) {
        step.emplace_back(running.sink, next_event(running));
        running.is_cancelled =
            running.is_cancelled || step.back().second.finish != runtime::FinishReason::kNotFinished;
      }
      std::erase_if(running_, [&](const Running& r) {
        for (const auto& [sink, event] : step)
          if (event.id == r.id) return event.finish != runtime::FinishReason::kNotFinished;
        return false;
      });
      lock.unlock();
      for (const auto& [sink, event] : step) sink(event);
      step.clear();
      lock.lock();
    }
  }

  const Script script_;
  Tokenizer tokenizer_;
  runtime::ModelInfo info_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Running> running_;
  runtime::RequestId last_id_ = 0;
  uint64_t num_tokens_ = 0;
  std::optional<Error> error_;
  int tokens_before_error_ = 0;
  bool is_stopping_ = false;
  std::thread thread_;
};

class ServedScript {
 public:
  explicit ServedScript(ScriptedEngine::Script script, ServeOptions options = {})
      : engine(std::move(script)) {
    options.port = 0;
    auto made = ApiServer::make(engine, std::move(options));
    if (!made.ok()) throw std::runtime_error(made.error().message);
    server = std::move(*made);
    thread_ = std::thread([this] { server->run(); });
  }
  explicit ServedScript(const std::string& text, ServeOptions options = {})
      : ServedScript([text](const runtime::Request&) { return text; }, std::move(options)) {}
  ~ServedScript() {
    server->stop();
    thread_.join();
  }

  http::RawResponse ask(const std::string& method, const std::string& path, const std::string& body = "",
                        const std::string& headers = "") const {
    http::RawClient client(server->port());
    client.send(request_bytes(method, path, body, headers));
    return client.read_response(method);
  }
  static std::string request_bytes(const std::string& method, const std::string& path,
                                   const std::string& body, const std::string& headers = "") {
    return fmt::format("{} {} HTTP/1.1\r\nHost: test\r\n{}Content-Length: {}\r\n\r\n{}", method, path,
                       headers, body.size(), body);
  }
  Json post(const std::string& path, const Json& body) const {
    return json(ask("POST", path, to_text(body)));
  }
  static Json json(const http::RawResponse& response) {
    auto parsed = parse_json(response.body);
    if (!parsed.ok()) throw std::runtime_error(std::to_string(response.status) + ": " + response.body);
    return *parsed;
  }
  std::vector<Json> stream(const std::string& path, Json body) const {
    body["stream"] = true;
    const http::RawResponse response = ask("POST", path, to_text(body));
    EXPECT_EQ(response.status, 200) << response.body;
    EXPECT_EQ(response.header("content-type"), "text/event-stream; charset=utf-8");
    return events(response.body);
  }
  static std::vector<Json> events(std::string_view text) {
    std::vector<Json> events;
    bool is_done = false;
    while (!text.empty()) {
      const size_t end = text.find("\n\n");
      if (end == std::string_view::npos || !text.starts_with("data: ") || is_done)
        throw std::runtime_error("not an event: " + std::string(text));
      const std::string_view data = text.substr(6, end - 6);
      is_done = data == "[DONE]";
      if (!is_done) events.push_back(parse_json(data).value());
      text.remove_prefix(end + 2);
    }
    EXPECT_TRUE(is_done) << "the stream has no [DONE]";
    return events;
  }

  ScriptedEngine engine;
  std::unique_ptr<ApiServer> server;

 private:
  std::thread thread_;
};

inline Json user_says(const std::string& text) {
  return {{"messages", Json::array({{{"role", "user"}, {"content", text}}})}};
}

}  // namespace lockstep::serving
