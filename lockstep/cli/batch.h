#pragma once
// Many requests through one engine, with progress and Ctrl-C: what generate, score and eval share.
#include <functional>
#include <vector>

#include "lockstep/runtime/engine.h"

namespace lockstep::cli {

struct Answer {
  std::vector<runtime::OutputToken> tokens;
  runtime::FinishReason finish = runtime::FinishReason::kNotFinished;
  std::optional<int32_t> stop_token_id;
  std::optional<runtime::PromptScores> scores;
  std::string error;                            // kError, or why the engine did not accept it
  ErrorCode error_code = ErrorCode::kInternal;  // kInternal: it was accepted and failed
};

struct BatchResult {
  std::vector<Answer> answers;  // in the order of the requests
  bool interrupted = false;     // the rest was cancelled
};

// Called for every token as it comes, from the engine's thread. False cancels that request.
using TokenSink = std::function<bool(size_t request_idx, const runtime::OutputToken&)>;

// Keeps as many requests with the engine as it accepts. `what` names the work in the progress line.
BatchResult run_batch(runtime::Engine& engine, std::vector<runtime::Request> requests, std::string_view what,
                      const TokenSink& sink = {});

}  // namespace lockstep::cli
