#pragma once
// What the reply to a chat must be: its format, its calls, and where in the reply that begins.
#include <optional>
#include <vector>

#include "lockstep/serving/chat.h"
#include "lockstep/serving/constraints/grammar_compiler.h"
#include "lockstep/serving/openai/chat_request.h"

namespace lockstep::serving::openai {

struct WantedForm {
  constraints::OutputForm form;
  std::vector<constraints::Opening> openings;
};

// None where the reply may be anything.
Result<std::optional<WantedForm>> wanted_form(const ChatRequest& chat, const ChatModel& model,
                                              const EncodedChat& encoded);

}  // namespace lockstep::serving::openai
