#pragma once
// Bytes of one connection to requests, one after another. Beast's parser does the grammar; this adds what it
// leaves to its user: limits over the whole head, Host, transfer codings, target forms, trailers. No sockets
// here, so it can be fuzzed.
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/serving/http/http.h"

namespace lockstep::serving::http {

struct ParserLimits {
  size_t max_header_bytes = 0;
  size_t max_body_bytes = 0;
  int max_headers = 0;
};

class RequestParser {
 public:
  enum class State : unsigned char { kHead, kBody, kDone, kFailed };
  enum class Persistence : unsigned char { kClose, kKeepAlive };
  enum class Version : unsigned char { kHttp10, kHttp11 };
  struct Problem {
    int status = 0;  // to answer with; the connection cannot be used for another request
    std::string message;
  };

  explicit RequestParser(const ParserLimits& limits);
  ~RequestParser();

  // Takes what it can of `bytes` and returns how many bytes that was; the rest must be offered again, with
  // more behind it. Never takes a byte beyond the end of the request.
  size_t feed(std::string_view bytes);

  State state() const;
  const Problem& problem() const;   // in kFailed
  bool expects_continue() const;    // in kBody: the client waits for 100 (Continue) before it sends the body
  Persistence persistence() const;  // in kDone
  Version version() const;          // from kBody on
  std::string_view method() const;  // from kBody on, until take()
  Request take();                   // in kDone; the parser is then ready for the next request

 private:
  class Impl;
  ParserLimits limits_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::serving::http
