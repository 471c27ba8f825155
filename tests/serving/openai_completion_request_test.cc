#include "lockstep/serving/openai/completion_request.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::serving::openai {
namespace {

Result<CompletionRequest> read(const std::string& body) {
  return read_completion_request(parse_json(body).value(),
                                 {.name = "m", .vocab = 1000, .context_length = 100});
}

TEST(CompletionRequest, PromptsOfEveryKind) {
  EXPECT_EQ(read(R"({"prompt": "a"})")->prompts, (std::vector<Prompt>{std::string("a")}));
  EXPECT_EQ(read(R"({"prompt": ["a", "b"]})")->prompts,
            (std::vector<Prompt>{std::string("a"), std::string("b")}));
  EXPECT_EQ(read(R"({"prompt": [1, 2]})")->prompts, (std::vector<Prompt>{std::vector<int32_t>{1, 2}}));
  EXPECT_EQ(read(R"({"prompt": [[1], [2, 3]]})")->prompts,
            (std::vector<Prompt>{std::vector<int32_t>{1}, std::vector<int32_t>{2, 3}}));
}

TEST(CompletionRequest, Defaults) {
  const auto request = read(R"({"prompt": "a"})");
  EXPECT_EQ(request->options.max_tokens, 16);
  EXPECT_EQ(request->options.num_top_logprobs, -1);
  EXPECT_FALSE(request->echo);
  EXPECT_EQ(
      read(R"({"prompt": "a", "max_tokens": 0, "echo": true, "logprobs": null, "best_of": 1, "suffix": ""})")
          ->options.max_tokens,
      0);
}

TEST(CompletionRequest, ErrorsNameTheField) {
  const std::vector<std::pair<const char*, const char*>> table = {
      {R"({})", "prompt"},
      {R"({"prompt": null})", "prompt"},
      {R"({"prompt": 5})", "prompt"},
      {R"({"prompt": []})", "prompt"},
      {R"({"prompt": [[]]})", "prompt[0]"},
      {R"({"prompt": [1, "a"]})", "prompt[1]"},
      {R"({"prompt": ["a", 1]})", "prompt[1]"},
      {R"({"prompt": [1, 1000]})", "prompt[1]"},
      {R"({"prompt": [-1]})", "prompt[0]"},
      {R"({"prompt": [1.5]})", "prompt[0]"},
      {R"({"prompt": [18446744073709551615]})", "prompt[0]"},
      {R"({"prompt": [[1], [true]]})", "prompt[1][0]"},
      {R"({"prompt": [null]})", "prompt[0]"},
      {R"({"prompt": "a", "suffix": "b"})", "suffix"},
      {R"({"prompt": "a", "max_tokens": -1})", "max_tokens"},
      {R"({"prompt": "a", "logprobs": 6})", "logprobs"},
      {R"({"prompt": "a", "logprobs": true})", "logprobs"},
      {R"({"prompt": "a", "echo": "yes"})", "echo"},
      {R"({"prompt": "a", "best_of": 2})", "best_of"},
      {R"({"prompt": "a", "temperature": 9})", "temperature"},
  };
  const std::string many = to_text({{"prompt", std::vector<std::string>(100, "a")}, {"n", 11}});
  EXPECT_EQ(read(many).error().field, "n");
  for (const auto& [body, param] : table) {
    const auto request = read(body);
    ASSERT_FALSE(request.ok()) << body;
    EXPECT_EQ(request.error().field, param) << body << " " << request.error().message;
  }
}

}  // namespace
}  // namespace lockstep::serving::openai
