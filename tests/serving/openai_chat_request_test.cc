#include "lockstep/serving/openai/chat_request.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace lockstep::serving::openai {
namespace {

runtime::ModelInfo model() {
  runtime::ModelInfo info{.name = "m", .vocab = 1000, .context_length = 4096};
  info.default_sampling = {.temperature = 0.6f, .top_p = 0.95f};
  return info;
}

// A good request with the fields of `extra` put over it.
Json body_with(const std::string& extra) {
  Json body = {{"model", "m"}, {"messages", Json::array({{{"role", "user"}, {"content", "Hi"}}})}};
  const Json parsed = parse_json(extra).value();
  for (const auto& [key, value] : parsed.items()) body[key] = value;
  return body;
}

ChatRequest read(const std::string& extra) {
  auto request = read_chat_request(body_with(extra), model());
  if (!request) throw std::runtime_error(request.error().message);
  return *request;
}

TEST(ChatRequest, DefaultsAreTheModels) {
  const ChatRequest request = read("{}");
  EXPECT_FLOAT_EQ(request.options.sampling.temperature, 0.6f);
  EXPECT_FLOAT_EQ(request.options.sampling.top_p, 0.95f);
  EXPECT_EQ(request.options.num_choices, 1);
  EXPECT_EQ(request.options.num_top_logprobs, -1);
  EXPECT_FALSE(request.options.max_tokens.has_value());
  EXPECT_FALSE(request.options.sampling.seed.has_value());
  EXPECT_FALSE(request.options.stream);
  EXPECT_TRUE(request.tools.tools.is_null());
}

TEST(ChatRequest, ReadsEveryFieldOfSampling) {
  const ChatRequest request =
      read(R"({"temperature": 1.5, "top_p": 0.5, "top_k": 40, "min_p": 0.05, "repetition_penalty": 1.1,
    "presence_penalty": -1, "frequency_penalty": 2, "seed": 7, "logit_bias": {"5": -100, "999": 2.5}, "max_tokens": 10,
    "max_completion_tokens": 20, "min_tokens": 3, "ignore_eos": true, "stop": ["a", "b"], "stop_token_ids": [1, 2], "n": 2,
    "logprobs": true, "top_logprobs": 3, "stream": true, "stream_options": {"include_usage": true}})");
  const runtime::SamplingParams& sampling = request.options.sampling;
  EXPECT_FLOAT_EQ(sampling.temperature, 1.5f);
  EXPECT_FLOAT_EQ(sampling.top_p, 0.5f);
  EXPECT_EQ(sampling.top_k, 40);
  EXPECT_FLOAT_EQ(sampling.min_p, 0.05f);
  EXPECT_FLOAT_EQ(sampling.repetition_penalty, 1.1f);
  EXPECT_FLOAT_EQ(sampling.presence_penalty, -1);
  EXPECT_FLOAT_EQ(sampling.frequency_penalty, 2);
  EXPECT_EQ(sampling.seed, 7U);
  EXPECT_EQ(sampling.logit_bias, (std::vector<std::pair<int32_t, float>>{{5, -100.0f}, {999, 2.5f}}));
  EXPECT_EQ(request.options.max_tokens, 20);
  EXPECT_EQ(request.options.min_tokens, 3);
  EXPECT_TRUE(request.options.ignore_eos);
  EXPECT_EQ(request.options.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(request.options.stop_token_ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(request.options.num_choices, 2);
  EXPECT_EQ(request.options.num_top_logprobs, 3);
  EXPECT_TRUE(request.options.stream);
  EXPECT_TRUE(request.options.include_usage);
}

TEST(ChatRequest, ANullIsAnAbsentField) {
  const ChatRequest request = read(
      R"({"temperature": null, "max_tokens": null, "stop": null, "n": null, "tools": null, "logprobs": null,
    "stream": null, "stream_options": null, "seed": null, "logit_bias": null, "response_format": null, "tool_choice": null,
    "user": null, "chat_template_kwargs": null, "model": null})");
  EXPECT_FLOAT_EQ(request.options.sampling.temperature, 0.6f);
  EXPECT_FALSE(request.model.has_value());
}

TEST(ChatRequest, UnknownAndHarmlessFieldsAreIgnored) {
  read(
      R"({"store": false, "user": "u", "metadata": {"a": "b"}, "service_tier": "auto", "something_new": [1], "verbosity": "low",
    "response_format": {"type": "text"}, "modalities": ["text"], "parallel_tool_calls": true, "tool_choice": "auto"})");
}

