#pragma once
// The endpoints of Anthropic's Messages: a chat in other words. The front door of this folder.
#include "lockstep/serving/anthropic/message_error.h"
#include "lockstep/serving/http/http.h"
#include "lockstep/serving/openai/api.h"

namespace lockstep::serving::anthropic {

class MessagesApi {
 public:
  using Responder = openai::Api::Responder;

  // `api` must outlive this.
  explicit MessagesApi(const openai::Api& api) : api_(api) {}

  void create(const http::Request& request, const Responder& responder) const;
  void count_tokens(const http::Request& request, const Responder& responder) const;

 private:
  openai::Api::Refusal start(const http::Request& request, const Responder& responder) const;
  openai::Api::Refusal count(const http::Request& request, const Responder& responder) const;

  const openai::Api& api_;
};

}  // namespace lockstep::serving::anthropic
