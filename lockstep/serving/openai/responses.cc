#include "lockstep/serving/openai/responses.h"

#include <utility>

#include "lockstep/serving/openai/responses_items.h"
#include "lockstep/serving/openai/responses_reply.h"
#include "lockstep/serving/openai/responses_request.h"
#include "lockstep/serving/router.h"

namespace lockstep::serving::openai {
namespace {

constexpr std::string_view kPath = "/v1/responses/";

std::string id_in(const http::Request& request) {
  return percent_decoded(std::string_view(request.target).substr(kPath.size()));
}

ApiError not_found(const std::string& id, int status, std::string param) {
  return {.status = status,
          .message = fmt::format("Response with id '{}' not found: it was made with \"store\": false, was "
                                 "deleted, or went to make room for newer ones",
                                 id),
          .param = std::move(param),
          .code = status == 404 ? "" : "previous_response_not_found"};
}

// Two lists as JSON, in one.
std::string joined(const std::string& list, const std::string& other) {
  if (list.size() <= 2 || other.size() <= 2) return list.size() <= 2 ? other : list;
  return fmt::format("{},{}", std::string_view(list).substr(0, list.size() - 1),
                     std::string_view(other).substr(1));
}

ResponseKeeper keeper(std::shared_ptr<ResponseStore> store, std::string owner, std::string items) {
  return
      [store = std::move(store), owner = std::move(owner), items = std::move(items)](const Json& response) {
        const auto output = read_items(Json::array(), response["output"], "output");
        if (!output) return;  // it could not be gone on from
        store->put(response["id"].get<std::string>(), owner,
                   {to_text(response), joined(items, to_text(output->kept))});
      };
}

}  // namespace

void ResponsesApi::create(const http::Request& request, const Responder& responder) const {
  api_.refuse(request, *responder, start(request, responder));
}

Api::Refusal ResponsesApi::start(const http::Request& request, const Responder& responder) const {
  const auto received = Api::Clock::now();
  const auto body = read_body(request);
  if (!body) return api_error(body.error());
  const auto previous = previous_response(*body);
  if (!previous) return api_error(previous.error());
  Json earlier = Json::array();
  if (*previous) {
    const auto stored = store_->get(**previous, owner_of(request));
    if (!stored) return not_found(**previous, 400, "previous_response_id");
    earlier = parse_json(stored->items).value();
  }
  const auto read = read_responses_request(*body, earlier, api_.engine().model());
  if (!read) return api_error(read.error());
  const auto form = read->chat.options.stream ? ReplyForm::kStream : ReplyForm::kWhole;
  return api_.answer_chat(
      request, responder, read->chat, {.id_prefix = "resp_", .prompt_field = "input", .received = received},
      [&](ReplyContext context) {
        ResponseKeeper keep;
        if (read->store) keep = keeper(store_, owner_of(request), read->items);
        return make_responses_reply(std::move(context), read->shown, form, std::move(keep));
      });
}

void ResponsesApi::show(const http::Request& request, const Responder& responder) const {
  if (request.query.find("stream=true") != std::string::npos)
    return api_.refuse(request, *responder,
                       ApiError{.message = "'stream' is not supported here: a stored response comes whole",
                                .param = "stream"});
  const auto stored = store_->get(id_in(request), owner_of(request));
  if (!stored) return api_.refuse(request, *responder, not_found(id_in(request), 404, "response_id"));
  responder->send({.body = stored->response});
}

void ResponsesApi::remove(const http::Request& request, const Responder& responder) const {
  const std::string id = id_in(request);
  if (!store_->remove(id, owner_of(request)))
    return api_.refuse(request, *responder, not_found(id, 404, "response_id"));
  responder->send({.body = to_text({{"id", id}, {"object", "response"}, {"deleted", true}})});
}

std::string ResponsesApi::owner_of(const http::Request& request) const {
  return owners_ == Owners::kEverybody ? std::string() : std::string(given_key(request));
}

}  // namespace lockstep::serving::openai
