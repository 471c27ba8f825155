#pragma once
// Errors in OpenAI's shape, for answers and in the middle of streams.
#include <string>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"
#include "lockstep/serving/http/http.h"

namespace lockstep::serving::openai {

struct ApiError {
  int status = 400;
  std::string message;
  std::string param;  // the request's field that is meant; empty is null
  std::string code;   // such as "context_length_exceeded"; empty is null
};

// 400, 404, 500 or 503 by the kind of error; its field becomes the parameter.
ApiError api_error(const Error& error);

// What a client sent and an error repeats may be long: of more than 1 KiB the beginning and the end are kept,
// which say what is meant and what to do. Valid UTF-8 stays valid.
std::string shortened(const std::string& text);

// {"error": {"message", "type", "param", "code"}}
Json error_json(const ApiError& error);
http::Response error_response(const ApiError& error);

// How an API writes its errors: error_response() or what another API has for it.
using ErrorForm = http::Response (*)(const ApiError& error);

}  // namespace lockstep::serving::openai
