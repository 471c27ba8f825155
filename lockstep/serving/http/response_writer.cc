#include "lockstep/serving/http/response_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "lockstep/base/json.h"
#include "lockstep/base/log.h"

namespace lockstep::serving::http {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

bool same_name(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

bool is_token(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

bool is_the_servers(std::string_view name) {
  for (const std::string_view ours :
       {"content-length", "transfer-encoding", "connection", "date", "content-type"})
    if (same_name(name, ours)) return true;
  return false;
}

// A value cannot end its header: whoever puts a client's text into one cannot be made to split the answer.
void append_value(std::string& out, std::string_view value) {
  for (const char c : value) {
    const auto byte = static_cast<unsigned char>(c);
    out.push_back((byte < 0x20 && c != '\t') || byte == 0x7f ? ' ' : c);
  }
}

void append_header(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ");
  append_value(out, value);
  out.append("\r\n");
}

}  // namespace

void append_head(std::string& out, const Head& head) {
  fmt::format_to(std::back_inserter(out), "HTTP/1.1 {} {}\r\n", head.status, reason_phrase(head.status));
  append_header(out, "Date", head.date);
  if (!head.content_type.empty()) append_header(out, "Content-Type", head.content_type);
  if (head.framing == Framing::kLength)
    fmt::format_to(std::back_inserter(out), "Content-Length: {}\r\n", head.length);
  if (head.framing == Framing::kChunked) out.append("Transfer-Encoding: chunked\r\n");
  if (head.reuse == Reuse::kClose) out.append("Connection: close\r\n");
  if (head.reuse == Reuse::kSaidKeepAlive) out.append("Connection: keep-alive\r\n");
  if (head.headers != nullptr) {
    for (const Header& header : *head.headers) {
      if (is_the_servers(header.name)) continue;
      if (is_token(header.name)) {
        append_header(out, header.name, header.value);
      } else {
        log_error("http: an answer's header name of {} bytes is not a token and is left out",
                  header.name.size());
      }
    }
  }
  out.append("\r\n");
}

void append_chunk(std::string& out, std::string_view data) {
  if (data.empty()) return;
  fmt::format_to(std::back_inserter(out), "{:x}\r\n", data.size());
  out.append(data).append("\r\n");
}

bool allows_body(int status) { return status != 204 && status != 304; }

bool asks_to_close(const std::vector<Header>& headers) {
  return std::any_of(headers.begin(), headers.end(), [](const Header& header) {
    return same_name(header.name, "connection") && same_name(header.value, "close");
  });
}

std::string_view reason_phrase(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 201:
      return "Created";
    case 202:
      return "Accepted";
    case 204:
      return "No Content";
    case 301:
      return "Moved Permanently";
    case 302:
      return "Found";
    case 304:
      return "Not Modified";
    case 307:
      return "Temporary Redirect";
    case 308:
      return "Permanent Redirect";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 411:
      return "Length Required";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 417:
      return "Expectation Failed";
    case 422:
      return "Unprocessable Content";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 499:
      return "Client Closed Request";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    case 505:
      return "HTTP Version Not Supported";
    default:
      return "";
  }
}

std::string http_date(std::time_t seconds) {
  static constexpr std::array kDays = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                         "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm t{};
  gmtime_r(&seconds, &t);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[static_cast<size_t>(t.tm_wday)],
                     t.tm_mday, kMonths[static_cast<size_t>(t.tm_mon)], t.tm_year + 1900, t.tm_hour, t.tm_min,
                     t.tm_sec);
}

Response error_response(int status, std::string_view message) {
  const Json body = {{"error",
                      {{"message", message},
                       {"type", status >= 500 ? "server_error" : "invalid_request_error"},
                       {"param", nullptr},
                       {"code", nullptr}}}};
  return {.status = status, .content_type = "application/json", .headers = {}, .body = to_text(body)};
}

}  // namespace lockstep::serving::http
