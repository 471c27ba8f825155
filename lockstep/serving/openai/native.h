#pragma once
// SGLang's own POST /generate, in terms of completions: its request becomes the body of one, and its answers
// are written from the same deltas.
#include <memory>
#include <string>
#include <vector>

#include "lockstep/serving/openai/chat_reply.h"
#include "lockstep/serving/openai/completion_request.h"

namespace lockstep::serving::openai {

// One object, or a list of them.
enum class Answers : unsigned char { kOne, kList };

struct NativeRequest {
  CompletionRequest completion;
  std::string id;  // the client's "rid", or empty
  Answers answers = Answers::kOne;
};

// Errors name the field as the client wrote it: "sampling_params.temperature".
Result<NativeRequest> read_native_request(const Json& body, const runtime::ModelInfo& model);

// `prompt_tokens`: of each choice. A stream's events hold the text so far.
std::unique_ptr<GenerationListener> make_native_answer(ReplyContext context,
                                                       std::vector<int64_t> prompt_tokens, Answers answers);
std::unique_ptr<GenerationListener> make_native_stream(ReplyContext context,
                                                       std::vector<int64_t> prompt_tokens);

}  // namespace lockstep::serving::openai
