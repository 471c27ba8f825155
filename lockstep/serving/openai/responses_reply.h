#pragma once
// Answers of /v1/responses, whole and streamed: the whole one is what a stream's last event holds.
#include <functional>
#include <memory>

#include "lockstep/serving/openai/chat_reply.h"

namespace lockstep::serving::openai {

enum class ReplyForm : unsigned char { kWhole, kStream };

// Told the response once it is over; not when it failed.
using ResponseKeeper = std::function<void(const Json& response)>;

// `shown`: what the response repeats of its request. Events are numbered from 0 and come in the order of
// OpenAI's own: created, in_progress, each item from added to done, and completed, incomplete or failed.
std::unique_ptr<GenerationListener> make_responses_reply(ReplyContext context, Json shown, ReplyForm form,
                                                         ResponseKeeper keep);

}  // namespace lockstep::serving::openai
