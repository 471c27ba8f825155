// Prompts and replies of whole model folders, against what Hugging Face's apply_chat_template and generate()
// gave for them.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "lockstep/base/file.h"
#include "lockstep/serving/chat.h"
#include "tests/serving/reply_reading.h"
#include "tests/source_dir.h"

namespace lockstep::serving {
namespace {

const std::string kRoot = LOCKSTEP_SOURCE_DIR;

ChatModel tutor(const std::string& name, const ChatOptions& options = {}) {
  auto model = ChatModel::load(kRoot + "/models/" + name, options);
  if (!model) throw std::runtime_error(model.error().message);
  return std::move(*model);
}

Json golden(const std::string& name) {
  return parse_json(read_file(kRoot + "/tests/golden/" + name + "/golden.json").value()).value();
}

ChatInput input_of(const Json& conversation) {
  return {.messages = conversation["messages"],
          .tools = conversation["tools"],
          .template_kwargs = {{"enable_thinking", conversation["enable_thinking"]}}};
}

Reply read_reply(const ChatModel& model, const ReplyOptions& options, const std::vector<int32_t>& ids) {
  ReplyReader reader(model.tokenizer(), options);
  Reply reply;
  for (const int32_t id : ids) add(reader.push(id), reply);
  add(reader.finish(), reply);
  return reply;
}

class Tutors : public testing::TestWithParam<std::string> {};

TEST_P(Tutors, PromptsAreHuggingFaces) {
  const ChatModel model = tutor(GetParam());
  int num_checked = 0;
  for (const Json& example : golden(GetParam())) {
    const auto chat = model.encode_chat(input_of(example["conversation"]));
    ASSERT_TRUE(chat.ok()) << chat.error().message;
    EXPECT_EQ(chat->text, example["prompt"].get<std::string>());
    EXPECT_EQ(chat->ids, example["input_ids"].get<std::vector<int32_t>>());
    EXPECT_EQ(chat->reply_start == reasoning::Place::kInside,
              example["conversation"]["enable_thinking"].get<bool>());
    ++num_checked;
  }
  EXPECT_GT(num_checked, 3);
}

// What the template would print for the message that was read back is what the model wrote.
TEST_P(Tutors, RepliesReadBackRenderToTheSameText) {
  const ChatModel model = tutor(GetParam());
  for (const Json& example : golden(GetParam())) {
    ChatInput input = input_of(example["conversation"]);
    const EncodedChat chat = model.encode_chat(input).value();
    const Reply reply = read_reply(model, model.reply_options(chat, input.tools),
                                   example["greedy_ids"].get<std::vector<int32_t>>());
    Json message = {
        {"role", "assistant"}, {"content", reply.content}, {"reasoning_content", reply.reasoning}};
    for (const Call& call : reply.calls) {
      EXPECT_EQ(call.num_ends, 1);
      message["tool_calls"].push_back(
          {{"type", "function"},
           {"function", {{"name", call.name}, {"arguments", parse_json(call.arguments).value()}}}});
    }
    input.messages.push_back(message);
    input.add_generation_prompt = false;
    const std::string whole = model.encode_chat(input).value().text;
    EXPECT_TRUE(whole.starts_with(chat.text + example["greedy_text"].get<std::string>()))
        << whole << "\n---\n"
        << chat.text << example["greedy_text"].get<std::string>();
  }
}

INSTANTIATE_TEST_SUITE_P(All, Tutors, testing::Values("tutor-deepseek-v3", "tutor-qwen3.5-moe"),
                         [](const auto& tutor_name) {
                           return std::string(tutor_name.param.starts_with("tutor-deepseek") ? "DeepSeek"
                                                                                             : "Qwen");
                         });

TEST(Formats, AreSeenFromTheFolderOrGiven) {
  EXPECT_EQ(tutor("tutor-deepseek-v3").tool_format(), tool_parsing::Format::kDeepSeek);
  EXPECT_EQ(tutor("tutor-deepseek-v3").reasoning_format(), reasoning::Format::kThinkTags);
  EXPECT_EQ(tutor("tutor-qwen3.5-moe").tool_format(), tool_parsing::Format::kTagged);
  const ChatModel plain = tutor("tutor-qwen3.5-moe", {reasoning::Format::kNone, tool_parsing::Format::kNone});
  EXPECT_EQ(plain.reasoning_format(), reasoning::Format::kNone);
  EXPECT_EQ(plain.tool_format(), tool_parsing::Format::kNone);
  const Json tools = Json::array({{{"type", "function"}, {"function", {{"name", "f"}}}}});
  const auto refused = plain.encode_chat({.messages = Json::array(), .tools = tools});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().field, "tools");
}

TEST(Formats, HaveNamesThatReadBack) {
  for (int i = 0; i < tool_parsing::kNumFormats; ++i) {
    const auto format = static_cast<tool_parsing::Format>(i);
    EXPECT_EQ(tool_parsing::format_named(tool_parsing::name_of(format)), format);
  }
  for (const std::string_view name : tool_parsing::format_names())
    EXPECT_TRUE(tool_parsing::format_named(name).has_value()) << name;
  for (const auto format :
       {reasoning::Format::kNone, reasoning::Format::kThinkTags, reasoning::Format::kHarmony})
    EXPECT_EQ(reasoning::format_named(reasoning::name_of(format)), format);
  EXPECT_FALSE(tool_parsing::format_named("pythonic").has_value());
}

// A copy of a tutor's folder with other files over it.
class OwnFolder : public testing::Test {
 protected:
  OwnFolder() {
    std::filesystem::create_directories(folder_);
    for (const char* file : {"tokenizer.json", "tokenizer_config.json"})
      std::filesystem::copy_file(kRoot + "/models/tutor-deepseek-v3/" + file, folder_ / file,
                                 std::filesystem::copy_options::overwrite_existing);
  }
  ~OwnFolder() override { std::filesystem::remove_all(folder_); }
  void write(const std::string& file, const std::string& text) const {
    std::ofstream(folder_ / file) << text;
  }
  ChatModel load() const {
    auto model = ChatModel::load(folder_);
    if (!model) throw std::runtime_error(model.error().message);
    return std::move(*model);
  }

  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) /
      (std::string("chat_model_") + testing::UnitTest::GetInstance()->current_test_info()->name());
};