TEST(ChatRequest, OddButRightValues) {
  EXPECT_EQ(read(R"({"max_tokens": 16.0})").options.max_tokens, 16);
  EXPECT_EQ(read(R"({"top_k": -1})").options.sampling.top_k, 0);
  EXPECT_EQ(read(R"({"seed": -1})").options.sampling.seed, UINT64_MAX);
  EXPECT_EQ(read(R"({"seed": 18446744073709551615})").options.sampling.seed, UINT64_MAX);
  EXPECT_EQ(read(R"({"stop": "x"})").options.stop, (std::vector<std::string>{"x"}));
  EXPECT_EQ(read(R"({"stop": []})").options.stop.size(), 0U);
  EXPECT_EQ(read(R"({"logprobs": true})").options.num_top_logprobs, 0);
  EXPECT_EQ(read(R"({"top_p": 0})").options.sampling.top_k, 1);
  EXPECT_TRUE(read(R"({"tools": []})").tools.tools.is_null());
}

TEST(ChatRequest, TemplateVariables) {
  EXPECT_EQ(read(R"({"chat_template_kwargs": {"enable_thinking": false}})").template_kwargs,
            Json({{"enable_thinking", false}}));
  const Json none = read(R"({"reasoning_effort": "none"})").template_kwargs;
  EXPECT_EQ(none["enable_thinking"], false);
  const Json both = read(R"({"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": true}})")
                        .template_kwargs;
  EXPECT_EQ(both["enable_thinking"], true);
}

struct Bad {
  const char* extra;
  const char* param;
};

