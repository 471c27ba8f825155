// Exchanges over real sockets: what a client sees, byte for byte, and what a handler is promised.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <mutex>
#include <set>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/base/log.h"
#include "lockstep/serving/http/response_writer.h"
#include "tests/serving/http_raw_client.h"

namespace lockstep::serving::http {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kGet = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

std::string get(std::string_view target) { return fmt::format("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", target); }

std::string post(std::string_view body) {
  return fmt::format("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{}", body.size(), body);
}

void echo(Request request, const std::shared_ptr<Responder>& responder) {
  responder->send(text_response(
      fmt::format("{} {}?{} [{}]", request.method, request.target, request.query, request.body)));
}

// Keeps every Responder for the test to answer by hand.
class Held {
 public:
  Handler handler() {
    return [this](Request request, std::shared_ptr<Responder> responder) {
      const std::lock_guard lock(mutex_);
      all_.emplace_back(std::move(request), std::move(responder));
    };
  }
  size_t size() {
    const std::lock_guard lock(mutex_);
    return all_.size();
  }
  std::shared_ptr<Responder> responder(size_t i) {
    EXPECT_TRUE(eventually([&] { return size() > i; }));
    const std::lock_guard lock(mutex_);
    return all_.at(i).second;
  }
  void drop_all() {
    const std::lock_guard lock(mutex_);
    all_.clear();
  }

 private:
  std::mutex mutex_;
  std::vector<std::pair<Request, std::shared_ptr<Responder>>> all_;
};

std::string message_of(const RawResponse& response) {
  const auto body = parse_json(response.body);
  EXPECT_TRUE(body.ok()) << response.body;
  if (!body.ok()) return "";
  EXPECT_EQ(response.header("content-type"), "application/json");
  EXPECT_TRUE(body->at("error").at("param").is_null());
  EXPECT_TRUE(body->at("error").at("code").is_null());
  EXPECT_EQ(body->at("error").at("type"), response.status >= 500 ? "server_error" : "invalid_request_error");
  return body->at("error").at("message").get<std::string>();
}

TEST(HttpServer, AnswersOnOneConnectionAgainAndAgain) {
  RunningServer server(echo);
  RawClient client(server.port());
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(
        client.send(fmt::format("POST /p{}?q={} HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nab", i, i)));
    const RawResponse response = client.read_response();
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, fmt::format("POST /p{}?q={} [ab]", i, i));
    EXPECT_EQ(response.header("content-type"), "text/plain");
    EXPECT_EQ(response.headers.count("connection"), 0u);
    EXPECT_EQ(response.header("date").size(), 29u);
  }
}

TEST(HttpServer, ClosesWhenAsked) {
  RunningServer server([](const Request& request, const std::shared_ptr<Responder>& responder) {
    Response response = text_response("bye");
    if (request.target == "/servers-wish") response.headers.push_back({"Connection", "close"});
    responder->send(response);
  });
  const std::vector<std::string> requests = {"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
                                             "GET / HTTP/1.0\r\n\r\n", get("/servers-wish")};
  for (const std::string& request : requests) {
    RawClient client(server.port());
    client.send(request);
    const RawResponse response = client.read_response();
    EXPECT_EQ(response.body, "bye");
    EXPECT_EQ(response.header("connection"), "close");
    EXPECT_TRUE(client.read_to_end());
    EXPECT_FALSE(client.was_reset());
    EXPECT_EQ(client.buffered(), "");
  }
  RawClient old(server.port());
  for (int i = 0; i < 2; ++i) {
    old.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_EQ(old.read_response().header("connection"), "keep-alive");
  }
}

TEST(HttpServer, PipelinedRequestsAreAnsweredInOrder) {
  Held held;
  RunningServer server(held.handler());
  RawClient client(server.port());
  client.send(get("/0") + post("one") + get("/2"));
  const auto first = held.responder(0);
  EXPECT_FALSE(eventually([&] { return held.size() > 1; }, std::chrono::milliseconds(50)))
      << "the second request was begun before the first was answered";
  for (size_t i = 0; i < 3; ++i) held.responder(i)->send(text_response(fmt::format("{}", i)));
  for (int i = 0; i < 3; ++i) EXPECT_EQ(client.read_response().body, fmt::format("{}", i));
}

TEST(HttpServer, ALongPipelineOfQuickRequests) {
  RunningServer server(echo);
  RawClient client(server.port());
  std::string all;
  for (int i = 0; i < 5000; ++i)
    all += get(fmt::format("/{}", i));  // more than the read-ahead; depth of the stack
  std::thread sender([&] { client.send(all); });
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(client.read_response().body, fmt::format("GET /{}? []", i));
  sender.join();
}

