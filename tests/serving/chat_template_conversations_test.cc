// Whole conversations through the templates of models: the tutors in this repository, published tokenizers
// where the environment variable LOCKSTEP_TOKENIZER_ARCHIVE names a folder with them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/file.h"
#include "lockstep/base/json.h"
#include "lockstep/serving/chat_template/chat_template.h"
#include "lockstep/serving/chat_template/special_tokens.h"
#include "tests/source_dir.h"

namespace lockstep::serving {
namespace {

const std::filesystem::path kRoot = LOCKSTEP_SOURCE_DIR;

Json parse(const std::string& text) {
  auto document = parse_json(text);
  EXPECT_TRUE(document.ok()) << (document ? "" : document.error().message);
  return std::move(document.value());
}

ChatTemplate load(const std::filesystem::path& directory) {
  auto loaded = ChatTemplate::load(directory);
  EXPECT_TRUE(loaded.ok()) << (loaded ? "" : loaded.error().message);
  return std::move(loaded.value());
}

Json token_variables(const std::filesystem::path& directory) {
  const auto tokens = load_special_tokens(directory);
  EXPECT_TRUE(tokens.ok()) << (tokens ? "" : tokens.error().message);
  return tokens->variables();
}

class TutorConversations : public testing::TestWithParam<std::string> {};

TEST_P(TutorConversations, GiveTheGoldenPrompts) {
  const auto directory = kRoot / "models" / GetParam();
  const ChatTemplate chat_template = load(directory);
  const Json golden = parse(read_file(kRoot / "tests/golden" / GetParam() / "golden.json").value());
  ASSERT_GT(golden.size(), 0u);
  for (const Json& entry : golden) {
    const Json& conversation = entry["conversation"];
    Json variables = token_variables(directory);
    variables["messages"] = conversation["messages"];
    variables["tools"] = conversation["tools"];
    variables["enable_thinking"] = conversation["enable_thinking"];
    variables["add_generation_prompt"] = true;
    const auto prompt = chat_template.render(variables);
    ASSERT_TRUE(prompt.ok()) << prompt.error().message;
    EXPECT_EQ(prompt.value(), entry["prompt"].get<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(, TutorConversations, testing::Values("tutor-deepseek-v3", "tutor-qwen3.5-moe"),
                         [](const auto& tutor) {
                           std::string name = tutor.param;
                           for (char& c : name)
                             if (c == '-' || c == '.') c = '_';
                           return name;
                         });

// Each folder with a template has chats.jsonl: lines of {messages, tools, add_generation_prompt, kwargs,
// rendered}.
TEST(PublishedTokenizers, RenderTheRecordedChats) {
  const char* archive = std::getenv("LOCKSTEP_TOKENIZER_ARCHIVE");
  if (archive == nullptr) GTEST_SKIP() << "LOCKSTEP_TOKENIZER_ARCHIVE is not set";
  int num_chats = 0;
  for (const auto& entry : std::filesystem::directory_iterator(archive)) {
    const auto& directory = entry.path();
    if (!std::filesystem::exists(directory / "chats.jsonl")) continue;
    SCOPED_TRACE(directory.string());
    const ChatTemplate chat_template = load(directory);
    std::istringstream lines(read_file(directory / "chats.jsonl").value());
    for (std::string line; std::getline(lines, line);) {
      const Json chat = parse(line);
      Json variables = token_variables(directory);
      for (const char* name : {"messages", "tools", "add_generation_prompt"}) variables[name] = chat[name];
      for (const auto& [name, value] : chat["kwargs"].items()) variables[name] = value;
      const auto text = chat_template.render(variables);
      ASSERT_TRUE(text.ok()) << text.error().message;
      EXPECT_EQ(text.value(), chat["rendered"].get<std::string>());
      ++num_chats;
    }
  }
  EXPECT_GT(num_chats, 0) << "no folder of " << archive << " has chats.jsonl";
}

TEST(ChatTemplate, RendersLongConversationsWithinTheDefaultLimits) {
  const ChatTemplate chat_template = load(kRoot / "models/tutor-qwen3.5-moe");
  Json messages = Json::array();
  for (int i = 0; i < 2000; ++i) {
    messages.push_back({{"role", "user"}, {"content", std::string(2000, 'q')}});
    messages.push_back({{"role", "assistant"}, {"content", std::string(2000, 'a')}});
  }
  const auto text = chat_template.render({{"messages", messages}, {"add_generation_prompt", true}});
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_GT(text->size(), size_t{8'000'000});
}

TEST(ChatTemplate, RendersFromManyThreadsAtOnce) {
  const auto parsed = ChatTemplate::parse(
      "{% macro m(x) %}<{{ x }}>{% endmacro %}{% set ns = namespace(n=0) %}"
      "{% for i in items %}{% set ns.n = ns.n + i %}{{ m('item ' ~ i) }}{% endfor %}{{ ns.n }}");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  std::vector<std::string> texts(4);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < texts.size(); ++t)
    threads.emplace_back([&, t] {
      for (int round = 0; round < 50; ++round)
        texts[t] = parsed->render({{"items", Json::array({1, 2, t})}}).value();
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < texts.size(); ++t)
    EXPECT_EQ(texts[t], "<item 1><item 2><item " + std::to_string(t) + ">" + std::to_string(3 + t));
}

TEST(ChatTemplate, IsMovable) {
  auto first = ChatTemplate::parse("{{ x }}!").value();
  const ChatTemplate second = std::move(first);
  EXPECT_EQ(second.render({{"x", "moved"}}).value(), "moved!");
  EXPECT_EQ(second.source(), "{{ x }}!");
}

TEST(ChatTemplate, KeepsNumbersOfJsonApart) {
  const auto parsed = ChatTemplate::parse("{{ [a, b, c, d, e] }} {{ [a, b, c, d, e] | tojson }}").value();
  const Json variables = {{"a", 1}, {"b", 1.0}, {"c", true}, {"d", 18446744073709551615u}, {"e", nullptr}};
  EXPECT_EQ(parsed.render(variables).value(),
            "[1, 1.0, True, 18446744073709551615, None] [1, 1.0, true, 18446744073709551615, null]");
}

TEST(ChatTemplate, ReplacesInvalidTextOfVariables) {
  const auto parsed = ChatTemplate::parse("{{ x }}{{ x | length }}").value();
  EXPECT_EQ(parsed
                .render({{"x",
                          "a\xff"
                          "b"}})
                .value(),
            "a\xEF\xBF\xBD"
            "b3");
}

}  // namespace
}  // namespace lockstep::serving