TEST(ChatRequest, ErrorsNameTheField) {
  const std::vector<Bad> table = {
      {R"({"temperature": 3})", "temperature"},
      {R"({"temperature": -0.1})", "temperature"},
      {R"({"temperature": "hot"})", "temperature"},
      {R"({"top_p": 1.01})", "top_p"},
      {R"({"top_k": -2})", "top_k"},
      {R"({"top_k": 1.5})", "top_k"},
      {R"({"min_p": 2})", "min_p"},
      {R"({"repetition_penalty": 0})", "repetition_penalty"},
      {R"({"presence_penalty": 2.1})", "presence_penalty"},
      {R"({"frequency_penalty": -3})", "frequency_penalty"},
      {R"({"seed": "x"})", "seed"},
      {R"({"seed": 1.5})", "seed"},
      {R"({"logit_bias": {"x": 1}})", "logit_bias"},
      {R"({"logit_bias": {"1000": 1}})", "logit_bias"},
      {R"({"logit_bias": {"5": 101}})", "logit_bias.5"},
      {R"({"logit_bias": [1]})", "logit_bias"},
      {R"({"max_tokens": 0})", "max_tokens"},
      {R"({"max_tokens": "5"})", "max_tokens"},
      {R"({"max_tokens": 5000000000})", "max_tokens"},
      {R"({"max_completion_tokens": -1})", "max_completion_tokens"},
      {R"({"min_tokens": -1})", "min_tokens"},
      {R"({"n": 0})", "n"},
      {R"({"n": 129})", "n"},
      {R"({"n": true})", "n"},
      {R"({"stop": 5})", "stop"},
      {R"({"stop": ["a", 5]})", "stop[1]"},
      {R"({"stop": [""]})", "stop[0]"},
      {R"({"stop": ["1","2","3","4","5","6","7","8","9","0","a","b","c","d","e","f","g"]})", "stop"},
      {R"({"stop_token_ids": [1000]})", "stop_token_ids[0]"},
      {R"({"stop_token_ids": ["a"]})", "stop_token_ids[0]"},
      {R"({"ignore_eos": 1})", "ignore_eos"},
      {R"({"stream": "yes"})", "stream"},
      {R"({"stream_options": {"include_usage": true}})", "stream_options"},
      {R"({"stream": true, "stream_options": {"include_usage": 1}})", "stream_options.include_usage"},
      {R"({"logprobs": 5})", "logprobs"},
      {R"({"top_logprobs": 5})", "top_logprobs"},
      {R"({"logprobs": true, "top_logprobs": 21})", "top_logprobs"},
      {R"({"response_format": {"type": "xml"}})", "response_format.type"},
      {R"({"response_format": {}})", "response_format.type"},
      {R"({"response_format": {"type": "json_schema"}})", "response_format.json_schema"},
      {R"({"response_format": {"type": "json_schema", "json_schema": {}}})",
       "response_format.json_schema.schema"},
      {R"({"response_format": {"type": "json_schema", "json_schema": {"schema": {"not": {}}}}})",
       "response_format.json_schema.schema.not"},
      {R"({"response_format": "text"})", "response_format"},
      {R"({"guided_json": {"properties": {"a": {"uniqueItems": true}}}})",
       "guided_json.properties.a.uniqueItems"},
      {R"({"json_schema": "{"})", "json_schema"},
      {R"({"regex": 5})", "regex"},
      {R"({"regex": "a", "ebnf": "root ::= \"a\""})", "ebnf"},
      {R"({"guided_choice": []})", "guided_choice"},
      {R"({"guided_choice": ["a", 5]})", "guided_choice[1]"},
      {R"({"structured_outputs": {"structural_tag": "x"}})", "structured_outputs.structural_tag"},
      {R"({"modalities": ["audio"]})", "modalities"},
      {R"({"user": 5})", "user"},
      {R"({"metadata": "x"})", "metadata"},
      {R"({"model": 5})", "model"},
      {R"({"chat_template_kwargs": {"messages": []}})", "chat_template_kwargs.messages"},
      {R"({"continue_final_message": true})", "continue_final_message"},
      {R"({"functions": []})", "functions"},
      {R"({"tool_choice": "required"})", "tool_choice"},
      {R"({"tool_choice": "sometimes"})", "tool_choice"},
      {R"({"tool_choice": {"type": "function", "function": {"name": "f"}}})", "tool_choice"},
      {R"({"tools": [{"type": "function", "function": {"name": "f"}}],
           "tool_choice": {"type": "function", "function": {"name": "g"}}})",
       "tool_choice.function.name"},
      {R"({"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": {"type": "function"}})",
       "tool_choice.function.name"},
      {R"({"tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": {"type": "custom"}})",
       "tool_choice.type"},
      {R"({"tools": [{"type": "function", "function": {"name": "f"}}],
           "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "often", "tools": []}}})",
       "tool_choice.allowed_tools.mode"},
      {R"({"tools": [{"type": "function", "function": {"name": "f"}}],
           "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}})",
       "tool_choice.allowed_tools.tools"},
      {R"({"parallel_tool_calls": "no"})", "parallel_tool_calls"},
      {R"({"tools": {}})", "tools"},
      {R"({"tools": [5]})", "tools[0]"},
      {R"({"tools": [{"function": {"name": "f"}}]})", "tools[0].type"},
      {R"({"tools": [{"type": "web_search"}]})", "tools[0].type"},
      {R"({"tools": [{"type": "function"}]})", "tools[0].function"},
      {R"({"tools": [{"type": "function", "function": {}}]})", "tools[0].function.name"},
      {R"({"tools": [{"type": "function", "function": {"name": "a b"}}]})", "tools[0].function.name"},
      {R"({"tools": [{"type": "function", "function": {"name": ""}}]})", "tools[0].function.name"},
      {R"({"tools": [{"type": "function", "function": {"name": 7}}]})", "tools[0].function.name"},
      {R"({"tools": [{"type": "function", "function": {"name": "f", "description": 1}}]})",
       "tools[0].function.description"},
      {R"({"tools": [{"type": "function", "function": {"name": "f", "parameters": []}}]})",
       "tools[0].function.parameters"},
      {R"({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "string"}}}]})",
       "tools[0].function.parameters.type"},
      {R"({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": 1}}}}]})",
       "tools[0].function.parameters.properties.a"},
      {R"({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "required": [1]}}}]})",
       "tools[0].function.parameters.required[0]"},
      {R"({"tools": [{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "f"}}]})",
       "tools[1].function.name"},
      {R"({"messages": null})", "messages"},
      {R"({"messages": "Hi"})", "messages"},
      {R"({"messages": []})", "messages"},
      {R"({"messages": ["Hi"]})", "messages[0]"},
      {R"({"messages": [{"content": "Hi"}]})", "messages[0].role"},
      {R"({"messages": [{"role": "robot", "content": "Hi"}]})", "messages[0].role"},
      {R"({"messages": [{"role": "user"}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": null}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": 5}]})", "messages[0].content"},
      {R"({"messages": [{"role": "user", "content": ["Hi"]}]})", "messages[0].content[0]"},
      {R"({"messages": [{"role": "user", "content": [{"text": "Hi"}]}]})", "messages[0].content[0].type"},
      {R"({"messages": [{"role": "user", "content": [{"type": "text"}]}]})", "messages[0].content[0].text"},
      {R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}]}]})",
       "messages[0].content[1].type"},
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant"}]})", "messages[1].content"},
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": "tool", "content": "4"}]})",
       "messages[1].tool_call_id"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{"id": "1", "type": "function"}]}]})",
       "messages[0].tool_calls[0].function"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}]})",
       "messages[0].tool_calls[0].function.name"},
      {R"({"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 5}}]}]})",
       "messages[0].tool_calls[0].function.arguments"},
  };
  for (const Bad& bad : table) {
    const auto request = read_chat_request(body_with(bad.extra), model());
    ASSERT_FALSE(request.ok()) << bad.extra;
    EXPECT_EQ(request.error().field, bad.param) << bad.extra << " " << request.error().message;
    EXPECT_NE(request.error().message.find(bad.param), std::string::npos) << request.error().message;
    EXPECT_EQ(request.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(ChatRequest, ABodyThatIsNoObject) {
  for (const char* body : {"[]", "5", "\"x\"", "null"})
    EXPECT_FALSE(read_chat_request(parse_json(body).value(), model()).ok()) << body;
}

TEST(ChatRequest, ToolsThatMayNotBeCalledAreNotShown) {
  const std::string tools = R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}])";
  EXPECT_EQ(read("{" + tools + "}").tools.tools.size(), 1U);
  EXPECT_TRUE(read("{" + tools + R"(, "tool_choice": "none"})").tools.tools.is_null());
  EXPECT_TRUE(read("{" + tools + R"(, "parallel_tool_calls": false})").tools.one_call_at_most);
}

