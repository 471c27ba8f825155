#pragma once
// The engine without threads: requests in, one step at a time, events out. The engine loop drives it from its
// thread; tests drive it directly. Requests have passed check_request(); all calls come from one thread.
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "lockstep/runtime/engine.h"
#include "lockstep/runtime/sampler/step_draws.h"
#include "lockstep/runtime/scheduler/scheduler.h"
#include "lockstep/runtime/step.h"

namespace lockstep::runtime {

struct AcceptedRequest {
  RequestId id = 0;  // ascending from one to the next
  Request request;
  EventSink sink;
  uint64_t seed = 0;  // the request's, or one made for it
  // When it is no longer to wait for its start.
  std::chrono::steady_clock::time_point waits_until = std::chrono::steady_clock::time_point::max();
};

struct StepLoopConfig {
  SchedulerLimits limits;
  Vocabulary vocabulary;
  std::vector<int32_t> eos_token_ids;
  int32_t num_drafts = 0;  // of a request and step; 0: the executor has nothing to draft with
};

class StepLoop {
 public:
  StepLoop(StepLoopConfig config, Executor& executor);

  void admit(AcceptedRequest accepted);
  void cancel(RequestId id);  // unknown ids are ignored
  // Requests that have not started by the time that they were to wait end with kError and kUnavailable.
  void expire(std::chrono::steady_clock::time_point now);
  void cancel_all();
  // Every open request ends with kError. The scheduler may be in any state.
  void fail_all(const std::string& reason);
  // One that was accepted and will not be admitted.
  void refuse(AcceptedRequest accepted, FinishReason finish, std::string error);

  bool idle() const { return open_.empty(); }
  // Runs one step; not when idle. What the executor throws passes through, and then only fail_all() may
  // follow. `meanwhile` is called while the ranks compute; of this object it may call admit() and deliver().
  void step(const std::function<void()>& meanwhile = [] {});

  // Events wait until they are delivered, so that statistics can be published first. A sink that throws loses
  // its request.
  void deliver();
  void clear_cache() { scheduler_.clear_cache(); }
  uint64_t num_ended() const { return num_ended_; }  // final events delivered

  // All but requests_accepted.
  EngineStats stats() const;
  const Scheduler& scheduler() const { return scheduler_; }

 private:
  struct OpenRequest {
    RequestId id = 0;
    std::shared_ptr<const EventSink> sink;
    DrawState draw;
    PromptScores scores;
    std::vector<OutputToken> prompt;  // with prompt_logprobs
    bool has_prompt_done = false;
  };
  struct Outgoing {
    std::shared_ptr<const EventSink> sink;
    Event event;
  };

  // So that ends come in the same order every time.
  std::vector<RequestId> open_by_age() const;
  void say_what_logits_are_for(StepInput& input) const;
  void commit(int32_t replica, const SequenceRows& rows, std::span<RowResult> results);
  void take_scores(OpenRequest& request, std::span<RowResult> results);
  struct Place {  // of a sequence in the step that ran
    int32_t replica;
    const SequenceRows& rows;
  };
  void take_tokens(OpenRequest& request, const Place& place, std::span<RowResult> results, Event event);
  enum class Goes : uint8_t { kOn, kEnded };
  Goes take_token(OpenRequest& request, const Place& place, OutputToken token, Event& event);
  void make_drafts(const StepInput& step);
  void finish(OpenRequest& request, FinishReason reason, Event event);
  void post(const std::shared_ptr<const EventSink>& sink, Event event);

  StepLoopConfig config_;
  Executor& executor_;
  Scheduler scheduler_;
  std::unordered_map<RequestId, std::unique_ptr<OpenRequest>> open_;
  std::multimap<std::chrono::steady_clock::time_point, RequestId> waits_until_;
  std::deque<Outgoing> outbox_;
  EngineStats totals_;
  uint64_t num_ended_ = 0;
  bool is_in_step_ = false;
  std::vector<RequestId> cancelled_in_step_;  // by deliver()
};

}  // namespace lockstep::runtime
