// /v1/completions, /tokenize and /detokenize in front of an engine with a script.
#include <gtest/gtest.h>

#include "tests/serving/scripted_engine.h"

namespace lockstep::serving {
namespace {

constexpr const char* kPath = "/v1/completions";

TEST(Completions, AnswersInOpenAisShape) {
  const ServedScript served(" there");
  const Json answer = served.post(kPath, {{"prompt", "Hello"}, {"model", "tutor"}});
  EXPECT_TRUE(answer["id"].get<std::string>().starts_with("cmpl-"));
  EXPECT_EQ(answer["object"], "text_completion");
  EXPECT_EQ(
      answer["choices"],
      Json::array({{{"index", 0}, {"text", " there"}, {"logprobs", nullptr}, {"finish_reason", "stop"}}}));
  EXPECT_EQ(served.engine.request(0).max_new_tokens, 16);
  EXPECT_EQ(served.engine.tokenizer().decode(served.engine.request(0).prompt, SpecialTokens::kKeep), "Hello");
}

TEST(Completions, SeveralPromptsAndChoicesKeepTheirOrder) {
  const ServedScript served(
      [](const runtime::Request& request) { return "p" + std::to_string(request.prompt[0]); });
  const Json body = {
      {"prompt", Json::array({Json::array({10}), Json::array({20, 21})})}, {"n", 2}, {"echo", true}};
  const Json answer = served.post(kPath, body);
  ASSERT_EQ(answer["choices"].size(), 4U);
  const std::vector<int32_t> first = {10}, second = {20, 21};
  const std::string a = served.engine.tokenizer().decode(first, SpecialTokens::kSkip) + "p10";
  const std::string b = served.engine.tokenizer().decode(second, SpecialTokens::kSkip) + "p20";
  const std::vector<std::string> expected = {a, a, b, b};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(answer["choices"][i]["index"], i);
    EXPECT_EQ(answer["choices"][i]["text"], expected[i]);
  }
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 3);

  std::vector<std::string> streamed(4);
  std::vector<int> num_finishes(4);
  for (const Json& event : served.stream(kPath, body)) {
    EXPECT_EQ(event["object"], "text_completion");
    const Json& choice = event["choices"][0];
    streamed[choice["index"].get<size_t>()] += choice["text"].get<std::string>();
    num_finishes[choice["index"].get<size_t>()] += !choice["finish_reason"].is_null();
  }
  EXPECT_EQ(streamed, expected);
  EXPECT_EQ(num_finishes, (std::vector<int>{1, 1, 1, 1}));
}

TEST(Completions, LogprobsAreFourParallelArrays) {
  const ServedScript served("aé b");
  const Json answer = served.post(kPath, {{"prompt", "x"}, {"logprobs", 2}});
  const Json& logprobs = answer["choices"][0]["logprobs"];
  const size_t count = served.engine.tokenizer().encode("aé b", AddedTokens::kParse).size();
  for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
    EXPECT_EQ(logprobs[key].size(), count) << key;
  EXPECT_EQ(logprobs["token_logprobs"][0], -0.25);
  EXPECT_EQ(logprobs["text_offset"][0], 0);
  EXPECT_EQ(logprobs["text_offset"][count - 1],
            served.engine.tokenizer().token_bytes(
                served.engine.tokenizer().encode("aé b", AddedTokens::kParse).back()) == "b"
                ? 3
                : 2);
  EXPECT_EQ(logprobs["top_logprobs"][0].size(), 2U);

  Json streamed = {{"tokens", Json::array()},
                   {"token_logprobs", Json::array()},
                   {"top_logprobs", Json::array()},
                   {"text_offset", Json::array()}};
  for (const Json& event : served.stream(kPath, {{"prompt", "x"}, {"logprobs", 2}})) {
    const Json& chunk = event["choices"][0]["logprobs"];
    if (chunk.is_null()) continue;
    for (auto& [key, value] : streamed.items())
      for (const Json& entry : chunk[key]) value.push_back(entry);
  }
  EXPECT_EQ(streamed, logprobs);
  EXPECT_TRUE(served.post(kPath, {{"prompt", "x"}, {"logprobs", 0}})["choices"][0]["logprobs"]["top_logprobs"]
                  .is_null());
}

