#pragma once
// Answers of /v1/completions, whole and streamed.
#include <memory>
#include <string>
#include <vector>

#include "lockstep/serving/openai/chat_reply.h"

namespace lockstep::serving::openai {

// `echoes`: what stands before each choice's text, one a choice; empty: nothing.
std::unique_ptr<GenerationListener> make_completion_answer(ReplyContext context,
                                                           std::vector<std::string> echoes);
std::unique_ptr<GenerationListener> make_completion_stream(ReplyContext context,
                                                           std::vector<std::string> echoes);

}  // namespace lockstep::serving::openai
