#include "lockstep/serving/anthropic/messages.h"

#include <utility>

#include "lockstep/serving/anthropic/message_reply.h"
#include "lockstep/serving/anthropic/message_request.h"

namespace lockstep::serving::anthropic {

void MessagesApi::create(const http::Request& request, const Responder& responder) const {
  api_.refuse(request, *responder, start(request, responder), message_error_response);
}

void MessagesApi::count_tokens(const http::Request& request, const Responder& responder) const {
  api_.refuse(request, *responder, count(request, responder), message_error_response);
}

openai::Api::Refusal MessagesApi::start(const http::Request& request, const Responder& responder) const {
  const auto received = openai::Api::Clock::now();
  const auto body = openai::read_body(request);
  if (!body) return openai::api_error(body.error());
  const auto chat = read_message_request(*body, Purpose::kAnswer, api_.engine().model());
  if (!chat) return openai::api_error(chat.error());
  const auto form = chat->options.stream ? ReplyForm::kStream : ReplyForm::kWhole;
  return api_.answer_chat(
      request, responder, *chat, {.id_prefix = "msg_", .prompt_field = "messages", .received = received},
      [&](openai::ReplyContext context) { return make_message_reply(std::move(context), form); });
}

openai::Api::Refusal MessagesApi::count(const http::Request& request, const Responder& responder) const {
  const auto body = openai::read_body(request);
  if (!body) return openai::api_error(body.error());
  const auto chat = read_message_request(*body, Purpose::kCount, api_.engine().model());
  if (!chat) return openai::api_error(chat.error());
  if (auto refusal = api_.check_model(chat->model)) return refusal;
  const auto encoded = api_.encode(*chat);
  if (!encoded) return openai::api_error(encoded.error());
  responder->send({.body = to_text({{"input_tokens", encoded->ids.size()}})});
  return std::nullopt;
}

}  // namespace lockstep::serving::anthropic
