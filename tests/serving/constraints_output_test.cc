// Whatever tokens are drawn, of those that are allowed, the output is of the form: random walks through many
// generated schemas, read back as JSON and held against the schema by a validator of the test's own.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <random>
#include <regex>

#include "lockstep/serving/chat.h"
#include "lockstep/serving/constraints/grammar_compiler.h"
#include "lockstep/serving/constraints/schema_check.h"
#include "lockstep/serving/constraints/tool_forms.h"
#include "tests/serving/reply_reading.h"
#include "tests/source_dir.h"

namespace lockstep::serving::constraints {
namespace {

using Random = std::mt19937;

class Constrained : public testing::Test {
 protected:
  Constrained() : chat_(*ChatModel::load(std::string(LOCKSTEP_SOURCE_DIR) + "/models/tutor-qwen3.5-moe")) {
    info_.vocab = chat_.tokenizer().size() + 7;  // as of a padded head
    info_.eos_token_ids = {*chat_.tokenizer().find("<|im_end|>")};
    compiler_.emplace(chat_.tokenizer(), info_, chat_.marker_ids());
  }
  void SetUp() override {
    if (!GrammarCompiler::is_available()) GTEST_SKIP() << "this build has no grammar library";
  }

  CompiledForm compile(OutputForm::Kind kind, const std::string& text) const {
    auto form = compiler_->compile({.kind = kind, .text = text, .field = "form"});
    if (!form) throw std::runtime_error(form.error().message + ": " + text);
    return *form;
  }

  // An output of allowed tokens, drawn so that it comes to an end; empty when it did not.
  std::optional<std::vector<int32_t>> walk(const CompiledForm& form, Random& random,
                                           std::vector<Opening> openings = {}) const {
    const auto constraint = form.start(std::move(openings));
    std::vector<int32_t> output;
    while (output.size() < 1500) {
      std::vector<uint32_t> words(static_cast<size_t>(info_.vocab + 31) / 32);
      constraint->allow(words);
      std::vector<int32_t> allowed, closing;
      for (int32_t id = 0; id < info_.vocab; ++id) {
        if ((words[static_cast<size_t>(id) / 32] >> (id % 32) & 1) == 0) continue;
        allowed.push_back(id);
        if (id == info_.eos_token_ids[0] || closes(chat_.tokenizer().token_bytes(id))) closing.push_back(id);
      }
      if (allowed.empty()) throw std::logic_error("nothing is allowed after " + text_of(output));
      const bool close = !closing.empty() && (output.size() > 60 || random() % 3 == 0);
      const std::vector<int32_t>& pool = close ? closing : allowed;
      const int32_t id = pool[random() % pool.size()];
      if (!constraint->accept(id))
        throw std::logic_error("an allowed token is refused after " + text_of(output));
      if (id == info_.eos_token_ids[0]) return output;
      output.push_back(id);
    }
    return std::nullopt;
  }

  static bool closes(std::string_view bytes) {
    return bytes == "\"" || bytes == "}" || bytes == "]" || bytes == "</";
  }
  std::string text_of(const std::vector<int32_t>& ids) const {
    return chat_.tokenizer().decode(ids, SpecialTokens::kSkip);
  }