TEST(ChatRequest, ToolChoiceSaysWhatMayAndMustBeCalled) {
  const std::string tools =
      R"({"tools": [{"type": "function", "function": {"name": "f"}}, {"type": "function", "function": {"name": "g"}}],)"
      R"("tool_choice": )";
  const auto choice = [&](const std::string& value) { return read(tools + value + "}").tools; };
  EXPECT_EQ(choice(R"("auto")").demand, ToolOptions::Demand::kMayCall);
  EXPECT_TRUE(choice(R"("auto")").callable.is_null());
  EXPECT_EQ(choice(R"("required")").demand, ToolOptions::Demand::kMustCall);
  const ToolOptions named = choice(R"({"type": "function", "function": {"name": "g"}})");
  EXPECT_EQ(named.demand, ToolOptions::Demand::kMustCall);
  EXPECT_EQ(named.tools.size(), 2U);
  ASSERT_EQ(named.callable.size(), 1U);
  EXPECT_EQ(named.callable[0]["function"]["name"], "g");
  EXPECT_TRUE(named.one_call_at_most);
  const ToolOptions allowed = choice(
      R"({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "f"}}]}})");
  EXPECT_EQ(allowed.demand, ToolOptions::Demand::kMustCall);
  EXPECT_EQ(allowed.callable.size(), 1U);
}

