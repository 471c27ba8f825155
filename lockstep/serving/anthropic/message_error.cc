#include "lockstep/serving/anthropic/message_error.h"

#include <string_view>

namespace lockstep::serving::anthropic {
namespace {

std::string_view type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
    case 529:
      return "overloaded_error";
    default:
      return status >= 500 ? "api_error" : "invalid_request_error";
  }
}

}  // namespace

Json message_error_json(const openai::ApiError& error) {
  return {{"type", "error"},
          {"error", {{"type", type_of(error.status)}, {"message", openai::shortened(error.message)}}}};
}

http::Response message_error_response(const openai::ApiError& error) {
  http::Response response = openai::error_response(error);
  response.body = to_text(message_error_json(error));
  return response;
}

}  // namespace lockstep::serving::anthropic
