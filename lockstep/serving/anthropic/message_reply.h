#pragma once
// Answers of /v1/messages, whole and streamed: both are made of the same deltas.
#include <memory>

#include "lockstep/serving/openai/chat_reply.h"

namespace lockstep::serving::anthropic {

enum class ReplyForm : unsigned char { kWhole, kStream };

// A stream's events: message_start, ping, each block from content_block_start to content_block_stop,
// message_delta, message_stop; after an error the event of it, and no more.
std::unique_ptr<GenerationListener> make_message_reply(openai::ReplyContext context, ReplyForm form);

}  // namespace lockstep::serving::anthropic