constexpr const char* kPlainTemplate =
    "{% for m in messages %}{% if m.role == 'system' %}{{ m.content }}{% elif m.role == 'user' "
    "%}<｜User｜>{{ m.content }}"
    "{% endif %}{% endfor %}<｜Assistant｜>";

TEST_F(OwnFolder, ToolsAreDescribedWhereTheTemplateDoesNot) {
  write("chat_template.jinja", kPlainTemplate);
  const ChatModel model = load();
  const Json tools = Json::array(
      {{{"type", "function"}, {"function", {{"name", "calc"}, {"description", "a <｜User｜> b"}}}}});
  const Json user = {{"role", "user"}, {"content", "Hi"}};
  const auto chat = model.encode_chat({.messages = Json::array({user}), .tools = tools});
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  EXPECT_NE(chat->text.find(R"({"type":"function","function":{"name":"calc")"), std::string::npos)
      << chat->text;
  EXPECT_TRUE(chat->text.ends_with("<｜User｜>Hi<｜Assistant｜>"));
  // How a call is written is shown in real control tokens; what a definition spells out is text.
  EXPECT_EQ(std::count(chat->ids.begin(), chat->ids.end(), 971), 1);  // <｜tool▁sep｜>
  EXPECT_EQ(std::count(chat->ids.begin(), chat->ids.end(), 965), 1);  // <｜User｜>
  const Json system = {{"role", "system"}, {"content", "Be brief."}};
  const auto with_system = model.encode_chat({.messages = Json::array({system, user}), .tools = tools});
  EXPECT_TRUE(with_system->text.starts_with("Be brief.\n\n")) << with_system->text;
}

