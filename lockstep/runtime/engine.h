#pragma once
// The engine's front door: token ids in, events out. The only header of runtime that serving may include; it
// knows no text, no HTTP, no tensor. Whoever starts an engine uses runtime/start.h. All methods may be called
// from any thread.
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"

namespace lockstep::runtime {

using RequestId = uint64_t;

// How the next token is drawn. Applied in this order: penalties, temperature, top_k, top_p, min_p.
struct SamplingParams {
  float temperature = 1.0f;  // 0 is greedy
  int top_k = 0;             // keep the k most likely; 0 keeps all
  float top_p = 1.0f;        // keep the smallest set whose probability reaches top_p
  float min_p = 0.0f;        // keep tokens at least min_p times as likely as the most likely
  float repetition_penalty =
      1.0f;  // divides positive, multiplies negative logits of tokens in prompt or output
  float presence_penalty = 0.0f;   // subtracted once for a token that the output holds
  float frequency_penalty = 0.0f;  // subtracted for each time that the output holds the token
  std::optional<uint64_t> seed;    // draws are a function of (seed, position); none: a fresh seed per request
  std::vector<std::pair<int32_t, float>> logit_bias;
};

// Which tokens an output may hold, by what it holds already. One object a request. The engine calls it from
// one thread at a time, and destroys nothing while a call runs.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;
  // Sets bit i % 32 of word i / 32 for each token i that may come next and clears the others. An output that
  // may end here allows an end-of-sequence id. Something is always allowed.
  virtual void allow(std::span<uint32_t> words) = 0;
  // The token was drawn. False when it was not allowed: the request then ends with an error.
  virtual bool accept(int32_t token_id) = 0;
};

struct Request {
  std::vector<int32_t> prompt;  // at least one id, each in [0, vocab)
  SamplingParams sampling;
  int max_new_tokens = 256;  // 0 only scores the prompt
  int min_new_tokens = 0;    // end-of-sequence and stop ids cannot end the request before
  std::vector<int32_t> stop_token_ids;
  bool ignore_eos = false;
  int num_top_logprobs =
      -1;  // -1 no logprobs; 0 the chosen token's; n also the n most likely at each position
  int prompt_top_logits = 0;  // n: PromptScores with the n largest logits at each prompt position
  int prompt_logprobs = -1;   // n >= 0: Event::prompt, with the n most likely tokens at each place
  std::shared_ptr<TokenConstraint> constraint;  // none: any token may come
  std::optional<int> replica;                   // attention replica to run on; none: the engine chooses
  std::string cache_salt;  // only requests with the same salt share what is cached of equal beginnings
  int priority = 0;        // higher starts first
  std::string tenant;      // whose it is: those of one priority take turns
  std::string label;       // what its sender calls it; for the log
  // Whether failures of the engine that it was running in may convict it (--max-request-failures). A probe
  // that is the same each time, and all there is in a quiet hour, is none the worse for them.
  enum class Blame : uint8_t { kCounts, kExempt } blame = Blame::kCounts;
};

struct TokenLogprob {
  int32_t token_id = 0;
  float logprob = 0;  // natural log of the probability under the unscaled softmax of the model's logits
};

struct OutputToken {
  int32_t token_id = 0;
  float logprob = 0;              // meaningful when num_top_logprobs >= 0
  std::vector<TokenLogprob> top;  // num_top_logprobs entries, most likely first
};

struct PromptScores {
  std::vector<std::vector<int32_t>> top_ids;   // [prompt length][n], largest logit first, ties by smaller id
  std::vector<std::vector<float>> top_logits;  // the same shape
  std::vector<float> last_logits;              // [vocab], the logits after the last prompt token
};

enum class FinishReason : uint8_t {
  kNotFinished,
  kStop,       // an end-of-sequence or stop id, which is not among the tokens delivered
  kLength,     // max_new_tokens or the context length
  kCancelled,  // cancel()
  kError,      // Event::error says what
};

// Every accepted request ends in exactly one event with finish != kNotFinished; nothing follows it.
struct Event {
  RequestId id = 0;
  std::vector<OutputToken> tokens;
  FinishReason finish = FinishReason::kNotFinished;
  std::optional<int32_t> stop_token_id;  // with kStop: the id that ended it
  std::optional<PromptScores> prompt_scores;
  std::vector<OutputToken> prompt;  // once, with prompt_logprobs; the first has no log probability
  std::string error;
  ErrorCode error_code = ErrorCode::kInternal;  // kUnavailable: it did not start, and may be tried again
  // With the first tokens, or the end where there are none: prompt tokens that were not computed, because a
  // request before had the same beginning.
  std::optional<int32_t> num_cached_tokens;
};