TEST(HttpServer, ChunkedRequestBodies) {
  RunningServer server(echo);
  RawClient client(server.port());
  client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  client.send("2;x=y\r\nde\r\n0\r\n\r\n" + std::string(kGet));
  EXPECT_EQ(client.read_response().body, "POST /? [abcde]");
  EXPECT_EQ(client.read_response().body, "GET /? []");
}

TEST(HttpServer, AStreamIsChunkedAndArrivesWhileItIsMade) {
  Held held;
  RunningServer server(held.handler());
  RawClient client(server.port());
  client.send(kGet);
  const auto responder = held.responder(0);
  responder->start_stream(200, "text/event-stream", {{"Cache-Control", "no-cache"}});
  responder->write("data: one\n\n");
  EXPECT_TRUE(client.read_until("data: one\n\n\r\n"));
  EXPECT_THAT(client.buffered(), HasSubstr("b\r\ndata: one\n\n\r\n"));
  responder->write("");  // must not end the body
  responder->write("data: two\n\n");
  EXPECT_TRUE(client.read_until("data: two"));
  responder->finish();
  const RawResponse response = client.read_response();
  EXPECT_TRUE(response.is_complete);
  EXPECT_EQ(response.header("content-type"), "text/event-stream");
  EXPECT_EQ(response.header("cache-control"), "no-cache");
  EXPECT_EQ(response.headers.count("content-length"), 0u);
  EXPECT_EQ(response.body, "data: one\n\ndata: two\n\n");
  client.send(kGet);  // and the connection goes on
  held.responder(1)->send(text_response("next"));
  EXPECT_EQ(client.read_response().body, "next");
}

TEST(HttpServer, AStreamToAnHttp10ClientEndsWithTheConnection) {
  RunningServer server([](const Request&, const std::shared_ptr<Responder>& responder) {
    responder->start_stream(200, "text/plain", {});
    responder->write("one ");
    responder->write("two");
    responder->finish();
  });
  RawClient client(server.port());
  client.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  const RawResponse response = client.read_response();
  EXPECT_EQ(response.headers.count("transfer-encoding"), 0u);
  EXPECT_EQ(response.header("connection"), "close");
  EXPECT_EQ(response.body, "one two");
  EXPECT_TRUE(response.is_complete);
}

TEST(HttpServer, AnswersWithoutBodies) {
  RunningServer server([](const Request& request, const std::shared_ptr<Responder>& responder) {
    if (request.target == "/stream") {
      responder->start_stream(200, "text/plain", {});
      responder->write("not for HEAD");
      responder->finish();
    } else {
      responder->send(text_response("12345", request.target == "/204" ? 204 : 200));
    }
  });
  RawClient client(server.port());
  client.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\nHEAD /stream HTTP/1.1\r\nHost: a\r\n\r\n" + get("/204") +
              get("/"));
  EXPECT_EQ(client.read_response("HEAD").header("content-length"), "5");
  EXPECT_EQ(client.read_response("HEAD").header("transfer-encoding"), "chunked");
  const RawResponse no_content = client.read_response();
  EXPECT_EQ(no_content.status, 204);
  EXPECT_EQ(no_content.headers.count("content-length"), 0u);  // RFC 9110 8.6
  EXPECT_EQ(client.read_response().body, "12345");
}

TEST(HttpServer, Expect100Continue) {
  RunningServer server(echo, {.max_body_bytes = 100});
  RawClient client(server.port());
  client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 100);
  client.send("abc");
  EXPECT_EQ(client.read_response().body, "POST /? [abc]");
  client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\nde");
  EXPECT_EQ(client.read_response().status, 200) << "the body was there: no 100 is due";
  client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 101\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_response().status, 413);
}

TEST(HttpServer, FailuresOfTheHandlerBecomeErrors) {
  RunningServer server([](const Request& request, const std::shared_ptr<Responder>& responder) {
    if (request.target == "/throws") throw std::runtime_error("secret detail");
    if (request.target == "/throws-int") throw 42;
    if (request.target == "/forgets") return;
    if (request.target == "/teapot") return responder->send(text_response("", 42));
    if (request.target == "/breaks-off") {
      responder->start_stream(200, "text/plain", {});
      responder->write("begun");
      throw std::runtime_error("then broken");
    }
    responder->send(text_response("fine"));
    throw std::runtime_error("too late to matter");
  });
  set_log_level(LogLevel::kOff);
  RawClient client(server.port());
  for (const std::string_view target : {"/throws", "/throws-int", "/forgets", "/teapot"}) {
    client.send(get(target));
    const RawResponse response = client.read_response();
    EXPECT_EQ(response.status, 500) << target;
    EXPECT_THAT(message_of(response), Not(HasSubstr("secret")));
  }
  client.send(get("/fine"));
  EXPECT_EQ(client.read_response().body, "fine");
  client.send(get("/breaks-off"));
  const RawResponse broken = client.read_response();
  EXPECT_EQ(broken.body, "begun");
  EXPECT_FALSE(broken.is_complete) << "a stream that broke off must not look complete";
  EXPECT_TRUE(client.read_to_end());
  set_log_level(LogLevel::kInfo);
}

