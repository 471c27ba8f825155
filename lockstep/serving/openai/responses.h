#pragma once
// The endpoints of OpenAI's Responses: a chat with other words around it, and a memory of its answers.
#include <memory>
#include <string>

#include "lockstep/serving/http/http.h"
#include "lockstep/serving/openai/api.h"
#include "lockstep/serving/openai/response_store.h"

namespace lockstep::serving::openai {

class ResponsesApi {
 public:
  using Responder = Api::Responder;
  // Whose a response is: everybody's where no keys are set, else the key's.
  enum class Owners : unsigned char { kEverybody, kByKey };

  // `api` must outlive this.
  ResponsesApi(const Api& api, Owners owners) : api_(api), owners_(owners) {}

  void create(const http::Request& request, const Responder& responder) const;
  void show(const http::Request& request, const Responder& responder) const;
  void remove(const http::Request& request, const Responder& responder) const;

 private:
  Api::Refusal start(const http::Request& request, const Responder& responder) const;
  std::string owner_of(const http::Request& request) const;

  const Api& api_;
  const Owners owners_;
  // Shared with replies, which an engine may keep for longer than the server lives.
  std::shared_ptr<ResponseStore> store_ = std::make_shared<ResponseStore>(ResponseStore::Limits{});
};

}  // namespace lockstep::serving::openai
