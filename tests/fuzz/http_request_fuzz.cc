// Raw bytes to the connection's request parser. However a network cuts the bytes, the requests must be the
// same, and no limit may be passed.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/serving/http/request_parser.h"

namespace {

using lockstep::serving::http::ParserLimits;
using lockstep::serving::http::Request;
using lockstep::serving::http::RequestParser;

void require(bool condition) {
  if (!condition) std::abort();
}

// All requests of one connection, its bytes arriving in pieces of `step`.
std::vector<Request> read_all(std::string_view bytes, size_t step, const ParserLimits& limits) {
  std::vector<Request> requests;
  RequestParser parser(limits);
  std::string waiting;
  for (size_t i = 0; i < bytes.size(); i += step) {
    waiting += bytes.substr(i, step);
    for (;;) {
      const size_t taken = parser.feed(waiting);
      require(taken <= waiting.size());
      waiting.erase(0, taken);
      if (parser.state() != RequestParser::State::kDone) break;
      parser.persistence();
      requests.push_back(parser.take());
    }
    if (parser.state() == RequestParser::State::kFailed) {
      require(parser.problem().status >= 400 && !parser.problem().message.empty());
      break;
    }
    require(waiting.size() <= limits.max_header_bytes + step);  // what a connection must keep is bounded
  }
  return requests;
}

void require_same(const Request& a, const Request& b) {
  require(a.method == b.method && a.target == b.target && a.query == b.query && a.body == b.body);
  require(a.headers.size() == b.headers.size());
  for (size_t i = 0; i < a.headers.size(); ++i)
    require(a.headers[i].name == b.headers[i].name && a.headers[i].value == b.headers[i].value);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const ParserLimits wide{
      .max_header_bytes = size_t{1} << 20, .max_body_bytes = size_t{1} << 20, .max_headers = 1000};
  const auto whole = read_all(bytes, size + 1, wide);
  for (const size_t step : {size_t{1}, size_t{2}, size_t{7}, size_t{64}}) {
    const auto cut = read_all(bytes, step, wide);
    require(cut.size() == whole.size());
    for (size_t i = 0; i < cut.size(); ++i) require_same(cut[i], whole[i]);
  }
  const ParserLimits narrow{.max_header_bytes = 128, .max_body_bytes = 32, .max_headers = 4};
  for (const size_t step : {size_t{1}, size_t{16}, size + 1}) {
    for (const Request& request : read_all(bytes, step, narrow)) {
      require(request.body.size() <= narrow.max_body_bytes);
      require(request.headers.size() <= static_cast<size_t>(narrow.max_headers));
      size_t head_bytes = request.method.size() + request.target.size() + request.query.size();
      for (const auto& header : request.headers) head_bytes += header.name.size() + header.value.size();
      require(head_bytes <= narrow.max_header_bytes);
      require(!request.target.empty() && (request.target[0] == '/' || request.target == "*"));
    }
  }
  return 0;
}