TEST(Completions, ARepeatedPromptHasLogprobsToo) {
  const ServedScript served(" b");
  const std::vector<int32_t> prompt = served.engine.tokenizer().encode("aé b", AddedTokens::kParse);
  const Json body = {{"prompt", prompt}, {"logprobs", 1}, {"echo", true}, {"max_tokens", 1}};
  const Json choice = served.post(kPath, body)["choices"][0];
  const Json& logprobs = choice["logprobs"];
  for (const char* key : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
    EXPECT_EQ(logprobs[key].size(), prompt.size() + 1) << key;
  EXPECT_TRUE(logprobs["token_logprobs"][0].is_null());
  EXPECT_TRUE(logprobs["top_logprobs"][0].is_null());
  EXPECT_EQ(logprobs["token_logprobs"][1], -0.5);
  EXPECT_EQ(logprobs["token_logprobs"].back(), -0.25);
  EXPECT_TRUE(choice["text"].get<std::string>().starts_with("aé b"));
  EXPECT_EQ(logprobs["text_offset"].back(), 4);
  EXPECT_EQ(served.engine.request(0).prompt_logprobs, 1);
  // A stream holds the same.
  Json streamed = {
      {"tokens", Json::array()}, {"token_logprobs", Json::array()}, {"text_offset", Json::array()}};
  std::string text;
  for (const Json& event : served.stream(kPath, body)) {
    text += event["choices"][0]["text"].get<std::string>();
    if (event["choices"][0]["logprobs"].is_null()) continue;
    for (auto& [key, value] : streamed.items())
      for (const Json& entry : event["choices"][0]["logprobs"][key]) value.push_back(entry);
  }
  EXPECT_EQ(text, choice["text"].get<std::string>());
  for (auto& [key, value] : streamed.items()) EXPECT_EQ(value, logprobs[key]) << key;
}

TEST(Completions, LengthAndZeroTokens) {
  const ServedScript served("one two three four five six");
  EXPECT_EQ(served.post(kPath, {{"prompt", "x"}, {"max_tokens", 2}})["choices"][0]["finish_reason"],
            "length");
  const Json scored = served.post(kPath, {{"prompt", "Hello"}, {"max_tokens", 0}, {"echo", true}});
  EXPECT_EQ(scored["choices"][0]["text"], "Hello");
  EXPECT_EQ(scored["usage"]["completion_tokens"], 0);
}

TEST(Tokenize, PromptsAndMessages) {
  const ServedScript served("x");
  const std::vector<int32_t> ids = served.engine.tokenizer().encode("Hello there", AddedTokens::kParse);
  EXPECT_EQ(served.post("/tokenize", {{"prompt", "Hello there"}}),
            Json({{"tokens", ids}, {"count", ids.size()}, {"max_model_len", 4096}}));
  const Json chat = served.post("/tokenize", user_says("Hi"));
  served.post("/v1/chat/completions", user_says("Hi"));
  EXPECT_EQ(chat["tokens"].get<std::vector<int32_t>>(), served.engine.request(0).prompt);
  Json bare = user_says("Hi");
  bare["add_generation_prompt"] = false;
  EXPECT_EQ(served.post("/detokenize", {{"tokens", served.post("/tokenize", bare)["tokens"]}}),
            Json({{"prompt", "<｜begin▁of▁sentence｜><｜User｜>Hi"}}));
}

TEST(Tokenize, ErrorsNameTheField) {
  const ServedScript served("x");
  const std::vector<std::tuple<const char*, const char*, const char*>> table = {
      {"/tokenize", "{}", "prompt"},
      {"/tokenize", R"({"prompt": 5})", "prompt"},
      {"/tokenize", R"({"prompt": "a", "messages": []})", "prompt"},
      {"/tokenize", R"({"messages": []})", "messages"},
      {"/detokenize", "{}", "tokens"},
      {"/detokenize", R"({"tokens": "a"})", "tokens"},
      {"/detokenize", R"({"tokens": [1, 1024]})", "tokens[1]"},
      {"/detokenize", R"({"tokens": ["a"]})", "tokens"},
      {"/detokenize", R"({"tokens": [[1], [2]]})", "tokens"},
  };
  for (const auto& [path, body, param] : table) {
    const auto response = served.ask("POST", path, body);
    EXPECT_EQ(response.status, 400) << body;
    EXPECT_EQ(ServedScript::json(response)["error"]["param"], param) << response.body;
  }
  EXPECT_EQ(served.post("/detokenize", {{"tokens", Json::array()}}), Json({{"prompt", ""}}));
}

}  // namespace
}  // namespace lockstep::serving