TEST(HttpServer, CallsOutOfOrderAreIgnored) {
  set_log_level(LogLevel::kOff);
  RunningServer server([](const Request& request, const std::shared_ptr<Responder>& responder) {
    if (request.target == "/stream") {
      responder->write("before the start");
      responder->start_stream(200, "text/plain", {});
      responder->start_stream(500, "text/plain", {});
      responder->write("x");
      responder->send(text_response("in the midst"));
      responder->finish();
      responder->write("after the end");
      responder->finish();
    } else {
      responder->send(text_response("first"));
      responder->send(text_response("second"));
    }
  });
  RawClient client(server.port());
  client.send(get("/stream") + get("/") + get("/"));
  EXPECT_EQ(client.read_response().body, "x");
  EXPECT_EQ(client.read_response().body, "first");
  EXPECT_EQ(client.read_response().body, "first");
  set_log_level(LogLevel::kInfo);
}

TEST(HttpServer, ADisconnectDuringAStreamIsReported) {
  Held held;
  RunningServer server(held.handler());
  for (const bool is_reset : {false, true}) {
    RawClient client(server.port());
    client.send(kGet);
    const auto responder = held.responder(is_reset ? 1 : 0);
    std::atomic<int> num_calls{0};
    responder->on_disconnect([&] { ++num_calls; });
    responder->on_disconnect([] { throw std::runtime_error("a callback's failure is its own"); });
    responder->start_stream(200, "text/event-stream", {});
    responder->write("data: 1\n\n");
    ASSERT_TRUE(client.read_until("data: 1"));
    EXPECT_TRUE(responder->connected());
    is_reset ? client.reset() : client.close();
    EXPECT_TRUE(eventually([&] { return num_calls == 1; }));
    EXPECT_FALSE(responder->connected());
    responder->write("data: 2\n\n");  // no-ops
    responder->finish();
    responder->on_disconnect([&] { ++num_calls; });  // at once
    EXPECT_EQ(num_calls, 2);
  }
}

TEST(HttpServer, ADisconnectDuringALongWaitIsReported) {
  Held held;
  RunningServer server(held.handler());
  RawClient client(server.port());
  client.send(kGet);
  std::promise<void> gone;
  held.responder(0)->on_disconnect([&] { gone.set_value(); });
  client.close();
  EXPECT_EQ(gone.get_future().wait_for(kPatience), std::future_status::ready);
}

TEST(HttpServer, NoDisconnectAfterTheAnswer) {
  Held held;
  RunningServer server(held.handler());
  std::atomic<int> num_calls{0};
  {
    RawClient client(server.port());
    client.send(kGet);
    held.responder(0)->on_disconnect([&] { ++num_calls; });
    held.responder(0)->send(text_response("done"));
    EXPECT_EQ(client.read_response().body, "done");
  }
  RawClient other(server.port());
  other.send(kGet);
  held.responder(1)->send(text_response("later"));
  EXPECT_EQ(other.read_response().body, "later");
  EXPECT_EQ(num_calls, 0);
}

TEST(HttpServer, AnAnswerThatIsReadyReachesAClientThatShutDownItsSide) {
  RunningServer server(echo);
  RawClient client(server.port());
  client.send(get("/1") + get("/2"));
  client.shut_down_sending();
  EXPECT_EQ(client.read_response().body, "GET /1? []");
  EXPECT_EQ(client.read_response().body, "GET /2? []");
  EXPECT_TRUE(client.read_to_end());
}

