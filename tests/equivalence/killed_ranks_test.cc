// The whole server over real ranks while ranks are killed, clients leave and send nonsense: every accepted
// request ends in one final event, every answer is whole, nothing leaks, and the server goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <random>
#include <thread>

#include "lockstep/collectives/in_process/world.h"
#include "lockstep/runtime/described_engine.h"
#include "lockstep/runtime/engine_loop.h"
#include "lockstep/runtime/executor/rank_executor.h"
#include "lockstep/serving/server.h"
#include "tests/equivalence/run_requests.h"
#include "tests/serving/http_raw_client.h"

namespace lockstep::runtime {
namespace {

using ::testing::HasSubstr;

// Ranks that can be made to fail: the sink throws on the thread of a wanted row's home rank, or holds it up.
struct Faults {
  std::atomic<bool> kill_next = false;
  std::atomic<bool> hold = false;  // a rank, until this is false
  std::atomic<int> num_kills = 0;
};

class MortalExecutor final : public Executor {
 public:
  MortalExecutor(std::unique_ptr<Executor> inner, Faults& faults)
      : inner_(std::move(inner)), faults_(faults) {}
  void run(const StepInput& input, const LogitSink& sink) override {
    run_beside(input, sink, [] {});
  }
  void run_beside(const StepInput& input, const LogitSink& sink,
                  const std::function<void()>& meanwhile) override {
    const LogitSink mortal = [&](const LogitRow& row) {
      if (faults_.kill_next.exchange(false)) {
        ++faults_.num_kills;
        throw Fatal("killed by the test");
      }
      while (faults_.hold) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      sink(row);
    };
    inner_->run_beside(input, mortal, meanwhile);
  }
  std::string failure() const override { return inner_->failure(); }
  std::string interrupt(const std::string& why) override { return inner_->interrupt(why); }
  StepTimes last_times() const override { return inner_->last_times(); }

 private:
  const std::unique_ptr<Executor> inner_;
  Faults& faults_;
};

planning::ParallelFlags four_ranks() {
  return {.tp_size = 4,
          .dp_size = 2,
          .enable_dp_attention = true,
          .ep_size = 4,
          .moe_dense_tp_size = 1,
          .moe_a2a_backend = "in_process"};
}

std::unique_ptr<Engine> mortal_engine(Faults& faults, const FaultPolicy& policy) {
  auto described = describe_engine(
      {.model_directory = test::repository("models/tutor-deepseek-v3"), .parallel = four_ranks()});
  const PlannedEngine& planned = described->planned;
  const SchedulerLimits limits = described->limits;
  const RankExecutorParts ranks = {
      .plans = std::make_shared<planning::Plans>(planned.plans),
      .stages = planned.configuration.stages,
      .shape = limits.shape,
      .checkpoint = std::make_shared<Checkpoint>(Checkpoint::open(planned.model.directory).value()),
      .description = described->description,
      .options = {.vocab = planned.model.vocab,
                  .hidden = planned.shape.hidden,
                  .page_size = limits.page_size,
                  .pages_per_replica = limits.pages_per_replica}};
  const auto make = [ranks, &faults]() -> Result<std::unique_ptr<Executor>> {
    auto inner = make_rank_executor(ranks);
    if (!inner) return inner.error();
    return std::unique_ptr<Executor>(std::make_unique<MortalExecutor>(*std::move(inner), faults));
  };
  return make_engine({.model = planned.model,
                      .limits = limits,
                      .executor = make().value(),
                      .make_executor = [make](const RestartBudget&) { return make(); },
                      .plan_text = "",
                      .plan_json = {},
                      .faults = policy});
}

// Passes everything on and counts the final events of what was accepted.
class CountingEngine final : public Engine {
 public:
  explicit CountingEngine(Engine& inner) : inner_(inner) {}
  Result<RequestId> submit(Request request, EventSink sink) override {
    auto ends = std::make_shared<std::atomic<int>>(0);
    auto id = inner_.submit(std::move(request), [this, ends, sink = std::move(sink)](const Event& event) {
      if (ends->load() > 0) ++num_after_the_end;
      if (event.finish != FinishReason::kNotFinished) ++*ends;
      sink(event);
    });
    if (id) {
      const std::lock_guard lock(mutex_);
      ends_.push_back(std::move(ends));
    }
    return id;
  }
  void cancel(RequestId id) override { inner_.cancel(id); }
  void clear_cache() override { inner_.clear_cache(); }
  const ModelInfo& model() const override { return inner_.model(); }
  EngineStats stats() const override { return inner_.stats(); }
  Health health() const override { return inner_.health(); }
  std::string plan_text() const override { return inner_.plan_text(); }
  Json plan_json() const override { return inner_.plan_json(); }
  void drain(double seconds) override { inner_.drain(seconds); }

  // (accepted, with exactly one final event)
  std::pair<size_t, size_t> ended() const {
    const std::lock_guard lock(mutex_);
    size_t once = 0;
    for (const auto& ends : ends_) once += ends->load() == 1 ? 1 : 0;
    return {ends_.size(), once};
  }
  std::atomic<int> num_after_the_end = 0;

