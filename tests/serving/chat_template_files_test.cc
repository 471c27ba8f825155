// Finding the template and the special tokens in a model's folder.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "lockstep/serving/chat_template/chat_template.h"
#include "lockstep/serving/chat_template/special_tokens.h"

namespace lockstep::serving {
namespace {

class ChatTemplateFiles : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() /
                 ("lockstep_chat_template_" + std::to_string(getpid()) + "_" +
                  testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((directory_ / name).parent_path());
    std::ofstream(directory_ / name, std::ios::binary) << text;
  }

  std::string rendered(std::string_view name = {}) {
    const auto loaded = ChatTemplate::load(directory_, name);
    if (!loaded) return "error: " + loaded.error().message;
    return loaded->render(Json::object()).value();
  }

  std::filesystem::path directory_;
};

TEST_F(ChatTemplateFiles, TheJinjaFileComesFirst) {
  write("chat_template.jinja", "from jinja");
  write("tokenizer_config.json", R"({"chat_template": "from config"})");
  EXPECT_EQ(rendered(), "from jinja");
}

TEST_F(ChatTemplateFiles, ThenTheTokenizerConfig) {
  write("tokenizer_config.json", R"({"chat_template": "from config"})");
  write("chat_template.json", R"({"chat_template": "from json"})");
  EXPECT_EQ(rendered(), "from config");
}

TEST_F(ChatTemplateFiles, ThenTheProcessorsFile) {
  write("tokenizer_config.json", R"({"chat_template": null})");
  write("chat_template.json", R"({"chat_template": "from json"})");
  EXPECT_EQ(rendered(), "from json");
}

TEST_F(ChatTemplateFiles, NamedTemplates) {
  write(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "default", "template": "plain"}, {"name": "tool_use", "template": "tools"}]})");
  EXPECT_EQ(rendered(), "plain");
  EXPECT_EQ(rendered("tool_use"), "tools");
  EXPECT_THAT(rendered("rag"),
              testing::HasSubstr("has no chat template named \"rag\"; it has \"default\", \"tool_use\""));
  write("additional_chat_templates/rag.jinja", "rag from its file");
  EXPECT_EQ(rendered("rag"), "rag from its file");
  EXPECT_THAT(rendered("../tokenizer_config"), testing::HasSubstr("error: "));
}

TEST_F(ChatTemplateFiles, AMissingTemplateIsNotFound) {
  const auto loaded = ChatTemplate::load(directory_);
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(loaded.error().message, testing::HasSubstr("has no chat template"));
}

TEST_F(ChatTemplateFiles, BrokenFilesSayWhere) {
  write("tokenizer_config.json", "{\"chat_template\": ");
  EXPECT_THAT(rendered(), testing::AllOf(testing::HasSubstr("tokenizer_config.json"),
                                         testing::HasSubstr("not JSON at byte")));
  write("tokenizer_config.json", R"({"chat_template": 5})");
  EXPECT_THAT(rendered(), testing::HasSubstr("neither a string nor a list"));
  write("tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})");
  EXPECT_THAT(rendered(), testing::HasSubstr("\"name\" and \"template\""));
  write("tokenizer_config.json", R"([1])");
  EXPECT_THAT(rendered(), testing::HasSubstr("holds no JSON object"));
  write("chat_template.jinja", "a\n{% if %}");
  EXPECT_THAT(rendered(), testing::HasSubstr("chat template, line 2: expected an expression"));
}

TEST_F(ChatTemplateFiles, TokensAreStringsOrObjects) {
  write("tokenizer_config.json",
        R"({"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>", "unk_token": null})");
  const auto tokens = load_special_tokens(directory_);
  ASSERT_TRUE(tokens.ok()) << tokens.error().message;
  EXPECT_EQ(tokens->bos_token, "<s>");
  EXPECT_EQ(tokens->eos_token, "</s>");
  EXPECT_EQ(tokens->pad_token, std::nullopt);
  EXPECT_EQ(tokens->unk_token, std::nullopt);
  EXPECT_EQ(tokens->variables(), Json({{"bos_token", "<s>"}, {"eos_token", "</s>"}}));
}

TEST_F(ChatTemplateFiles, TheMapFillsWhatTheConfigDoesNotName) {
  write("tokenizer_config.json", R"({"added_tokens_decoder": {}, "bos_token": "config", "unk_token": null})");
  write("special_tokens_map.json",
        R"({"bos_token": "map", "eos_token": {"content": "map eos"}, "unk_token": "map unk"})");
  const auto tokens = load_special_tokens(directory_);
  ASSERT_TRUE(tokens.ok()) << tokens.error().message;
  EXPECT_EQ(tokens->bos_token, "config");
  EXPECT_EQ(tokens->eos_token, "map eos");
  EXPECT_EQ(tokens->unk_token, std::nullopt);
  // Folders of the old kind, without the list of added tokens: the map is what counts.
  write("tokenizer_config.json", R"({"bos_token": "config"})");
  EXPECT_EQ(load_special_tokens(directory_)->bos_token, "map");
}

TEST_F(ChatTemplateFiles, NoFilesMeanNoTokensAndBrokenTokensAreNamed) {
  EXPECT_EQ(load_special_tokens(directory_)->variables(), Json::object());
  write("tokenizer_config.json", R"({"eos_token": 5})");
  const auto tokens = load_special_tokens(directory_);
  ASSERT_FALSE(tokens.ok());
  EXPECT_THAT(tokens.error().message, testing::HasSubstr("eos_token in"));
}

}  // namespace
}  // namespace lockstep::serving