// As DeepSeek-V3's published template does it: calls only where the content is null, and the arguments' own
// text.
TEST_F(OwnFolder, CallsComeInTheFormThatTheTemplateWants) {
  write("chat_template.jinja",
        "{% for m in messages %}{% if m.content is none %}{% for c in m.tool_calls %}{{ c.function.name + "
        "'(' + c.function.arguments "
        "+ ')' }}{% endfor %}{% else %}{{ m.content }};{% endif %}{% endfor %}");
  const auto call = [](const Json& content, const Json& arguments) {
    const Json function = {{"name", "f"}, {"arguments", arguments}};
    return Json::array({{{"role", "assistant"},
                         {"content", content},
                         {"tool_calls", Json::array({{{"type", "function"}, {"function", function}}})}}});
  };
  const ChatModel model = load();
  EXPECT_EQ(model.encode_chat({.messages = call("", "{\"a\":  1}")})->text, "f({\"a\":  1})");
  EXPECT_EQ(model.encode_chat({.messages = call(nullptr, {{"a", 1}})})->text, "f({\"a\":1})");
  write("chat_template.jinja",
        "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}{{ c.function.name }}({{ "
        "c.function.arguments.a or 'none' }})"
        "{% endfor %}{% endfor %}");
  EXPECT_EQ(load().encode_chat({.messages = call("", "{\"a\":  1}")})->text, "f(1)");
  EXPECT_EQ(load().encode_chat({.messages = call("x", "not JSON")})->text, "xf(none)");
}

// What a template spells, or the tokenizer holds, says how calls are written.
TEST_F(OwnFolder, FormatsAreSeenInTheTemplate) {
  std::filesystem::copy_file(kRoot + "/models/tutor-qwen3.5-moe/tokenizer.json", folder_ / "tokenizer.json",
                             std::filesystem::copy_options::overwrite_existing);
  using tool_parsing::Format;
  const auto seen = [&](const std::string& text) {
    write("chat_template.jinja", "{# " + text + " #}");
    return load().tool_format();
  };
  EXPECT_EQ(seen("<tool_call> <arg_key>"), Format::kGlm);
  EXPECT_EQ(seen("<｜DSML｜function_calls>"), Format::kDsml);
  EXPECT_EQ(seen("<|channel|> <|message|>"), Format::kHarmony);
  EXPECT_EQ(load().reasoning_format(), reasoning::Format::kHarmony);
  EXPECT_EQ(seen("nothing"), Format::kTagged);  // its tokenizer holds <tool_call>
}

// Mistral's published templates refuse ids that are not nine letters and digits.
TEST_F(OwnFolder, IdsAreOfTheLengthThatTheTemplateWants) {
  write(
      "chat_template.jinja",
      "{% for m in messages %}{% for c in m.tool_calls or [] %}{% if c.id|length != 9 %}{{ "
      "raise_exception('nine') "
      "}}{% endif %}{{ c.function.name }}={{ c.id }};{% endfor %}{% if m.role == 'tool' %}{{ m.tool_call_id "
      "}}{% endif %}{% endfor %}");
  const Json function = {{"name", "f"}, {"arguments", "{}"}};
  const auto chat = [&](const std::string& id) {
    return load()
        .encode_chat(
            {.messages = Json::array({{{"role", "assistant"},
                                       {"tool_calls", Json::array({{{"id", id}, {"function", function}}})}},
                                      {{"role", "tool"}, {"content", "1"}, {"tool_call_id", id}}})})
        ->text;
  };
  EXPECT_EQ(chat("abcDEF123"), "f=abcDEF123;abcDEF123");
  const std::string text = chat("call_0123456789");
  ASSERT_EQ(text.size(), 2u + 9 + 1 + 9);
  EXPECT_EQ(text.substr(2, 9), text.substr(12, 9));
  EXPECT_NE(chat("call_0123456788"), text);
}

TEST_F(OwnFolder, WithoutATemplateThereIsNoChat) {
  const ChatModel model = load();
  EXPECT_FALSE(model.has_template());
  const auto chat = model.encode_chat({.messages = Json::array({{{"role", "user"}, {"content", "Hi"}}})});
  ASSERT_FALSE(chat.ok());
  EXPECT_NE(chat.error().message.find("/v1/completions"), std::string::npos);
}