  const ChatModel chat_;
  runtime::ModelInfo info_;
  std::optional<GrammarCompiler> compiler_;
};

// ---- schemas, and what they say of a value

Json random_schema(Random& random, int depth);

Json random_object(Random& random, int depth) {
  Json schema = {{"type", "object"}};
  const std::vector<std::string> names = {"a", "b", "name", "x y", "\"q\"", "é"};
  for (const std::string& name : names)
    if (random() % 3 == 0) schema["properties"][name] = random_schema(random, depth - 1);
  for (const std::string& name : names)
    if (schema.contains("properties") && schema["properties"].contains(name) && random() % 2 == 0)
      schema["required"].push_back(name);
  if (random() % 3 == 0)
    schema["additionalProperties"] = random() % 2 == 0 ? Json(false) : random_schema(random, depth - 1);
  return schema;
}

Json random_array(Random& random, int depth) {
  Json schema = {{"type", "array"}};
  if (random() % 4 == 0)
    for (size_t i = 0; i <= random() % 2; ++i)
      schema["prefixItems"].push_back(random_schema(random, depth - 1));
  if (random() % 3 != 0) schema["items"] = random_schema(random, depth - 1);
  if (random() % 2 == 0) schema["minItems"] = random() % 3;
  if (random() % 2 == 0) schema["maxItems"] = 2 + random() % 3;
  return schema;
}

Json random_string(Random& random) {
  static const std::vector<std::string> patterns = {"^[a-z]{1,4}$",  "[A-Z][0-9]+", "(?:ab|cd)*x",
                                                    "\\d{2}-\\d{2}", "^a.c$",       "[^x]{3}",
                                                    "\\w+@\\w+",     "\\S \\S"};
  Json schema = {{"type", "string"}};
  switch (random() % 4) {
    case 0:
      schema["pattern"] = patterns[random() % patterns.size()];
      break;
    case 1:
      schema["minLength"] = random() % 4;
      schema["maxLength"] = 4 + random() % 5;
      break;
    case 2:
      schema["format"] = std::vector<std::string>{"date", "time", "date-time", "uuid", "ipv4"}[random() % 5];
      break;
    default:
      break;
  }
  return schema;
}

Json random_number(Random& random) {
  Json schema = {{"type", random() % 2 == 0 ? "integer" : "number"}};
  const int low = static_cast<int>(random() % 400) - 200;
  if (random() % 2 == 0) schema[random() % 3 == 0 ? "exclusiveMinimum" : "minimum"] = low;
  if (random() % 2 == 0)
    schema[random() % 3 == 0 ? "exclusiveMaximum" : "maximum"] = low + 2 + static_cast<int>(random() % 300);
  return schema;
}

Json random_schema(Random& random, int depth) {
  switch (random() % (depth > 0 ? 10 : 6)) {
    case 0:
    case 1:
      return random_string(random);
    case 2:
      return random_number(random);
    case 3:
      return {{"type", std::vector<std::string>{"boolean", "null", "string"}[random() % 3]}};
    case 4:
      return {{"enum", {"red", 1, nullptr, "a\"b", Json::array({1, "x"})}}};
    case 5:
      return {{"const", std::vector<Json>{"k", 4, true, Json{{"z", 1}}}[random() % 4]}};
    case 6:
      return random_array(random, depth);
    case 7:
      return {{"anyOf", {random_schema(random, depth - 1), random_schema(random, depth - 1)}}};
    default:
      return random_object(random, depth);
  }
}

bool is_of(const Json& value, const std::string& type) {
  if (type == "integer") return value.is_number() && value.get<double>() == std::floor(value.get<double>());
  if (type == "number") return value.is_number();
  return value.type_name() == type;
}

size_t num_characters(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

bool fulfils(const Json& value, const Json& schema);

bool fulfils_object(const Json& value, const Json& schema) {
  for (const Json& name : schema.value("required", Json::array()))
    if (!value.contains(name.get<std::string>())) return false;
  for (const auto& [name, member] : value.items()) {
    const bool is_declared = schema.contains("properties") && schema["properties"].contains(name);
    const Json of_member =
        is_declared ? schema["properties"][name] : schema.value("additionalProperties", Json(true));
    if (!fulfils(member, of_member)) return false;
  }
  return true;
}

bool fulfils_array(const Json& value, const Json& schema) {
  const Json prefix = schema.value("prefixItems", Json::array());
  for (size_t i = 0; i < value.size(); ++i)
    if (!fulfils(value[i], i < prefix.size() ? prefix[i] : schema.value("items", Json(true)))) return false;
  return value.size() >= schema.value("minItems", size_t{0}) &&
         value.size() <= schema.value("maxItems", size_t{1000});
}

bool fulfils_string(const std::string& value, const Json& schema) {
  static const std::map<std::string, std::string> formats = {
      {"date", R"(\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01]))"},
      {"time", R"(([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))"},
      {"date-time",
       R"(\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d))"},
      {"uuid", "[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"},
      {"ipv4", R"(((25[0-5]|2[0-4]\d|1?\d?\d)(\.|$)){4})"}};
  if (schema.contains("format") &&
      !std::regex_match(value, std::regex(formats.at(schema["format"].get<std::string>()))))
    return false;
  const bool is_ascii = std::all_of(value.begin(), value.end(), [](char c) { return (c & 0x80) == 0; });
  if (schema.contains("pattern") && is_ascii &&
      !std::regex_search(value, std::regex(schema["pattern"].get<std::string>())))
    return false;
  const size_t length = num_characters(value);
  return length >= schema.value("minLength", size_t{0}) &&
         length <= schema.value("maxLength", size_t{100'000});
}

bool fulfils(const Json& value, const Json& schema) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (schema.contains("enum"))
    return std::find(schema["enum"].begin(), schema["enum"].end(), value) != schema["enum"].end();
  if (schema.contains("const")) return schema["const"] == value;
  if (schema.contains("anyOf"))
    return std::any_of(schema["anyOf"].begin(), schema["anyOf"].end(),
                       [&](const Json& s) { return fulfils(value, s); });
  if (schema.contains("type") && !is_of(value, schema["type"].get<std::string>())) return false;
  if (value.is_object()) return fulfils_object(value, schema);
  if (value.is_array()) return fulfils_array(value, schema);
  if (value.is_string()) return fulfils_string(value.get<std::string>(), schema);
  if (!value.is_number()) return true;
  const double number = value.get<double>();
  return number >= schema.value("minimum", -1e300) && number <= schema.value("maximum", 1e300) &&
         number > schema.value("exclusiveMinimum", -1e301) &&
         number < schema.value("exclusiveMaximum", 1e301);
}

TEST_F(Constrained, EveryOutputFulfilsItsSchema) {
  const char* const samples = std::getenv("LOCKSTEP_CONSTRAINT_SAMPLES");  // for another validator to read
  std::ofstream out(samples != nullptr ? samples : "/dev/null");
  const int num_schemas = samples != nullptr ? 1000 : 150;
  int num_unfinished = 0;
  for (int seed = 0; seed < num_schemas; ++seed) {
    Random random(static_cast<unsigned>(seed));
    const Json schema = random_schema(random, 3);
    const auto enforceable = enforceable_schema(schema, "schema");
    ASSERT_TRUE(enforceable.ok()) << enforceable.error().message << to_text(schema);
    const CompiledForm form = compile(OutputForm::Kind::kJsonSchema, to_text(*enforceable));
    const auto output = walk(form, random);
    if (!output) {
      ++num_unfinished;
      continue;
    }
    const std::string text = text_of(*output);
    out << to_text({{"schema", schema}, {"output", text}}) << "\n";
    const auto value = parse_json(text);
    ASSERT_TRUE(value.ok()) << "seed " << seed << ": " << text << " of " << to_text(schema);
    EXPECT_TRUE(fulfils(*value, schema)) << "seed " << seed << ": " << text << " of " << to_text(schema);
  }
  EXPECT_LE(num_unfinished, num_schemas / 10);
}

TEST_F(Constrained, RegexesAndGrammarsHoldForTheWholeOutput) {
  Random random(3);
  for (const std::string pattern : {"[a-c]{2,5}", "(yes|no)", "\\d{3}-\\d{4}", "x*y+"}) {
    const CompiledForm form = compile(OutputForm::Kind::kRegex, pattern);
    for (int i = 0; i < 10; ++i) {
      const auto output = walk(form, random);
      if (!output) continue;
      EXPECT_TRUE(std::regex_match(text_of(*output), std::regex(pattern))) << text_of(*output);
    }
  }
  const CompiledForm form = compile(OutputForm::Kind::kGrammar, "root ::= \"a\" root \"b\" | \"c\"");
  const auto output = walk(form, random);
  ASSERT_TRUE(output.has_value());
  EXPECT_TRUE(std::regex_match(text_of(*output), std::regex("a*cb*"))) << text_of(*output);
  const auto wrong = compiler_->compile({OutputForm::Kind::kGrammar, "root ::= (", "ebnf"});
  ASSERT_FALSE(wrong.ok());
  EXPECT_TRUE(wrong.error().message.starts_with("'ebnf' cannot be enforced: EBNF parser error"))
      << wrong.error().message;
  const auto empty = compiler_->compile({OutputForm::Kind::kGrammar, "root ::= root", "ebnf"});
  ASSERT_FALSE(empty.ok());
  EXPECT_EQ(empty.error().message,
            fmt::format("'ebnf' allows no output: none of {} tokens may begin it", info_.vocab));
  EXPECT_EQ(compiler_->compile({OutputForm::Kind::kRegex, "(?!a)b", "regex"}).error().field, "regex");
}

TEST_F(Constrained, AFormBeginsBehindItsOpenings) {
  const CompiledForm form = compile(OutputForm::Kind::kRegex, "ok");
  const auto constraint = form.start({{"</think>", Opening::End::kBarred}});
  const auto allows = [&](int32_t id) {
    std::vector<uint32_t> words(static_cast<size_t>(info_.vocab + 31) / 32);
    constraint->allow(words);
    return (words[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
  };
  const auto id_of = [&](std::string_view text) { return *chat_.tokenizer().find(text); };
  EXPECT_TRUE(allows(id_of("x")));
  EXPECT_FALSE(allows(info_.eos_token_ids[0]));
  for (const std::string_view text : {"x", "o", "</think>"}) EXPECT_TRUE(constraint->accept(id_of(text)));
  EXPECT_FALSE(allows(id_of("x")));
  EXPECT_TRUE(allows(id_of("o")));
  EXPECT_TRUE(allows(id_of("\n")));
  for (const std::string_view text : {"\n", "o", "k"}) EXPECT_TRUE(constraint->accept(id_of(text))) << text;
  EXPECT_FALSE(allows(id_of("k")));
  EXPECT_TRUE(allows(info_.eos_token_ids[0]));
}

TEST(ToolForms, SchemasAreBoundedTogether) {
  Json tools = Json::array();
  for (int i = 0; i < 20; ++i)
    tools.push_back({{"type", "function"},
                     {"function",
                      {{"name", std::to_string(i)},
                       {"parameters", {{"type", "object"}, {"description", std::string(60'000, 'x')}}}}}});
  const CallStyle style{.format = tool_parsing::Format::kLlama,
                        .template_source = {},
                        .token_id = [](std::string_view) { return std::optional<int32_t>(); }};
  const auto all = required_calls(tools, style, HowMany::kOneOrMore);
  ASSERT_FALSE(all.ok());
  EXPECT_EQ(all.error().field, "tools");
  while (tools.size() > 17) tools.erase(tools.size() - 1);
  EXPECT_TRUE(required_calls(tools, style, HowMany::kOneOrMore).ok());
}

// Calls that must be made are read back as calls, with arguments that the schema allows.
TEST_F(Constrained, RequiredCallsReadBackAsCalls) {
  const Json tools =
      *parse_json(R"([{"type":"function","function":{"name":"f","strict":true,"parameters":{"type":"object",
    "properties":{"n":{"type":"integer","minimum":1,"maximum":99},"s":{"enum":["a","b"]}},"required":["n"],
    "additionalProperties":false}}},{"type":"function","function":{"name":"g"}}])");
  using tool_parsing::Format;
  for (const auto& [format, source] : {std::pair(Format::kTagged, "<function="),
                                       {Format::kTagged, ""},
                                       {Format::kDeepSeek, "```json"},
                                       {Format::kDeepSeek, ""},
                                       {Format::kGlm, ""},
                                       {Format::kDsml, ""},
                                       {Format::kMistral, ""},
                                       {Format::kLlama, ""},
                                       {Format::kHarmony, ""}}) {
    const CallStyle style{
        .format = format, .template_source = source, .token_id = [&](std::string_view text) {
          const auto id = chat_.tokenizer().find(text);
          return id && chat_.tokenizer().is_added(*id) ? id : std::nullopt;
        }};
    auto wanted = required_calls(tools, style, HowMany::kOneOrMore);
    ASSERT_TRUE(wanted.ok()) << wanted.error().message;
    const CompiledForm form = compile(wanted->form.kind, wanted->form.text);
    for (unsigned seed = 0; seed < 8; ++seed) {
      Random random(seed);
      const auto output = walk(form, random);
      if (!output) continue;
      ReplyOptions options{.tools = format, .tool_definitions = tools};
      if (format == Format::kHarmony) options.reasoning = reasoning::Format::kHarmony;
      options.markers = markers_for(options, MarkerTokens::kNotHeld);
      for (Marker& marker : options.markers) marker.token_id = style.token_id(marker.text);
      ReplyReader reader(chat_.tokenizer(), options);
      Reply reply;
      for (const int32_t id : *output) add(reader.push(id), reply);
      add(reader.finish(), reply);
      const std::string text = chat_.tokenizer().decode(*output, SpecialTokens::kKeep);
      ASSERT_FALSE(reply.calls.empty()) << text;
      EXPECT_EQ(reply.content, "") << text;
      for (const Call& call : reply.calls) {
        EXPECT_EQ(call.num_ends, 1) << text;
        const Json arguments = *parse_json(call.arguments);
        const Json schema = call.name == "f" ? tools[0]["function"]["parameters"] : Json{{"type", "object"}};
        EXPECT_TRUE(fulfils(arguments, schema)) << call.arguments << " of " << to_text(Json(text));
      }
    }
  }
}

}  // namespace
}  // namespace lockstep::serving::constraints