TEST(HttpServer, TwoHundredStreamsFedByThreads) {
  constexpr int kStreams = 200, kEvents = 50, kThreads = 4;
  Held held;
  RunningServer server(held.handler());
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<RawClient>(server.port()));
    ASSERT_TRUE(clients.back()->is_connected());
    clients.back()->send(kGet);
    held.responder(static_cast<size_t>(i))->start_stream(200, "text/event-stream", {});
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int event = 0; event < kEvents; ++event)
        for (int i = t; i < kStreams; i += kThreads)
          held.responder(static_cast<size_t>(i))->write(fmt::format("{}:{} ", i, event));
      for (int i = t; i < kStreams; i += kThreads) held.responder(static_cast<size_t>(i))->finish();
    });
  }
  for (int i = 0; i < kStreams; ++i) {
    std::string expected;
    for (int event = 0; event < kEvents; ++event) expected += fmt::format("{}:{} ", i, event);
    const RawResponse response = clients[static_cast<size_t>(i)]->read_response();
    EXPECT_TRUE(response.is_complete);
    EXPECT_EQ(response.body, expected) << "events were lost, mixed up or out of order";
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(HttpServer, StopLetsExchangesEndAndIdleConnectionsGo) {
  Held held;
  RunningServer server(held.handler());
  const int port = server.port();
  RawClient busy(port), idle(port), halfway(port);
  busy.send(kGet);
  halfway.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nab");
  const auto responder = held.responder(0);
  responder->start_stream(200, "text/plain", {});
  responder->write("before");
  ASSERT_TRUE(busy.read_until("before"));
  server.stop();
  EXPECT_TRUE(idle.read_to_end());
  EXPECT_TRUE(eventually([&] { return !RawClient(port).is_connected(); })) << "it still accepts";
  halfway.send("cd");  // a request that had begun is in flight too
  held.responder(1)->send(text_response("whole"));
  const RawResponse whole = halfway.read_response();
  EXPECT_EQ(whole.body, "whole");
  EXPECT_EQ(whole.header("connection"), "close");
  responder->write(" after");
  responder->finish();
  EXPECT_EQ(busy.read_response().body, "before after");
  busy.close();
  halfway.close();
  server.join();
}

// Clients that never finish what they send do not hold a stop for its whole time.
TEST(HttpServer, HalfSentRequestsDoNotHoldAStop) {
  RunningServer server(echo, {.drain_timeout = std::chrono::seconds(60),
                              .drain_read_timeout = std::chrono::milliseconds(100)});
  RawClient head(server.port()), body(server.port());
  head.send("GET /half HTTP/1.1\r\nHost: ");
  body.send("POST /half HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nabc");
  // An answer to a third one says that the bytes of the others have been read.
  RawClient third(server.port());
  third.send(kGet);
  ASSERT_EQ(third.read_response().status, 200);
  const auto began = std::chrono::steady_clock::now();
  server.stop();
  EXPECT_EQ(head.read_response().status, 503);
  EXPECT_EQ(body.read_response().status, 503);
  head.close();
  body.close();
  server.join();
  EXPECT_LE(std::chrono::steady_clock::now() - began, std::chrono::seconds(20));
}

// A port that is taken is known from bind() alone; before open() nobody can connect.
TEST(HttpServer, AnAddressMayBeBoundBeforeItIsServed) {
  auto bound = Server::bind({.port = 0});
  ASSERT_TRUE(bound.ok()) << bound.error().message;
  const int port = (*bound)->port();
  EXPECT_FALSE(RawClient(port).is_connected());
  ASSERT_TRUE((*bound)->open(echo).ok());
  EXPECT_TRUE(RawClient(port).is_connected());
  const auto second = Server::bind({.port = port});
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.error().message, HasSubstr("another program listens there"));
}

TEST(HttpServer, StopGivesUpAfterTheDrainTimeout) {
  Held held;
  RunningServer server(held.handler(), {.drain_timeout = std::chrono::milliseconds(300)});
  RawClient client(server.port());
  client.send(kGet);
  std::atomic<bool> was_told{false};
  held.responder(0)->on_disconnect([&] { was_told = true; });
  const auto began = std::chrono::steady_clock::now();
  server.stop();
  server.stop();  // twice is once
  server.join();
  const auto took = std::chrono::steady_clock::now() - began;
  EXPECT_GE(took, std::chrono::milliseconds(290));
  EXPECT_LE(took, std::chrono::seconds(5));
  EXPECT_TRUE(was_told);
}

// A handler that answers nothing: the server itself says why, and a late answer is nobody's.
TEST(HttpServer, WhatHasNoStatusWhenTheDrainEndsGetsA503) {
  Held held;
  RunningServer server(held.handler(), {.drain_timeout = std::chrono::seconds(0)});
  RawClient client(server.port());
  client.send(kGet);
  std::atomic<bool> was_told{false};
  const auto responder = held.responder(0);
  responder->on_disconnect([&] { was_told = true; });
  server.stop();
  const RawResponse response = client.read_response();
  EXPECT_EQ(response.status, 503);
  EXPECT_THAT(response.body, HasSubstr("the server is stopping"));
  EXPECT_TRUE(was_told);
  responder->send(text_response("too late"));
  EXPECT_TRUE(client.read_to_end());
  EXPECT_EQ(client.buffered(), "");
  client.close();
  server.join();
}