TEST(ChatRequest, FormsOfTheAnswer) {
  using Kind = constraints::OutputForm::Kind;
  const auto form = [&](const std::string& fields) { return read("{" + fields + "}").options.form; };
  EXPECT_FALSE(form(R"("response_format": {"type": "text"})").has_value());
  EXPECT_EQ(form(R"("response_format": {"type": "json_object"})")->kind, Kind::kJsonSchema);
  const auto schema = form(
      R"("response_format": {"type": "json_schema", "json_schema": {"name": "n", "strict": true, "schema": {"type": "null"}}})");
  EXPECT_EQ(schema->text, R"({"type":"null"})");
  EXPECT_EQ(schema->field, "response_format.json_schema.schema");
  EXPECT_EQ(form(R"("json_schema": "{\"type\": \"null\"}")")->text, R"({"type":"null"})");
  EXPECT_EQ(form(R"("regex": "a+")")->kind, Kind::kRegex);
  EXPECT_EQ(form(R"("ebnf": "root ::= \"a\"")")->kind, Kind::kGrammar);
  EXPECT_EQ(form(R"("guided_choice": ["yes", "n\"o"])")->text, R"(root ::= "yes" | "n\"o")");
  EXPECT_EQ(form(R"("structured_outputs": {"regex": "b"})")->field, "structured_outputs.regex");
}

TEST(ChatMessages, BecomeWhatTemplatesExpect) {
  const ChatRequest request = read(R"({"messages": [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": [{"type": "text", "text": "What is "}, {"type": "text", "text": "1 + 2?"}], "name": "ann"},
    {"role": "assistant", "content": null, "reasoning_content": "I call the tool.", "tool_calls": [
      {"id": "call_1", "type": "function", "function": {"name": "calc", "arguments": "{\"e\": \"1 + 2\"}"}},
      {"id": "call_2", "type": "function", "function": {"name": "calc", "arguments": "not JSON"}}]},
    {"role": "tool", "tool_call_id": "call_2", "content": "oops"},
    {"role": "tool", "tool_call_id": "call_1", "content": "3"},
    {"role": "assistant", "content": "3", "tool_calls": []}]})");
  const Json expected = parse_json(R"([
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is 1 + 2?", "name": "ann"},
    {"role": "assistant", "content": null, "tool_calls": [
      {"type": "function", "id": "call_1", "function": {"name": "calc", "arguments": "{\"e\": \"1 + 2\"}"}},
      {"type": "function", "id": "call_2", "function": {"name": "calc", "arguments": "not JSON"}}],
     "reasoning_content": "I call the tool."},
    {"role": "tool", "content": "3", "tool_call_id": "call_1"},
    {"role": "tool", "content": "oops", "tool_call_id": "call_2"},
    {"role": "assistant", "content": "3"}])")
                            .value();
  EXPECT_EQ(to_text(request.messages), to_text(expected));
}

TEST(SeedOfChoice, FirstChoiceHasTheRequestsSeedAndTheOthersTheirOwn) {
  EXPECT_EQ(seed_of_choice(std::nullopt, 3), std::nullopt);
  EXPECT_EQ(seed_of_choice(7, 0), 7U);
  EXPECT_NE(seed_of_choice(7, 1), seed_of_choice(7, 2));
  EXPECT_NE(seed_of_choice(7, 1), seed_of_choice(8, 1));
}

}  // namespace
}  // namespace lockstep::serving::openai
