#pragma once
// The id that a request has from its arrival to its end: the client's X-Request-Id where it sent a usable
// one, else one made here. It comes back with the answer, goes to the engine as the request's label, and
// stands in what the log says of it.
#include <memory>
#include <string>

#include "lockstep/serving/http/http.h"

namespace lockstep::serving {

inline constexpr std::string_view kRequestIdHeader = "X-Request-Id";

enum class RequestLog : unsigned char { kFailures, kAll };  // which answers the log has a line about

// Letters, digits and -_.:/=+ only, at most 128: what can stand in a header, a log and a metric as it is.
bool is_request_id(std::string_view id);

// Gives the request the header, if it has no usable one, and returns a responder that adds it to the answer
// and logs how it went.
std::shared_ptr<http::Responder> identified(http::Request& request,
                                            std::shared_ptr<http::Responder> responder, RequestLog log);

}  // namespace lockstep::serving