// Called on an engine thread, in order for one request. Must return quickly and must not call back into the
// engine.
using EventSink = std::function<void(const Event&)>;

// What the checkpoint says about itself, as far as a front end needs it.
struct ModelInfo {
  std::string name;        // the folder's name unless the user gave another
  std::string directory;   // where tokenizer.json and the chat template lie
  std::string family;      // "deepseek_v3"
  int vocab = 0;           // rows of the LM head; the tokenizer may know fewer
  int context_length = 0;  // tokens of prompt and output together
  std::vector<int32_t> eos_token_ids;
  SamplingParams default_sampling;  // from generation_config.json; greedy when do_sample is false
};

struct ReplicaStats {
  int running = 0;
  int queued = 0;
  int64_t pages_used = 0,
          pages_total = 0;  // what is cached for every token: pages that requests use, and all
  int64_t slots_used = 0, slots_total = 0;  // what is kept once a running sequence
  int64_t pages_cached = 0;  // out of use, kept for requests that begin alike; the rest is free
};

// Seconds that steps spent in their phases since the start. All but `deliver` follow one another; that one
// runs beside the next step's where the loop overlaps.
struct PhaseSeconds {
  double admit = 0;
  double schedule = 0;
  double upload = 0;
  double forward = 0;
  double sample = 0;  // of the rank that took longest
  double commit = 0;
  double deliver = 0;
};

struct EngineStats {
  std::vector<ReplicaStats> replicas;
  int num_ranks = 0;
  uint64_t steps = 0;
  uint64_t prompt_tokens = 0, output_tokens = 0;  // since the start
  uint64_t requests_accepted = 0, requests_finished = 0, requests_cancelled = 0, requests_failed = 0;
  uint64_t preemptions = 0;
  // Of requests that have started: the prompts' tokens that were looked up in the cache, and found.
  uint64_t prefix_tokens_queried = 0, prefix_tokens_hit = 0;
  // Of requests' steps that verified drafts: how many there were, the drafts that they ran, and those of them
  // that are output.
  uint64_t verifying_steps = 0, drafted_tokens = 0, accepted_tokens = 0;
  double last_step_seconds = 0;
  std::vector<int> last_step_rows;      // rows that each rank's home held in the last step, padding included
  uint64_t failures = 0, restarts = 0;  // of the engine as a whole; totals go on over a restart
  PhaseSeconds phases;
  int page_size = 0;  // tokens of a page
};

// Tokens that a request got from a step that verified drafts, on average; 0 where none did.
inline double accept_length(const EngineStats& stats) {
  if (stats.verifying_steps == 0) return 0;
  return 1 + static_cast<double>(stats.accepted_tokens) / static_cast<double>(stats.verifying_steps);
}

struct Health {
  bool serving = false;
  std::string reason;  // why not; empty when serving
  enum class State : uint8_t {
    kServing,
    kDraining,
    kRestarting,  // it failed and will be back
    kFailed,      // and will not, unless a rank that is missing comes back
    kStopping,
  } state = State::kServing;
  uint64_t failures = 0, restarts = 0;
  double seconds_since_step = 0;  // since all ranks last came to the end of one
  double step_seconds = 0;        // of the one that runs; 0: none does
};

class Engine {
 public:
  virtual ~Engine() = default;

  // The sink may be called before submit() returns. Errors: an id outside the vocabulary, a prompt longer
  // than the context or the cache, a parameter out of range (Error::field names it), a queue that is full, an
  // engine that failed.
  virtual Result<RequestId> submit(Request request, EventSink sink) = 0;

  // Ends the request with kCancelled soon; unknown or finished ids are ignored.
  virtual void cancel(RequestId id) = 0;

  // Forgets the beginnings of prompts that are cached and that no request is using: requests that are
  // submitted from now on do not find them.
  virtual void clear_cache() = 0;

  virtual const ModelInfo& model() const = 0;
  virtual EngineStats stats() const = 0;
  // Cheap. Serving means that a step ends in time: an engine that has been idle is asked for one without
  // rows.
  virtual Health health() const = 0;

  // The solved configuration and the plan, as text for people and as JSON.
  virtual std::string plan_text() const = 0;
  virtual Json plan_json() const = 0;

  // Refuses new requests and waits until the running ones have ended, at most `seconds`; what is left is
  // cancelled.
  virtual void drain(double seconds) = 0;

  // Cancels what is open and waits for the step that runs, at most so long. False: a rank has not come back,
  // and memory that it may still use stays behind; the process should end without freeing any.
  virtual bool stop(double /*seconds*/) { return true; }
};

}  // namespace lockstep::runtime
