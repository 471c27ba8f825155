#pragma once
// One API request on its way through the engine: its choices are submitted, their tokens become deltas, stop
// strings and vanished clients cancel them. Knows no JSON and no HTTP.
//
// Everything here happens on the one thread of the queue that start() is given; the engine's threads only
// push to it. So neither this nor a listener needs a lock, and the engine is never called back from its own
// threads.
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/engine.h"
#include "lockstep/serving/chat.h"
#include "lockstep/serving/task_queue.h"

namespace lockstep::serving {

struct ChoiceInput {
  runtime::Request request;
  ReplyOptions reply;
};

enum class ChoiceFinish : unsigned char { kStop, kLength, kToolCalls, kAborted };

struct ChoiceEnd {
  ChoiceFinish finish = ChoiceFinish::kStop;
  int num_tokens = 0;  // that the engine delivered and the reply took
  int num_reasoning_tokens = 0;
  int num_cached_tokens = 0;     // of the prompt, not computed for this choice
  std::string stop_string = {};  // that ended the text; empty: none did
};

// What there is of a choice when deltas come.
struct ChoiceSoFar {
  // Its tokens when log probabilities are wanted, else empty; the token indices of the deltas' texts point
  // into it.
  const std::vector<runtime::OutputToken>& tokens;
  int num_tokens = 0;  // that the engine delivered and the reply took
};

// Told what happens, in order. After failed() or finished() nothing follows.
class GenerationListener {
 public:
  virtual ~GenerationListener() = default;
  virtual void started() = 0;  // the engine has accepted every choice
  // The deltas that one event brought, never empty.
  virtual void on_deltas(int choice_idx, Deltas deltas, const ChoiceSoFar& so_far) = 0;
  // The prompt's tokens with their log probabilities, where the request asks for them; before any deltas.
  virtual void on_prompt(int /*choice_idx*/, const std::vector<runtime::OutputToken>& /*prompt*/) {}
  virtual void on_choice_end(int choice_idx, const ChoiceEnd& end) = 0;
  virtual void finished() = 0;
  virtual void failed(const Error& error) = 0;
};

class Generation : public std::enable_shared_from_this<Generation> {
 public:
  // Engine and tokenizer must outlive the queue's threads.
  Generation(runtime::Engine& engine, const Tokenizer& tokenizer, std::vector<ChoiceInput> choices,
             std::unique_ptr<GenerationListener> listener);

  // Before start(): what is to live as long as this.
  void keep(std::shared_ptr<void> until_over) { kept_ = std::move(until_over); }
  // From any thread, once.
  void start(std::shared_ptr<TaskQueue> queue);
  // From any thread: the client has gone, nobody is told anything any more. `queue` is start()'s.
  static void cancel(const std::weak_ptr<Generation>& generation, TaskQueue& queue);
  // From any thread: the answer ends with the error.
  static void give_up(const std::weak_ptr<Generation>& generation, TaskQueue& queue, const Error& error);
  // From any thread: somebody ends the answer, which is then what has come so far.
  static void abort(const std::weak_ptr<Generation>& generation, TaskQueue& queue);

 private:
  struct Choice {
    std::optional<runtime::RequestId> id;
    std::optional<ReplyReader> reader;
    bool wants_logprobs = false;
    std::vector<runtime::OutputToken> tokens;  // with log probabilities only
    int num_tokens = 0;
    int num_cached_tokens = 0;
    bool is_over = false;
  };

  void guarded(const std::function<void()>& task);
  void submit(const std::shared_ptr<TaskQueue>& queue);
  void make_readers();
  void on_event(int choice_idx, const runtime::Event& event);
  Deltas read_tokens(Choice& choice, const runtime::Event& event);
  void end_choice(int choice_idx, ChoiceFinish finish);
  void fail(const Error& error);
  void cancel_rest();
  void abort_rest();

  runtime::Engine& engine_;
  const Tokenizer& tokenizer_;
  std::vector<ChoiceInput> inputs_;
  std::unique_ptr<GenerationListener> listener_;
  std::vector<Choice> choices_;
  std::shared_ptr<void> kept_;
  int num_open_ = 0;
  bool is_over_ = false;
};

}  // namespace lockstep::serving
