// Serves the chat page beside answers that are written here instead of made by a model, for page_test.py and
// for looking at the page. The last user message chooses the answer. usage: lockstep_scripted_server [PORT]
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/serving/http/http.h"
#include "lockstep/serving/web/web.h"

namespace lockstep::serving {
namespace {

using std::chrono::milliseconds;
using ResponderPtr = std::shared_ptr<http::Responder>;

constexpr milliseconds kPace{25};

std::string event(const Json& choice) {
  return "data: " +
         to_text({{"id", "chatcmpl-1"}, {"object", "chat.completion.chunk"}, {"choices", {choice}}}) + "\n\n";
}
std::string delta(const Json& delta) {
  return event({{"index", 0}, {"delta", delta}, {"finish_reason", nullptr}});
}
std::string finish(std::string_view reason) {
  return event({{"index", 0}, {"delta", Json::object()}, {"finish_reason", reason}});
}
std::string usage(int tokens) {
  return "data: " +
         to_text(
             {{"choices", Json::array()}, {"usage", {{"prompt_tokens", 9}, {"completion_tokens", tokens}}}}) +
         "\n\n";
}

class Script {
 public:
  ~Script() {
    is_over_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

  void handle(const http::Request& request, const ResponderPtr& responder) {
    if (auto page = web::page_response(request)) return responder->send(std::move(*page));
    if (request.target == "/live") return responder->send({.body = to_text(live())});
    if (request.target == "/plan")
      return responder->send({.content_type = "text/plain", .body = "edge 0: all_reduce over tp\n"});
    if (request.target == "/test/state") return responder->send({.body = to_text(state())});
    if (request.target == "/v1/chat/completions") return chat(request, responder);
    responder->send(http::error_response(404, "there is nothing at " + request.target));
  }

 private:
  Json live() {
    const int n = ++num_polls_;
    const auto wave = [&](int period, int top) { return std::abs((n % period) * 2 - period) * top / period; };
    Json rows = Json::array();
    for (int rank = 0; rank < 8; ++rank) rows.push_back(rank == 7 ? 0 : 4 + wave(7 + rank, 24));
    return {{"model", "scripted-moe"},
            {"uptime_seconds", 3725 + n},
            {"num_ranks", 8},
            {"replicas",
             {{{"running", 11}, {"queued", wave(9, 5)}, {"pages_used", 310 + n}, {"pages_total", 1024}},
              {{"running", 12}, {"queued", 0}, {"pages_used", 960}, {"pages_total", 1024}}}},
            {"tokens_per_second", 412.5 + wave(13, 220)},
            {"rows_per_rank", rows},
            {"steps", 91000 + n * 37},
            {"state", "serving"},
            {"phase_seconds", {{"schedule", 0.001 * 37 * n}, {"forward", 0.012 * 37 * n}}}};
  }

  Json state() {
    const std::lock_guard lock(mutex_);
    return {{"requests", requests_}, {"disconnects", num_disconnects_.load()}};
  }

  void chat(const http::Request& request, const ResponderPtr& responder) {
    const auto body = parse_json(request.body);
    if (!body.ok()) return responder->send(http::error_response(400, body.error().message));
    {
      const std::lock_guard lock(mutex_);
      requests_.push_back(*body);
    }
    const Json& last = body->at("messages").back();
    const std::string text = last.at("content");
    if (text == "refuse")
      return responder->send(
          http::error_response(400, "max_tokens is 99, but the context has room for 7 more <b>tokens</b>"));
    if (text == "locked" && request.header("Authorization") != "Bearer sesame")
      return responder->send(http::error_response(401, "an API key is needed"));
    responder->start_stream(200, "text/event-stream", {{"Cache-Control", "no-cache"}});
    responder->write(delta({{"role", "assistant"}, {"content", ""}}));
    if (last.at("role") == "tool") return run(responder, after_tool(text), End::kDone);
    if (text == "endless") return run_endless(responder);
    if (text == "midway")
      return run(
          responder,
          {delta({{"content", "It began"}}), "data: {\"error\":{\"message\":\"the engine failed\"}}\n\n"},
          End::kDone);
    if (text == "cut") return run(responder, {delta({{"content", "half an ans"}})}, End::kNone);
    run(responder, answer_to(text), End::kDone);
  }

  static std::vector<std::string> after_tool(const std::string& result) {
    return {delta({{"content", "The tool answered "}}), delta({{"content", result + "."}}), finish("stop"),
            usage(6)};
  }

  static std::vector<std::string> answer_to(const std::string& text) {
    std::vector<std::string> events;
    const auto say = [&](const char* key, std::string_view words) {
      for (size_t at = 0; at < words.size();) {
        const size_t end =
            std::min(words.size(),
                     words.find(' ', at) == std::string_view::npos ? words.size() : words.find(' ', at) + 1);
        events.push_back(delta({{key, words.substr(at, end - at)}}));
        at = end;
      }
    };
    const auto call = [&](int index, const char* name, std::string_view arguments) {
      events.push_back(delta({{"tool_calls",
                               {{{"index", index},
                                 {"id", fmt::format("call_{}", index)},
                                 {"type", "function"},
                                 {"function", {{"name", name}, {"arguments", ""}}}}}}}));
      for (size_t at = 0; at < arguments.size(); at += 7)
        events.push_back(delta(
            {{"tool_calls", {{{"index", index}, {"function", {{"arguments", arguments.substr(at, 7)}}}}}}}));
    };
    if (text == "think" || text.find("12 boxes") != std::string::npos) {
      say("reasoning_content",
          "12 boxes of 8 pens are 96 pens.\nMia gives 59 away, so 96 - 59 = 37 are left.");
      say("content", "Mia has **37** pens now.");
    } else if (text == "tool" || text.find("17 * 23") != std::string::npos) {
      say("reasoning_content", "I call the tool.");
      call(0, "calculator", R"({"expression":"(17 * 23) + 0.5"})");
      call(1, "calculator", R"({"expression":"1 / 0"})");
    } else if (text == "unknown tool") {
      call(0, "rm_rf", R"({"path": "/"})");
    } else if (text == "hostile") {
      say("reasoning_content", "<script>window.broken = 1</script>");
      say("content",
          "<img src=x onerror=\"window.broken = 2\"> [link](javascript:window.broken=3) "
          "`<b>code</b>`\n\n```html\n"
          "<svg onload=\"window.broken = 4\">\n```");
    } else if (text == "markup") {
      say("content",
          "# Steps\n\nFirst *read*, then **add** the `numbers`:\n\n1. twelve times eight\n2. minus "
          "fifty-nine\n\n"
          "```python\nrolls = 12 * 8 - 59\nprint(rolls)  # 37\n```\n\nSo 2 * 3 * 4 stays as it is, and a_b "
          "too.\n\n- done");
    } else {
      say("content", "You said: " + text);
    }
    const bool has_calls = events.back().find("tool_calls") != std::string::npos;
    const int num_tokens = static_cast<int>(events.size());
    events.push_back(finish(has_calls ? "tool_calls" : "stop"));
    events.push_back(usage(num_tokens));
    return events;
  }

  enum class End { kDone, kNone };

  void run(const ResponderPtr& responder, std::vector<std::string> events, End end) {
    threads_.emplace_back([responder, events = std::move(events), end] {
      for (const std::string& text : events) {
        std::this_thread::sleep_for(kPace);
        responder->write(text);
      }
      if (end == End::kDone) {
        responder->write("data: [DONE]\n\n");
        responder->finish();
      }
    });
  }

  void run_endless(const ResponderPtr& responder) {
    responder->on_disconnect([this] { ++num_disconnects_; });
    threads_.emplace_back([this, responder] {
      for (int i = 0; responder->connected() && !is_over_; ++i) {
        responder->write(delta({{"content", fmt::format("word{} ", i)}}));
        std::this_thread::sleep_for(kPace);
      }
    });
  }

  std::mutex mutex_;
  Json requests_ = Json::array();
  std::atomic<int> num_polls_{0}, num_disconnects_{0};
  std::atomic<bool> is_over_{false};
  std::vector<std::thread> threads_;  // used on the I/O thread only
};

int serve(int port) {
  Script script;
  http::ServerOptions options;
  options.port = port;
  options.drain_timeout = std::chrono::seconds(1);
  auto server =
      http::Server::listen(options, [&](const http::Request& request, const ResponderPtr& responder) {
        script.handle(request, responder);
      });
  if (!server.ok()) {
    std::fprintf(stderr, "%s\n", server.error().message.c_str());
    return 1;
  }
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // inherited by the serving thread
  std::thread serving([&] { (*server)->run(); });
  std::printf("listening on %d\n", (*server)->port());
  std::fflush(stdout);
  int which = 0;
  sigwait(&signals, &which);
  (*server)->stop();
  serving.join();
  return 0;
}

}  // namespace
}  // namespace lockstep::serving

int main(int argc, char** argv) { return lockstep::serving::serve(argc > 1 ? std::atoi(argv[1]) : 0); }
