#pragma once
// Answers as bytes: heads and chunks, appended to a connection's output. No sockets here.
#include <cstdint>
#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/serving/http/http.h"

namespace lockstep::serving::http {

enum class Framing : uint8_t {
  kLength,   // Content-Length
  kChunked,  // HTTP/1.1 streams
  kToClose,  // HTTP/1.0 streams: the connection's end is the body's
  kNone,     // 204 and 304: no body, whatever the headers say
};

enum class Reuse : uint8_t {
  kKeepAlive,      // HTTP/1.1's default
  kSaidKeepAlive,  // an HTTP/1.0 client asked for it and must be told
  kClose,
};

struct Head {
  int status = 200;
  std::string_view content_type;
  const std::vector<Header>* headers = nullptr;
  Framing framing = Framing::kLength;
  size_t length = 0;  // with kLength
  Reuse reuse = Reuse::kKeepAlive;
  std::string_view date;
};

void append_head(std::string& out, const Head& head);
void append_chunk(std::string& out,
                  std::string_view data);  // nothing for empty data: an empty chunk would end the body
inline constexpr std::string_view kLastChunk = "0\r\n\r\n";
inline constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

bool allows_body(int status);
bool asks_to_close(const std::vector<Header>& headers);
std::string_view reason_phrase(int status);

// "Sun, 06 Nov 1994 08:49:37 GMT"
std::string http_date(std::time_t seconds);

}  // namespace lockstep::serving::http
