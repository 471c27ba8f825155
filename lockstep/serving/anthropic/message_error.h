#pragma once
// Errors in the shape of Anthropic's API.
#include "lockstep/serving/openai/api_error.h"

namespace lockstep::serving::anthropic {

// {"type": "error", "error": {"type", "message"}}
Json message_error_json(const openai::ApiError& error);
http::Response message_error_response(const openai::ApiError& error);

}  // namespace lockstep::serving::anthropic
