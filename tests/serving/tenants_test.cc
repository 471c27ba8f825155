// What a request says of itself to the queue and the cache, and what it is told of them.
#include <gtest/gtest.h>

#include "tests/serving/scripted_engine.h"

namespace lockstep::serving {
namespace {

constexpr const char* kChat = "/v1/chat/completions";

TEST(Tenants, FieldsOfQueueAndCacheReachTheEngine) {
  const ServedScript served("x");
  Json body = user_says("Hi");
  body["priority"] = -7;
  body["user"] = "alice";
  body["cache_salt"] = "s3cret";
  served.post(kChat, body);
  served.post("/v1/completions", {{"prompt", "Hi"}, {"priority", 3}});
  served.post("/generate", {{"text", "Hi"}, {"priority", 9}});
  EXPECT_EQ(served.engine.request(0).priority, -7);
  EXPECT_EQ(served.engine.request(0).tenant, "alice");
  EXPECT_EQ(served.engine.request(0).cache_salt, "s3cret");
  EXPECT_EQ(served.engine.request(1).priority, 3);
  EXPECT_EQ(served.engine.request(1).tenant, "");
  EXPECT_EQ(served.engine.request(1).cache_salt, "");
  EXPECT_EQ(served.engine.request(2).priority, 9);
}

TEST(Tenants, FieldsThatAreOutOfRangeAreRefusedByName) {
  const ServedScript served("x");
  const auto refused = [&](const char* field, const Json& value) {
    Json body = user_says("Hi");
    body[field] = value;
    const auto response = served.ask("POST", kChat, to_text(body));
    EXPECT_EQ(response.status, 400);
    EXPECT_EQ(ServedScript::json(response)["error"]["param"], field);
  };
  refused("priority", 1000001);
  refused("priority", 1.5);
  refused("cache_salt", std::string(513, 's'));
  refused("cache_salt", 4);
  refused("user", std::string(513, 'u'));
}

// A key's requests are apart from those of other keys, whatever they call themselves.
TEST(Tenants, EachKeyIsOne) {
  const ServedScript served("x", {.api_keys = {"one", "two"}});
  const auto ask = [&](const char* key, const char* user) {
    Json body = user_says("Hi");
    body["user"] = body["cache_salt"] = user;
    served.ask("POST", kChat, to_text(body), fmt::format("Authorization: Bearer {}\r\n", key));
    return served.engine.request(served.engine.requests.size() - 1);
  };
  const auto a = ask("one", "alice"), b = ask("two", "alice"), c = ask("one", "bob"), d = ask("one", "alice");
  EXPECT_NE(a.tenant, b.tenant);
  EXPECT_NE(a.cache_salt, b.cache_salt);
  EXPECT_NE(a.tenant, c.tenant);
  EXPECT_EQ(a.tenant, d.tenant);
  EXPECT_EQ(a.cache_salt, d.cache_salt);
}

TEST(Tenants, WithoutKeysAHeaderMakesNoTenant) {
  const ServedScript served("x");
  served.ask("POST", kChat, to_text(user_says("Hi")), "Authorization: Bearer whatever\r\n");
  EXPECT_EQ(served.engine.request(0).tenant, "");
  EXPECT_EQ(served.engine.request(0).cache_salt, "");
}

// OpenAI's usage.prompt_tokens_details.cached_tokens. Of several choices the fewest counts: the second finds
// what the first one has computed.
TEST(Tenants, UsageSaysWhatTheCacheHeld) {
  ServedScript served("one two");
  served.engine.num_cached_tokens = [](runtime::RequestId id) {
    return static_cast<int32_t>(id == 1 ? 5 : 64);
  };
  Json body = user_says("Hi");
  body["n"] = 2;
  EXPECT_EQ(served.post(kChat, body)["usage"]["prompt_tokens_details"]["cached_tokens"], 5);
  body["stream_options"] = {{"include_usage", true}};
  EXPECT_EQ(served.stream(kChat, body).back()["usage"]["prompt_tokens_details"]["cached_tokens"], 64);
  const Json two = served.post("/v1/completions", {{"prompt", {"Hi", "Ho"}}});
  EXPECT_EQ(two["usage"]["prompt_tokens_details"]["cached_tokens"], 128) << "64 of each prompt";
  EXPECT_EQ(served.post("/generate", {{"text", "Hi"}})["meta_info"]["cached_tokens"], 64);
}

TEST(Tenants, WhoeverWaitedTooLongIsToldWhenToComeAgain) {
  ServedScript served("one two");
  served.engine.fail_after("the request has waited for its start", 0, ErrorCode::kUnavailable);
  const auto response = served.ask("POST", kChat, to_text(user_says("Hi")));
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.header("retry-after"), "1");
  EXPECT_EQ(ServedScript::json(response)["error"]["code"], "overloaded");
}

}  // namespace
}  // namespace lockstep::serving
