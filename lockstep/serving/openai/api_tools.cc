// The endpoints of Api that generate nothing for their caller: tokens, aborting.
#include <utility>

#include "lockstep/serving/openai/api.h"

namespace lockstep::serving::openai {

void Api::flush_cache(const http::Request& request, const Responder& responder) const {
  if (context_.tenants == ApiContext::Tenants::kManyKeys)
    return refuse(request, *responder,
                  ApiError{.status = 403,
                           .message = "the cache is not one key's to forget: this server has several keys"});
  context_.engine.clear_cache();
  responder->send({.body = R"({"success":true})"});
}

Api::Refusal Api::answer_abort(const http::Request& request, http::Responder& responder) const {
  const auto body = read_body(request);
  if (!body) return api_error(body.error());
  Fields fields(*body);
  const auto id = fields.text("rid");
  const bool all = fields.flag("abort_all").value_or(false);
  if (fields.ok() && !all && (!id || id->empty()))
    fields.refuse("rid", "is missing: the id of an answer, or \"abort_all\": true instead");
  if (!fields.ok()) return api_error(fields.status().error());
  const std::string owner = owner_of(request);
  for (const auto& generation : all ? open_->find_all(owner) : open_->find(owner, *id))
    Generation::abort(generation, *context_.replies);
  responder.send({.body = R"({"success":true})"});
  return std::nullopt;
}

Api::Refusal Api::refuse_embeddings(const http::Request& request) const {
  const auto body = read_body(request);
  if (!body) return api_error(body.error());
  Fields fields(*body);
  const auto model = fields.text("model");
  if (!fields.ok()) return api_error(fields.status().error());
  if (auto refusal = check_model(model)) return refusal;
  return ApiError{
      .message = fmt::format("'model': `{}` generates text and makes no embeddings", context_.model_name),
      .param = "model",
      .code = "model_not_supported"};
}

Api::Refusal Api::answer_tokenize(const http::Request& request, http::Responder& responder) const {
  const auto body = read_body(request);
  if (!body) return api_error(body.error());
  Fields fields(*body);
  const auto model = fields.text("model");
  const auto prompt = fields.text("prompt");
  const bool add_special_tokens = fields.flag("add_special_tokens").value_or(true);
  if (fields.has("messages") == prompt.has_value() && fields.ok())
    fields.refuse("prompt", "must be given, or 'messages' instead of it, and not both");
  if (!fields.ok()) return api_error(fields.status().error());
  if (auto refusal = check_model(model)) return refusal;
  std::vector<int32_t> ids;
  if (prompt) {
    ids = add_special_tokens ? context_.chat.encode_prompt(*prompt)
                             : context_.chat.tokenizer().encode(*prompt, AddedTokens::kParse);
  } else {
    const auto chat = read_chat_prompt(*body);
    if (!chat) return api_error(chat.error());
    const auto encoded = encode(*chat);
    if (!encoded) return api_error(encoded.error());
    ids = encoded->ids;
  }
  responder.send({.body = to_text({{"tokens", ids},
                                   {"count", ids.size()},
                                   {"max_model_len", context_.engine.model().context_length}})});
  return std::nullopt;
}

Api::Refusal Api::answer_detokenize(const http::Request& request, http::Responder& responder) const {
  const auto body = read_body(request);
  if (!body) return api_error(body.error());
  Fields fields(*body);
  const auto model = fields.text("model");
  const Json* tokens = fields.array("tokens");
  if (tokens == nullptr) fields.refuse("tokens", "is missing");
  if (!fields.ok()) return api_error(fields.status().error());
  if (auto refusal = check_model(model)) return refusal;
  std::vector<int32_t> ids;
  if (!tokens->empty()) {
    const auto prompts = read_prompts(*tokens, "tokens", context_.engine.model().vocab);
    if (!prompts) return api_error(prompts.error());
    if (!std::holds_alternative<std::vector<int32_t>>((*prompts)[0]) || prompts->size() != 1)
      return ApiError{.message = "'tokens' must be an array of token ids", .param = "tokens"};
    ids = std::get<std::vector<int32_t>>((*prompts)[0]);
  }
  responder.send(
      {.body = to_text({{"prompt", context_.chat.tokenizer().decode(ids, SpecialTokens::kKeep)}})});
  return std::nullopt;
}

}  // namespace lockstep::serving::openai
