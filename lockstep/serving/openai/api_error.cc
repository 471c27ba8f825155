#include "lockstep/serving/openai/api_error.h"

namespace lockstep::serving::openai {
namespace {

int status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return 400;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kUnavailable:
      return 503;
    case ErrorCode::kInternal:
      return 500;
  }
  return 500;
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

ApiError api_error(const Error& error) {
  const bool is_overload = error.code == ErrorCode::kUnavailable;
  return {status_of(error.code), error.message, error.field, is_overload ? "overloaded" : ""};
}

Json error_json(const ApiError& error) {
  return {{"error",
           {{"message", error.message},
            {"type", error.status >= 500 ? "server_error" : "invalid_request_error"},
            {"param", text_or_null(error.param)},
            {"code", text_or_null(error.code)}}}};
}

http::Response error_response(const ApiError& error) {
  http::Response response{.status = error.status, .body = to_text(error_json(error))};
  if (error.status == 503) response.headers.push_back({"Retry-After", "1"});
  if (error.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

}  // namespace lockstep::serving::openai
