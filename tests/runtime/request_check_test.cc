#include "lockstep/runtime/scheduler/request_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace lockstep::runtime {
namespace {

using testing::HasSubstr;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

ModelInfo model() {
  ModelInfo info;
  info.vocab = 100;
  return info;
}

SchedulerLimits limits() {
  SchedulerLimits made;
  made.shape.num_replicas = 2;
  made.context_length = 20;
  made.page_size = 4;
  made.pages_per_replica = 4;
  return made;
}

Request request_of(size_t prompt_length = 3) {
  Request request;
  request.prompt.assign(prompt_length, 5);
  return request;
}

template <class Change>
void expect_refused(Change change, const char* field, const char* says) {
  Request request = request_of();
  change(request);
  const Status status = check_request(request, model(), limits());
  ASSERT_FALSE(status.ok()) << field << ", " << says;
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(status.error().field, field);
  EXPECT_THAT(status.error().message, HasSubstr(says));
}

template <class Change>
void expect_accepted(Change change) {
  Request request = request_of();
  change(request);
  const Status status = check_request(request, model(), limits());
  EXPECT_TRUE(status.ok()) << status.error().message;
}

// contract: request.checked-at-submit
TEST(RequestCheck, ErrorsNameFieldValueAndRange) {
  expect_refused([](Request& r) { r.sampling.temperature = -0.5f; }, "temperature",
                 "temperature is -0.5; allowed is 0 to 100");
  expect_refused([](Request& r) { r.sampling.top_k = -1; }, "top_k",
                 "top_k is -1; allowed is 0 to 2147483647");
  expect_refused([](Request& r) { r.sampling.top_p = 1.1f; }, "top_p", "top_p is 1.1; allowed is 0 to 1");
  expect_refused([](Request& r) { r.sampling.min_p = -0.1f; }, "min_p", "min_p is -0.1; allowed is 0 to 1");
  expect_refused([](Request& r) { r.sampling.repetition_penalty = 0; }, "repetition_penalty",
                 "repetition_penalty is 0; allowed is above 0 to 100");
  expect_refused([](Request& r) { r.sampling.presence_penalty = 2.5f; }, "presence_penalty",
                 "2.5; allowed is -2 to 2");
  expect_refused([](Request& r) { r.sampling.frequency_penalty = -3; }, "frequency_penalty",
                 "-3; allowed is -2 to 2");
  expect_refused([](Request& r) { r.max_new_tokens = -1; }, "max_tokens", "max_tokens is -1");
  expect_refused([](Request& r) { r.max_new_tokens = 4, r.min_new_tokens = 5; }, "min_tokens",
                 "min_tokens is 5; allowed is 0 to 4");
  expect_refused([](Request& r) { r.min_new_tokens = -1; }, "min_tokens", "-1");
  expect_refused([](Request& r) { r.num_top_logprobs = -2; }, "logprobs",
                 "logprobs is -2; allowed is -1 to 100");
  expect_refused([](Request& r) { r.num_top_logprobs = 101; }, "logprobs", "101; allowed is -1 to 100");
  expect_refused([](Request& r) { r.prompt_top_logits = 101; }, "prompt_top_logits",
                 "101; allowed is 0 to 100");
  expect_refused([](Request& r) { r.replica = 2; }, "replica", "replica is 2; allowed is 0 to 1");
  expect_refused([](Request& r) { r.replica = -1; }, "replica", "replica is -1");
}

TEST(RequestCheck, WhatIsNotANumberIsRefused) {
  for (const float value : {kNan, kInfinity, -kInfinity}) {
    const char* text = std::isnan(value) ? "nan" : "inf";
    expect_refused([&](Request& r) { r.sampling.temperature = value; }, "temperature", text);
    expect_refused([&](Request& r) { r.sampling.top_p = value; }, "top_p", text);
    expect_refused([&](Request& r) { r.sampling.min_p = value; }, "min_p", text);
    expect_refused([&](Request& r) { r.sampling.repetition_penalty = value; }, "repetition_penalty", text);
    expect_refused([&](Request& r) { r.sampling.presence_penalty = value; }, "presence_penalty", text);
    expect_refused([&](Request& r) { r.sampling.frequency_penalty = value; }, "frequency_penalty", text);
    expect_refused([&](Request& r) { r.sampling.logit_bias = {{1, value}}; }, "logit_bias", text);
  }
}

TEST(RequestCheck, IdsLieInTheVocabulary) {
  expect_refused([](Request& r) { r.prompt[2] = 100; }, "prompt",
                 "id 100 at position 2 is outside the vocabulary; allowed is 0 to 99");
  expect_refused([](Request& r) { r.prompt[0] = -1; }, "prompt", "id -1 at position 0");
  expect_refused([](Request& r) { r.stop_token_ids = {1, 100}; }, "stop_token_ids", "id 100 at position 1");
  expect_refused([](Request& r) { r.sampling.logit_bias = {{-1, 1.0f}}; }, "logit_bias", "id -1");
  expect_refused([](Request& r) { r.sampling.logit_bias = {{7, 101.0f}}; }, "logit_bias",
                 "logit_bias of id 7 is 101; allowed is -100 to 100");
}

TEST(RequestCheck, ListsHaveLimits) {
  expect_refused([](Request& r) { r.stop_token_ids.assign(1025, 1); }, "stop_token_ids",
                 "1025 ids; allowed are up to 1024");
  expect_refused([](Request& r) { r.sampling.logit_bias.assign(101, {1, 0.0f}); }, "logit_bias",
                 "101 entries");
}

// contract: request.must-fit
TEST(RequestCheck, APromptMustFitWithOneTokenMore) {
  expect_refused([](Request& r) { r.prompt.clear(); }, "prompt", "0 tokens");
  expect_refused([](Request& r) { r = request_of(20); }, "prompt",
                 "20 tokens and needs room for 1 more; the context holds 20");
  expect_refused(
      [](Request& r) { r = request_of(16); }, "prompt",
      "16 tokens and needs room for 1 more; the cache of a replica holds 16 (4 pages of 4 tokens)");
  expect_accepted([](Request& r) { r = request_of(15); });
  expect_accepted([](Request& r) { r = request_of(16), r.max_new_tokens = 0; });
  expect_refused([](Request& r) { r = request_of(17), r.max_new_tokens = 0; }, "prompt",
                 "needs room for 0 more");
}

TEST(RequestCheck, TheEdgesOfEveryRangeAreAllowed) {
  expect_accepted([](Request&) {});
  expect_accepted([](Request& r) {
    r.sampling = {.temperature = 0,
                  .top_k = 0,
                  .top_p = 0,
                  .min_p = 0,
                  .repetition_penalty = 1e-3f,
                  .presence_penalty = -2,
                  .frequency_penalty = -2};
    r.sampling.logit_bias = {{0, -100.0f}, {99, 100.0f}};
    r.max_new_tokens = r.min_new_tokens = std::numeric_limits<int>::max();
    r.num_top_logprobs = r.prompt_top_logits = 100;
    r.replica = 1;
  });
  expect_accepted([](Request& r) {
    r.sampling = {.temperature = 100,
                  .top_k = std::numeric_limits<int>::max(),
                  .top_p = 1,
                  .min_p = 1,
                  .repetition_penalty = 100,
                  .presence_penalty = 2,
                  .frequency_penalty = 2};
    r.replica = 0;
  });
}

}  // namespace
}  // namespace lockstep::runtime
