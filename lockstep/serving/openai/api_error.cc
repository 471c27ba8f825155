#include "lockstep/serving/openai/api_error.h"

#include <string_view>

namespace lockstep::serving::openai {
namespace {

int status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return 400;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kUnavailable:
    case ErrorCode::kAborted:
      return 503;
    case ErrorCode::kInternal:
      return 500;
  }
  return 500;
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(shortened(text)); }

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0U) == 0x80U; }

}  // namespace

ApiError api_error(const Error& error) {
  const bool is_overload = error.code == ErrorCode::kUnavailable;
  return {status_of(error.code), error.message, error.field, is_overload ? "overloaded" : ""};
}

std::string shortened(const std::string& text) {
  constexpr size_t kLongest = 1024, kBeginning = 384, kEnd = 384;
  if (text.size() <= kLongest) return text;
  size_t left = kBeginning, right = text.size() - kEnd;
  while (left > 0 && continues_character(text[left])) --left;
  while (right < text.size() && continues_character(text[right])) ++right;
  return fmt::format("{} [... {} bytes ...] {}", std::string_view(text).substr(0, left), right - left,
                     std::string_view(text).substr(right));
}

Json error_json(const ApiError& error) {
  return {{"error",
           {{"message", shortened(error.message)},
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