TEST(HttpServer, RespondersMayOutliveTheServer) {
  Held held;
  RunningServer server(held.handler(), {.drain_timeout = std::chrono::seconds(0)});
  RawClient client(server.port());
  client.send(kGet);
  const auto responder = held.responder(0);
  server.destroy();
  EXPECT_FALSE(responder->connected());
  responder->send(text_response("nobody hears this"));
  held.drop_all();
}

TEST(HttpServer, HostsAndPorts) {
  for (const std::string host : {"127.0.0.1", "localhost", "0.0.0.0", "::1", "[::1]", "::"}) {
    ServerOptions options;
    options.host = host;
    options.port = 0;
    auto server = Server::listen(options, echo);
    if (!server.ok() && host.find(':') != std::string::npos) {
      EXPECT_THAT(server.error().message, HasSubstr(host));
      continue;  // no IPv6 on this machine
    }
    ASSERT_TRUE(server.ok()) << server.error().message;
    EXPECT_GT((*server)->port(), 0);
  }
}

TEST(HttpServer, Ipv6) {
  ServerOptions options{.host = "::1", .port = 0};
  auto server =
      Server::listen(options, [](const Request& request, const std::shared_ptr<Responder>& responder) {
        responder->send(text_response(request.remote));
      });
  if (!server.ok()) GTEST_SKIP() << "no IPv6 here: " << server.error().message;
  std::thread thread([&] { (*server)->run(); });
  const int fd = ::socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = htons(static_cast<uint16_t>((*server)->port()));
  address.sin6_addr = in6addr_loopback;
  ASSERT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::send(fd, kGet.data(), kGet.size(), 0), static_cast<ssize_t>(kGet.size()));
  char block[4096];
  const ssize_t n = ::recv(fd, block, sizeof block, 0);
  ASSERT_GT(n, 0);
  EXPECT_THAT(std::string(block, static_cast<size_t>(n)), HasSubstr("[::1]:"));
  ::close(fd);
  (*server)->stop();
  thread.join();
}

TEST(HttpServer, ErrorsOfListenSayTheWayOut) {
  RunningServer server(echo);
  const auto error_of = [&](ServerOptions options) {
    const auto result = Server::listen(options, echo);
    EXPECT_FALSE(result.ok());
    return result.ok() ? Error{} : result.error();
  };
  const Error in_use = error_of({.host = "127.0.0.1", .port = server.port()});
  EXPECT_EQ(in_use.code, ErrorCode::kUnavailable);
  EXPECT_EQ(in_use.field, "port");
  EXPECT_THAT(in_use.message, HasSubstr("127.0.0.1"));
  EXPECT_THAT(in_use.message, HasSubstr(std::to_string(server.port())));
  EXPECT_THAT(in_use.message, HasSubstr("another port"));
  EXPECT_THAT(error_of({.port = 70000}).message, HasSubstr("70000"));
  EXPECT_THAT(error_of({.host = "192.0.2.1"}).message, HasSubstr("192.0.2.1"));  // TEST-NET-1, nobody's
  EXPECT_THAT(error_of({.host = "not a host"}).message, HasSubstr("not a host"));
  EXPECT_THAT(error_of({.max_connections = 0}).message, HasSubstr("0"));
}

TEST(HttpServer, HeadersOfAnAnswerCannotSplitIt) {
  RunningServer server([](const Request&, const std::shared_ptr<Responder>& responder) {
    Response response = text_response("body");
    response.headers = {
        {"X-Id", "a\r\nSet-Cookie: stolen"}, {"Content-Length", "9999"}, {"bad name", "x"}, {"X-Ok", "1"}};
    responder->send(response);
  });
  set_log_level(LogLevel::kOff);
  RawClient client(server.port());
  client.send(kGet);
  const RawResponse response = client.read_response();
  set_log_level(LogLevel::kInfo);
  EXPECT_EQ(response.header("x-id"), "a  Set-Cookie: stolen");
  EXPECT_EQ(response.header("content-length"), "4");
  EXPECT_EQ(response.header("x-ok"), "1");
  EXPECT_EQ(response.headers.count("set-cookie"), 0u);
  EXPECT_EQ(response.body, "body");
}

TEST(HttpDate, IsThatOfRfc9110) {  // 5.6.7's own example
  EXPECT_EQ(http_date(784111777), "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(http_date(0), "Thu, 01 Jan 1970 00:00:00 GMT");
}

}  // namespace
}  // namespace lockstep::serving::http
