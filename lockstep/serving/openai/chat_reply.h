#pragma once
// Answers of /v1/chat/completions, whole and streamed. Both are made of the same deltas.
#include <memory>

#include "lockstep/serving/generation.h"
#include "lockstep/serving/http/http.h"
#include "lockstep/serving/openai/reply_head.h"

namespace lockstep::serving::openai {

struct ReplyContext {
  ReplyHead head;
  const Tokenizer* tokenizer = nullptr;  // must outlive the reply
  std::shared_ptr<http::Responder> responder;
  int num_choices = 1;
  int choices_per_prompt = 1;  // the choices of a prompt follow each other
  int64_t prompt_tokens = 0;
  int num_top_logprobs = -1;   // -1: no log probabilities
  bool include_usage = false;  // a stream ends with a chunk of usage
};

// One JSON document at the end.
std::unique_ptr<GenerationListener> make_chat_answer(ReplyContext context);

// Server-sent events: each choice's role, deltas as they come, an empty delta with the finish_reason, the
// usage, [DONE]. An error after the start is an event {"error": ...} before [DONE].
std::unique_ptr<GenerationListener> make_chat_stream(ReplyContext context);

}  // namespace lockstep::serving::openai
