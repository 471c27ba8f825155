// Clients that are broken, slow or hostile: each ends with a proper answer or a closed connection, and soon.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <vector>

#include "lockstep/base/json.h"
#include "lockstep/base/log.h"
#include "tests/serving/http_raw_client.h"

namespace lockstep::serving::http {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::string_view kGet = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

void say_ok(const Request& request, const std::shared_ptr<Responder>& responder) {
  responder->send(text_response(fmt::format("{}", request.body.size())));
}

// The answer must come whole although the client goes on sending, and the connection must end after it.
void expect_refusal(RawClient& client, int status) {
  const RawResponse response = client.read_response();
  EXPECT_EQ(response.status, status);
  EXPECT_TRUE(response.is_complete);
  EXPECT_EQ(response.header("connection"), "close");
  const auto body = parse_json(response.body);
  ASSERT_TRUE(body.ok()) << response.body;
  EXPECT_FALSE(body->at("error").at("message").get<std::string>().empty());
  EXPECT_EQ(body->at("error").at("type"), status >= 500 ? "server_error" : "invalid_request_error");
  EXPECT_TRUE(client.read_to_end());
}

TEST(HttpLimits, MalformedRequestsAreAnsweredInJson) {
  RunningServer server(say_ok);
  const std::vector<std::pair<std::string, int>> cases = {
      {"GET / HTTP/1.1\r\n\r\n", 400},
      {"\x16\x03\x01 this is TLS\r\n\r\n", 400},
      {"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n", 400},
      {"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505},
      {"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
  };
  for (const auto& [bytes, status] : cases) {
    RawClient client(server.port());
    client.send(bytes);
    expect_refusal(client, status);
  }
}

TEST(HttpLimits, TooLargeBodies) {
  RunningServer server(say_ok, {.max_body_bytes = 100000});
  RawClient fits(server.port());
  fits.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n" + std::string(100000, 'x'));
  EXPECT_EQ(fits.read_response().body, "100000");

  RawClient announced(server.port());
  std::thread sender([&] {  // sends all of it before it reads: the answer must survive that
    announced.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n" +
                   std::string(2000000, 'x'));
  });
  sender.join();
  expect_refusal(announced, 413);

  RawClient chunked(server.port());
  chunked.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  for (int i = 0; i < 13; ++i) chunked.send("2000\r\n" + std::string(8192, 'x') + "\r\n");
  expect_refusal(chunked, 413);
}

TEST(HttpLimits, TooLargeHeads) {
  RunningServer server(say_ok, {.max_header_bytes = 100000, .max_headers = 10});
  RawClient fits(server.port());  // more than the read-ahead of a waiting exchange, less than the limit
  fits.send("GET / HTTP/1.1\r\nHost: a\r\nX: ");
  for (int i = 0; i < 9; ++i) {
    fits.send(std::string(10000, 'x'));
    std::this_thread::sleep_for(milliseconds(2));
  }
  fits.send("\r\n\r\n");
  EXPECT_EQ(fits.read_response().status, 200);

  RawClient long_header(server.port());
  long_header.send("GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(200000, 'x') + "\r\n\r\n");
  expect_refusal(long_header, 431);

  RawClient many(server.port());
  std::string lines;
  for (int i = 0; i < 10; ++i) lines += fmt::format("X-{}: 1\r\n", i);
  many.send("GET / HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n");
  expect_refusal(many, 431);

  RawClient long_target(server.port());
  long_target.send("GET /" + std::string(200000, 'x'));
  expect_refusal(long_target, 414);
}

TEST(HttpLimits, SlowHeadersAndBodiesEndAtTheirTimeouts) {
  RunningServer server(say_ok, {.header_timeout = milliseconds(300), .body_timeout = milliseconds(300)});
  RawClient headers(server.port()), body(server.port());
  headers.send("GET / HTTP/1.1\r\n");
  body.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n");
  const auto began = std::chrono::steady_clock::now();
  std::atomic<bool> is_over{false};
  std::thread dripping([&] {  // a byte now and then does not move the deadline
    while (!is_over) {
      headers.send("X-A: b\r\n");
      body.send("x");
      std::this_thread::sleep_for(milliseconds(50));
    }
  });
  expect_refusal(headers, 408);
  expect_refusal(body, 408);
  const auto took = std::chrono::steady_clock::now() - began;
  is_over = true;
  dripping.join();
  EXPECT_GE(took, milliseconds(250));
  EXPECT_LE(took, seconds(6));
}

TEST(HttpLimits, IdleConnectionsEnd) {
  RunningServer server(say_ok, {.idle_timeout = milliseconds(300)});
  RawClient fresh(server.port()), used(server.port());
  used.send(kGet);
  EXPECT_EQ(used.read_response().status, 200);
  EXPECT_TRUE(fresh.read_to_end(seconds(5)));
  EXPECT_TRUE(used.read_to_end(seconds(5)));
  EXPECT_EQ(fresh.buffered() + used.buffered(), "");
}

TEST(HttpLimits, AHandlerMayTakeLongerThanAnyTimeout) {
  std::promise<std::shared_ptr<Responder>> held;
  RunningServer server(
      [&](const Request&, std::shared_ptr<Responder> responder) { held.set_value(std::move(responder)); },
      {.idle_timeout = milliseconds(100),
       .header_timeout = milliseconds(100),
       .body_timeout = milliseconds(100),
       .write_timeout = milliseconds(100)});
  RawClient client(server.port());
  client.send(kGet);
  const auto responder = held.get_future().get();
  std::this_thread::sleep_for(milliseconds(700));
  responder->send(text_response("at last"));
  EXPECT_EQ(client.read_response().body, "at last");
}

TEST(HttpLimits, AClientThatDoesNotReadItsStreamIsCutOff) {
  std::promise<std::shared_ptr<Responder>> held;
  RunningServer server(
      [&](const Request&, std::shared_ptr<Responder> responder) { held.set_value(std::move(responder)); },
      {.max_queued_write_bytes = 100000});
  RawClient client(server.port(), 4096);
  client.send(kGet);
  const auto responder = held.get_future().get();
  std::atomic<bool> was_told{false};
  responder->on_disconnect([&] { was_told = true; });
  responder->start_stream(200, "text/plain", {});
  size_t sent = 0;
  const std::string chunk(10000, 'x');
  EXPECT_TRUE(eventually([&] {
    for (int i = 0; i < 10; ++i) responder->write(chunk);
    sent += 10 * chunk.size();
    return was_told.load();
  }));
  EXPECT_LT(sent, size_t{64} << 20) << "the queue is not bounded";
  EXPECT_FALSE(responder->connected());
}

TEST(HttpLimits, AClientThatTakesNoByteForTooLongIsCutOff) {
  RunningServer server(
      [&](const Request&, const std::shared_ptr<Responder>& responder) {
        responder->send(text_response(std::string(size_t{32} << 20, 'x')));
      },
      {.write_timeout = milliseconds(300)});
  RawClient client(server.port(), 4096);
  client.send(kGet);
  ASSERT_TRUE(client.is_readable());
  std::this_thread::sleep_for(milliseconds(900));
  const RawResponse response = client.read_response();
  EXPECT_EQ(response.status, 200);
  EXPECT_FALSE(response.is_complete);
}

TEST(HttpLimits, ALargeAnswerReachesASlowReader) {
  const std::string body(size_t{20} << 20,
                         'y');  // more than max_queued_write_bytes, which bounds streams only
  RunningServer server([&](const Request&, const std::shared_ptr<Responder>& responder) {
    responder->send(text_response(body));
  });
  RawClient client(server.port(), 4096);
  client.send(std::string(kGet) + std::string(kGet));
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_TRUE(client.read_response().body == body);
  EXPECT_TRUE(client.read_response().body == body);
}

TEST(HttpLimits, ConnectionsBeyondTheLimitAreTold) {
  RunningServer server(say_ok, {.max_connections = 2});
  auto first = std::make_unique<RawClient>(server.port());
  RawClient second(server.port());
  for (RawClient* client : {first.get(), &second}) {
    client->send(kGet);
    EXPECT_EQ(client->read_response().status, 200);
  }
  RawClient third(server.port());
  third.send(kGet);
  expect_refusal(third, 503);
  third.close();
  first->close();
  EXPECT_TRUE(eventually([&] {
    RawClient again(server.port());
    again.send(kGet);
    return again.read_response().status == 200;
  }));
}

TEST(HttpLimits, AClientThatPipelinesWithoutEndIsLeftWaiting) {
  std::promise<std::shared_ptr<Responder>> held;
  std::atomic<int> num_requests{0};
  RunningServer server([&](const Request&, const std::shared_ptr<Responder>& responder) {
    if (++num_requests == 1) return held.set_value(responder);
    responder->send(text_response("quick"));
  });
  RawClient client(server.port());
  std::string requests;
  while (requests.size() < (size_t{1} << 20)) requests += kGet;
  const int num_sent = static_cast<int>(requests.size() / kGet.size());
  std::thread sender([&] { client.send(requests); });
  const auto responder = held.get_future().get();
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(num_requests, 1);
  responder->send(text_response("slow"));
  EXPECT_EQ(client.read_response().body, "slow");
  for (int i = 1; i < num_sent; ++i) ASSERT_EQ(client.read_response().body, "quick") << i;
  sender.join();
}

}  // namespace
}  // namespace lockstep::serving::http
