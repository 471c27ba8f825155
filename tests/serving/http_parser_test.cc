// The request parser alone. Expected values follow RFC 9110 and RFC 9112; the section is named at each group.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "lockstep/serving/http/request_parser.h"

namespace lockstep::serving::http {
namespace {

using State = RequestParser::State;

constexpr ParserLimits kLimits{.max_header_bytes = 4096, .max_body_bytes = 1000, .max_headers = 20};

// Feeds `bytes` in pieces of `step`, as a connection does: what was not taken is offered again with more
// behind it.
size_t feed_in_steps(RequestParser& parser, std::string_view bytes, size_t step) {
  std::string waiting;
  size_t taken = 0;
  for (size_t i = 0; i < bytes.size(); i += step) {
    waiting += bytes.substr(i, step);
    const size_t n = parser.feed(waiting);
    waiting.erase(0, n);
    taken += n;
    if (parser.state() == State::kDone || parser.state() == State::kFailed) break;
  }
  return taken;
}

int status_of(std::string_view bytes) {
  RequestParser parser(kLimits);
  feed_in_steps(parser, bytes, bytes.size());
  const int whole = parser.state() == State::kFailed ? parser.problem().status
                    : parser.state() == State::kDone ? 200
                                                     : 0;
  RequestParser slow(kLimits);
  feed_in_steps(slow, bytes, 1);
  const int bytewise = slow.state() == State::kFailed ? slow.problem().status
                       : slow.state() == State::kDone ? 200
                                                      : 0;
  EXPECT_EQ(whole, bytewise) << "the answer depends on how the bytes were cut";
  return whole;
}

TEST(HttpParser, ReadsARequestWhateverTheCuts) {
  const std::string bytes =
      "POST /v1/chat/completions?a=1&b=2?3 HTTP/1.1\r\nHost: example.com\r\ncontent-type: "
      "application/json\r\n"
      "Content-Length: 11\r\nX-Empty:\r\n\r\nhello world";
  for (size_t step = 1; step <= bytes.size(); ++step) {
    RequestParser parser(kLimits);
    EXPECT_EQ(feed_in_steps(parser, bytes, step), bytes.size());
    ASSERT_EQ(parser.state(), State::kDone) << "step " << step;
    EXPECT_EQ(parser.persistence(), RequestParser::Persistence::kKeepAlive);
    const Request request = parser.take();
    EXPECT_EQ(request.method, "POST");
    EXPECT_EQ(request.target, "/v1/chat/completions");
    EXPECT_EQ(request.query, "a=1&b=2?3");
    EXPECT_EQ(request.body, "hello world");
    EXPECT_EQ(request.header("CONTENT-TYPE"), "application/json");
    EXPECT_EQ(request.header("x-empty"), "");
    EXPECT_EQ(request.header("absent"), "");
    EXPECT_EQ(request.headers.size(), 4u);
    EXPECT_EQ(parser.state(), State::kHead);
  }
}

TEST(HttpParser, LeavesTheNextRequestAlone) {
  const std::string first = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc";
  const std::string second = "GET /second HTTP/1.1\r\nHost: a\r\n\r\n";
  RequestParser parser(kLimits);
  EXPECT_EQ(parser.feed(first + second), first.size());
  ASSERT_EQ(parser.state(), State::kDone);
  EXPECT_EQ(parser.take().body, "abc");
  EXPECT_EQ(parser.feed(second), second.size());
  ASSERT_EQ(parser.state(), State::kDone);
  EXPECT_EQ(parser.take().target, "/second");
}

// RFC 9112 7.1: chunks with extensions, sizes in either case; 7.1.2: trailers, which must not become headers.
TEST(HttpParser, ReadsChunkedBodiesWhateverTheCuts) {
  const std::string bytes =
      "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: Chunked\r\n\r\n"
      "4\r\nWiki\r\n6;name=value\r\npedia \r\nE\r\nin \r\n\r\nchunks.\r\n0\r\nAuthorization: evil\r\nX-T: "
      "1\r\n\r\n";
  for (size_t step = 1; step <= bytes.size(); ++step) {
    RequestParser parser(kLimits);
    EXPECT_EQ(feed_in_steps(parser, bytes, step), bytes.size());
    ASSERT_EQ(parser.state(), State::kDone) << "step " << step << ": " << parser.problem().message;
    const Request request = parser.take();
    EXPECT_EQ(request.body, "Wikipedia in \r\n\r\nchunks.");
    EXPECT_EQ(request.header("authorization"), "");
    EXPECT_EQ(request.headers.size(), 2u);
  }
}

TEST(HttpParser, ReadsAnEmptyChunkedBodyBytewise) {
  const std::string bytes = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
  RequestParser parser(kLimits);
  EXPECT_EQ(feed_in_steps(parser, bytes, 1), bytes.size());
  EXPECT_EQ(parser.state(), State::kDone);
}

// RFC 9112 2.2 and 3.
TEST(HttpParser, RequestLines) {
  EXPECT_EQ(status_of("\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"), 200);
  EXPECT_EQ(status_of("GET / HTTP/1.1\nHost: a\n\n\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET  / HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(status_of("G\x01T / HTTP/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET /\r\n\r\n"), 400);
  EXPECT_EQ(status_of("hello, is this the mail server?\r\n\r\n"), 400);
  EXPECT_EQ(status_of("\x16\x03\x01\x02\x01\x01\xfc\x03\x03 TLS hello\r\n\r\n"), 400);
}

TEST(HttpParser, Versions) {
  EXPECT_EQ(status_of("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 505);
  EXPECT_EQ(status_of("GET / HTTP/0.9\r\nHost: a\r\n\r\n"), 505);
  EXPECT_EQ(status_of("GET / HTTP/3.0\r\nHost: a\r\n\r\n"), 505);
  EXPECT_EQ(status_of("GET / HTTQ/1.1\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1 x\r\nHost: a\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.0\r\n\r\n"), 200);
}

// RFC 9112 3.2: origin-form, absolute-form, asterisk-form; a server answers no other.
TEST(HttpParser, TargetForms) {
  const auto target_of = [](const std::string& line) {
    RequestParser parser(kLimits);
    parser.feed(line + " HTTP/1.1\r\nHost: a\r\n\r\n");
    if (parser.state() != State::kDone) return fmt::format("{}", parser.problem().status);
    const Request request = parser.take();
    return request.target + "|" + request.query;
  };
  EXPECT_EQ(target_of("GET /a%20b?x=%3F"), "/a%20b|x=%3F");
  EXPECT_EQ(target_of("GET /?"), "/|");
  EXPECT_EQ(target_of("GET http://www.example.org/pub/WWW/?q"), "/pub/WWW/|q");
  EXPECT_EQ(target_of("GET HTTPS://www.example.org?q"), "/|q");
  EXPECT_EQ(target_of("GET http://www.example.org"), "/|");
  EXPECT_EQ(target_of("OPTIONS *"), "*|");
  EXPECT_EQ(target_of("GET *"), "400");
  EXPECT_EQ(target_of("GET ?q"), "400");
  EXPECT_EQ(target_of("GET index.html"), "400");
  EXPECT_EQ(target_of("CONNECT www.example.com:80"), "400");
}

// RFC 9112 3.2: exactly one Host in HTTP/1.1; RFC 9112 5.1: no space before the colon.
TEST(HttpParser, Headers) {
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost:\r\n\r\n"), 200);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost : a\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n"), 400);
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: a\r\nX: a" + std::string(1, '\0') + "b\r\n\r\n"), 400);
}

// RFC 9112 6: what is not framed beyond doubt is how requests are smuggled past a proxy.
TEST(HttpParser, AmbiguousFramingIsRefused) {
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\n";
  EXPECT_EQ(status_of(head + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(status_of(head + "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(status_of(head + "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"), 400);
  EXPECT_EQ(status_of(head + "Content-Length: -1\r\n\r\n"), 400);
  EXPECT_EQ(status_of(head + "Content-Length: +3\r\n\r\nabc"), 400);
  EXPECT_EQ(status_of(head + "Content-Length: 0x3\r\n\r\nabc"), 400);
  EXPECT_EQ(status_of(head + "Content-Length: 99999999999999999999\r\n\r\nabc"), 400);
  EXPECT_EQ(status_of(head + "Transfer-Encoding: gzip\r\n\r\nabc"), 501);
  EXPECT_EQ(status_of(head + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), 501);
  EXPECT_EQ(status_of(head + "Transfer-Encoding: chunked, gzip\r\n\r\nabc"), 501);
  EXPECT_EQ(status_of(head + "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 501);
  EXPECT_EQ(status_of(head + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
            400);
  EXPECT_EQ(status_of("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400);
}

TEST(HttpParser, MalformedChunksAreRefused) {
  const std::string head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
  EXPECT_EQ(status_of(head + "x\r\nabc\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(status_of(head + "3\nabc\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(status_of(head + "3\r\nabcd\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(status_of(head + "-3\r\nabc\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(status_of(head + "fffffffffffffffff\r\nabc\r\n0\r\n\r\n"), 400);
}

TEST(HttpParser, Limits) {
  const std::string line = "GET / HTTP/1.1\r\nHost: a\r\n";
  EXPECT_EQ(status_of("GET /" + std::string(5000, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n"), 414);
  EXPECT_EQ(status_of(line + "X: " + std::string(5000, 'a') + "\r\n\r\n"), 431);
  std::string many = line, lines = line;
  for (int i = 0; i < 20; ++i) many += fmt::format("X-{}: 1\r\n", i);
  EXPECT_EQ(status_of(many + "\r\n"), 431);
  for (int i = 0; i < 15; ++i)
    lines += "X: " + std::string(400, 'a') + "\r\n";  // no line is long, all of them are
  EXPECT_EQ(status_of(lines + "\r\n"), 431);
  const std::string post = "POST / HTTP/1.1\r\nHost: a\r\n";
  EXPECT_EQ(status_of(post + "Content-Length: 1000\r\n\r\n" + std::string(1000, 'x')), 200);
  EXPECT_EQ(status_of(post + "Content-Length: 1001\r\n\r\n"), 413);
  const std::string chunked = post + "Transfer-Encoding: chunked\r\n\r\n";
  const std::string chunk = "1f4\r\n" + std::string(500, 'x') + "\r\n";
  EXPECT_EQ(status_of(chunked + chunk + chunk + "0\r\n\r\n"), 200);
  EXPECT_EQ(status_of(chunked + chunk + chunk + "1\r\nx\r\n0\r\n\r\n"), 413);
  EXPECT_EQ(status_of(chunked + "1;" + std::string(5000, 'e') + "\r\nx\r\n0\r\n\r\n"), 400);
  EXPECT_EQ(status_of(chunked + "0\r\nX: " + std::string(5000, 'e') + "\r\n\r\n"), 400);
}

// RFC 9110 10.1.1.
TEST(HttpParser, Expectations) {
  RequestParser parser(kLimits);
  parser.feed("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-Continue\r\n\r\n");
  EXPECT_EQ(parser.state(), State::kBody);
  EXPECT_TRUE(parser.expects_continue());
  RequestParser without_body(kLimits);
  without_body.feed("GET / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(without_body.state(), State::kDone);
  EXPECT_FALSE(without_body.expects_continue());
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nHost: a\r\nExpect: a miracle\r\n\r\n"), 417);
}

// RFC 9112 9.3.
TEST(HttpParser, Persistence) {
  const auto keeps = [](std::string_view bytes) {
    RequestParser parser(kLimits);
    parser.feed(bytes);
    EXPECT_EQ(parser.state(), State::kDone) << bytes;
    return parser.persistence() == RequestParser::Persistence::kKeepAlive;
  };
  EXPECT_TRUE(keeps("GET / HTTP/1.1\r\nHost: a\r\n\r\n"));
  EXPECT_FALSE(keeps("GET / HTTP/1.1\r\nHost: a\r\nConnection: foo, Close\r\n\r\n"));
  EXPECT_FALSE(keeps("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(keeps("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n"));
}

}  // namespace
}  // namespace lockstep::serving::http