 private:
  Engine& inner_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<std::atomic<int>>> ends_;
};

struct Served {
  Served(Faults& faults, const FaultPolicy& policy)
      : engine(mortal_engine(faults, policy)), counting(*engine) {
    server = serving::ApiServer::make(counting, {.port = 0}).value();
    thread = std::thread([this] { server->run(); });
  }
  ~Served() {
    server->stop();
    thread.join();
  }
  serving::http::RawResponse ask(const std::string& method, const std::string& path,
                                 const std::string& body = "") const {
    serving::http::RawClient client(server->port());
    client.send(bytes_of(method, path, body));
    return client.read_response(method);
  }
  static std::string bytes_of(const std::string& method, const std::string& path, const std::string& body) {
    return fmt::format("{} {} HTTP/1.1\r\nHost: test\r\nContent-Length: {}\r\n\r\n{}", method, path,
                       body.size(), body);
  }
  bool becomes(Health::State state) const {
    for (int i = 0; i < 10000; ++i) {
      if (engine->health().state == state) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }

  std::unique_ptr<Engine> engine;
  CountingEngine counting;
  std::unique_ptr<serving::ApiServer> server;
  std::thread thread;
};

std::string chat_body(std::mt19937_64& random) {
  return to_text(
      {{"messages",
        Json::array({{{"role", "user"},
                      {"content", fmt::format("What is {} + {}?", random() % 90, random() % 90)}}})},
       {"max_tokens", 1 + random() % 40},
       {"n", 1 + random() % 2},
       {"stream", random() % 2 == 0},
       {"ignore_eos", true}});
}

struct Counts {
  std::atomic<int> whole = 0, errors = 0, unavailable = 0, refused = 0, left = 0, aborts = 0;
};

// A whole answer: a body, or a stream that says how it ended.
void check_answer(const serving::http::RawResponse& response, Counts& counts) {
  EXPECT_TRUE(response.is_complete) << response.status << response.body;
  if (response.status == 503) {
    EXPECT_EQ(response.header("retry-after"), "1");
    ++counts.unavailable;
  } else if (response.status == 500 || response.body.find("\"error\"") != std::string::npos) {
    EXPECT_THAT(response.body, HasSubstr("killed by the test"));
    ++counts.errors;
  } else {
    EXPECT_EQ(response.status, 200) << response.body;
    const bool is_stream = response.body.starts_with("data:");
    EXPECT_TRUE(!is_stream || response.body.ends_with("data: [DONE]\n\n")) << response.body;
    ++counts.whole;
  }
}

void be_a_client(const Served& served, uint64_t seed, const std::atomic<bool>& is_over, Counts& counts) {
  std::mt19937_64 random(seed);
  while (!is_over) {
    const std::string body = chat_body(random);
    switch (random() % 10) {
      case 4: {  // of whatever others have under way
        const auto response = served.ask("POST", "/abort_request", R"({"abort_all":true})");
        EXPECT_EQ(response.status, 200) << response.body;
        ++counts.aborts;
        break;
      }
      case 0:
      case 1: {  // leaves, at once or after a while
        serving::http::RawClient client(served.server->port());
        client.send(Served::bytes_of("POST", "/v1/chat/completions", body));
        if (random() % 2 == 0) client.read_until("data:", std::chrono::milliseconds(20));
        client.reset();
        ++counts.left;
        break;
      }
      case 2:
      case 3: {
        const auto response =
            served.ask("POST", "/v1/chat/completions", body.substr(0, random() % body.size()));
        EXPECT_EQ(response.status, 400) << response.body;
        ++counts.refused;
        break;
      }
      default:
        check_answer(served.ask("POST", "/v1/chat/completions", body), counts);
    }
  }
}

// LOCKSTEP_SOAK_SECONDS makes it longer.
std::chrono::seconds soak_length() {
  const char* given = std::getenv("LOCKSTEP_SOAK_SECONDS");
  return std::chrono::seconds(given == nullptr ? 4 : std::max(1, std::atoi(given)));
}

TEST(KilledRanks, EveryRequestEndsOnceAndNothingLeaks) {
  const auto length = soak_length();
  constexpr int kClients = 8;
  Faults faults;
  FaultPolicy policy;
  policy.max_restarts = 1000;
  policy.first_backoff = policy.longest_backoff = std::chrono::milliseconds(1);
  policy.max_request_failures = 0;  // the faults are nobody's
  Served served(faults, policy);
  Counts counts;
  std::atomic<bool> is_over = false;
  std::vector<std::thread> clients;
  for (uint64_t seed = 1; seed <= kClients; ++seed)
    clients.emplace_back([&, seed] { be_a_client(served, seed, is_over, counts); });
  const auto until = std::chrono::steady_clock::now() + length;
  std::mt19937_64 random(99);
  // However slow the machine, answers are completed between kills.
  const auto give_up = until + std::chrono::seconds(60);
  const auto goes_on = [&] {
    const auto now = std::chrono::steady_clock::now();
    return now < until || (faults.num_kills < 3 && now < give_up);
  };
  while (goes_on()) {
    const auto whole = counts.whole.load();
    std::this_thread::sleep_for(std::chrono::milliseconds(100 + random() % 300));
    while (counts.whole == whole && std::chrono::steady_clock::now() < give_up)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    faults.kill_next = true;
  }
  is_over = true;
  for (std::thread& client : clients) client.join();
  faults.kill_next = false;
  ASSERT_TRUE(served.becomes(Health::State::kServing)) << served.engine->health().reason;
  served.engine->drain(30);
  const auto [accepted, once] = served.counting.ended();
  EXPECT_EQ(once, accepted);
  EXPECT_EQ(served.counting.num_after_the_end, 0);
  const EngineStats stats = served.engine->stats();
  EXPECT_EQ(stats.requests_accepted, accepted);
  EXPECT_EQ(stats.requests_finished + stats.requests_cancelled + stats.requests_failed, accepted);
  for (const ReplicaStats& replica : stats.replicas)
    EXPECT_EQ(replica.pages_used + replica.slots_used + replica.running + replica.queued, 0);
  EXPECT_GE(faults.num_kills, 3);
  EXPECT_GE(stats.failures, 3U);
  EXPECT_LE(stats.failures, static_cast<uint64_t>(faults.num_kills)) << "two may die in one step";
  EXPECT_EQ(stats.restarts, stats.failures);
  EXPECT_GT(counts.whole, 0);
  EXPECT_GT(counts.errors, 0);
  EXPECT_GT(counts.refused, 0);
  EXPECT_GT(counts.left, 0);
  EXPECT_GT(counts.aborts, 0);
  std::cout << fmt::format(
      "{} accepted, {} whole answers, {} errors, {} asked to try again, {} refused, {} left, "
      "aborted {} times; {} ranks killed\n",
      accepted, counts.whole.load(), counts.errors.load(), counts.unavailable.load(), counts.refused.load(),
      counts.left.load(), counts.aborts.load(), faults.num_kills.load());
}

// Within two seconds of a rank's death its requests have errors, and the server says what happened.
TEST(KilledRanks, OpenRequestsHearOfADeathInTimeAndHealthSaysWhat) {
  Faults faults;
  FaultPolicy policy;
  policy.first_backoff = std::chrono::milliseconds(60'000);
  Served served(faults, policy);
  std::vector<std::unique_ptr<serving::http::RawClient>> clients;
  std::mt19937_64 random(3);
  for (int i = 0; i < 6; ++i) {
    clients.push_back(std::make_unique<serving::http::RawClient>(served.server->port()));
    clients.back()->send(Served::bytes_of(
        "POST", "/v1/chat/completions",
        R"({"messages":[{"role":"user","content":"Hello"}],"stream":true,"ignore_eos":true,"max_tokens":100})"));
  }
  for (auto& client : clients) ASSERT_TRUE(client->read_until("data:"));
  faults.kill_next = true;
  const auto begin = std::chrono::steady_clock::now();
  for (auto& client : clients) {
    const auto response = client->read_response();
    EXPECT_TRUE(response.is_complete);
    EXPECT_THAT(response.body, HasSubstr("killed by the test"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(2));
  const auto sick = served.ask("GET", "/health");
  EXPECT_EQ(sick.status, 503);
  EXPECT_THAT(sick.body, HasSubstr("killed by the test"));
  EXPECT_THAT(sick.body, HasSubstr("rank "));
  EXPECT_EQ(served.ask("GET", "/livez").status, 200) << "it will be back";
  const auto later = served.ask("POST", "/v1/chat/completions", chat_body(random));
  EXPECT_EQ(later.status, 503);
  EXPECT_EQ(later.header("retry-after"), "1");
}

// A rank that does not come to the exchange: who waits for whom, on which edge, is in the answer.
TEST(KilledRanks, AStuckRankIsNamedWithTheEdgeAndTheGroup) {
  Faults faults;
  FaultPolicy policy;
  policy.step_timeout = std::chrono::milliseconds(300);
  policy.grace = std::chrono::milliseconds(300);
  Served served(faults, policy);
  faults.hold = true;
  const auto response =
      served.ask("POST", "/v1/chat/completions",
                 R"({"messages":[{"role":"user","content":"Hello"}],"ignore_eos":true,"max_tokens":100})");
  EXPECT_EQ(response.status, 500);
  EXPECT_THAT(response.body, HasSubstr("longer than --step-timeout 0.3"));
  EXPECT_THAT(response.body, HasSubstr("computes sampler"));
  EXPECT_THAT(served.ask("GET", "/health").body, HasSubstr("not all ranks have come back"));
  EXPECT_EQ(served.ask("GET", "/livez").status, 503);
  faults.hold = false;
  EXPECT_TRUE(served.becomes(Health::State::kServing));
  EXPECT_EQ(served.ask("GET", "/health_generate").status, 200);
}

}  // namespace
}  // namespace lockstep::runtime