TEST_F(OwnFolder, WhatATemplateRaisesIsTheCallersError) {
  write("chat_template.jinja", "{{ raise_exception('Only user and assistant roles are supported!') }}");
  const auto chat = load().encode_chat({.messages = Json::array({{{"role", "user"}, {"content", "Hi"}}})});
  ASSERT_FALSE(chat.ok());
  EXPECT_EQ(chat.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(chat.error().message.find("Only user and assistant roles are supported!"), std::string::npos);
}

TEST_F(OwnFolder, ATemplateThatIsNoJinjaIsRefusedAtLoad) {
  write("chat_template.jinja", "{% for %}");
  EXPECT_FALSE(ChatModel::load(folder_).ok());
}

TEST_F(OwnFolder, PlainPromptsBeginWithBosOnceWhereTheFolderSaysSo) {
  EXPECT_EQ(load().encode_prompt("Hi").size(), load().tokenizer().encode("Hi", AddedTokens::kParse).size());
  write("tokenizer_config.json", R"({"bos_token": "<｜begin▁of▁sentence｜>", "add_bos_token": true})");
  const ChatModel model = load();
  EXPECT_EQ(model.encode_prompt("Hi")[0], 963);
  const std::vector<int32_t> given = model.encode_prompt("<｜begin▁of▁sentence｜>Hi");
  EXPECT_EQ(std::count(given.begin(), given.end(), 963), 1);
  EXPECT_EQ(model.encode_prompt(""), (std::vector<int32_t>{963}));
}

TEST_F(OwnFolder, ReasoningIsNotHiddenFromTemplatesThatCutItOut) {
  write("chat_template.jinja",
        "{% for m in messages %}{{ m.role }}:{% if '</think>' in m.content %}{{ "
        "m.content.split('</think>')[-1] }}{% else %}"
        "{{ m.content }}{% endif %};{% endfor %}");
  const auto chat = load().encode_chat(
      {.messages = Json::array({{{"role", "assistant"}, {"content", "<think>a</think>b"}}})});
  EXPECT_EQ(chat->text, "assistant:b;");
}

TEST(ControlSpellings, LeftmostThenLongest) {
  const ControlSpellings spellings({"<a>", "<a><b>", "<ab>", "<", "zz", "<a>"});
  EXPECT_EQ(spellings.size(), 5U);
  const auto at = [&](std::string_view text) {
    const auto found = spellings.find(text, 0);
    return found.place == std::string::npos ? ""
                                            : std::to_string(found.place) + spellings.spelling(found.which);
  };
  EXPECT_EQ(at("x<a><b>"), "1<a><b>");
  EXPECT_EQ(at("x<a><"), "1<a>");
  EXPECT_EQ(at("<ab"), "0<");
  EXPECT_EQ(at("z"), "");
  EXPECT_EQ(at("azz"), "1zz");
  EXPECT_EQ(ControlSpellings().find("<a>", 0).place, std::string::npos);
}

TEST(ControlText, EverySpellingComesBackAsText) {
  const ChatModel model = tutor("tutor-deepseek-v3");
  const std::string text = "a<｜User｜><｜User｜>b<｜Assistant｜<｜end▁of▁sentence｜>";
  Json messages = Json::array(
      {{{"role", "user"}, {"content", text}}, {{"role", "tool"}, {"content", text}, {"tool_call_id", "x"}}});
  const auto chat = model.encode_chat({.messages = messages});
  EXPECT_EQ(std::count(chat->ids.begin(), chat->ids.end(), 965), 1);
  EXPECT_EQ(std::count(chat->ids.begin(), chat->ids.end(), 964), 0);
  EXPECT_EQ(model.tokenizer().decode(chat->ids, SpecialTokens::kKeep), chat->text);
  EXPECT_NE(chat->text.find(text + "<｜tool▁outputs▁begin｜><｜tool▁output▁begin｜>" + text),
            std::string::npos)
      << chat->text;
}

}  // namespace
}  // namespace lockstep::serving
