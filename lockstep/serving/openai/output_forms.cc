#include "lockstep/serving/openai/output_forms.h"

#include <string>
#include <utility>
#include <vector>

#include "lockstep/serving/constraints/schema_check.h"

namespace lockstep::serving::openai {
namespace {

using constraints::OutputForm;

constexpr size_t kMaxChoiceBytes = size_t{64} << 10;

class FormReader {
 public:
  explicit FormReader(Fields& fields) : fields_(fields) {}

  std::optional<OutputForm> read() {
    read_response_format();
    read_schema(fields_, "json_schema");
    read_text(fields_, "regex", OutputForm::Kind::kRegex);
    read_text(fields_, "ebnf", OutputForm::Kind::kGrammar);
    read_schema(fields_, "guided_json");
    read_text(fields_, "guided_regex", OutputForm::Kind::kRegex);
    read_text(fields_, "guided_grammar", OutputForm::Kind::kGrammar);
    read_choice(fields_, "guided_choice");
    if (const Json* structured = fields_.object("structured_outputs")) {
      Fields inner(*structured, "structured_outputs");
      read_schema(inner, "json");
      read_text(inner, "regex", OutputForm::Kind::kRegex);
      read_text(inner, "grammar", OutputForm::Kind::kGrammar);
      read_choice(inner, "choice");
      if (inner.flag("json_object").value_or(false)) add_object(inner.path_of("json_object"));
      for (const char* key : {"structural_tag", "whitespace_pattern"})
        if (inner.has(key)) inner.refuse(key, "is not supported");
      if (!inner.ok()) fields_.complain(inner.status().error());
    }
    for (const char* key : {"guided_options", "grammar", "structural_tag", "guided_whitespace_pattern"})
      if (fields_.has(key)) fields_.refuse(key, "is not supported; give response_format, regex or ebnf");
    return std::move(form_);
  }

 private:
  void add(OutputForm::Kind kind, std::string text, std::string field) {
    if (form_) return fields_.refuse(field, fmt::format("may not be given together with '{}'", form_->field));
    form_ = OutputForm{.kind = kind, .text = std::move(text), .field = std::move(field)};
  }

  void add_schema(const Json& schema, const std::string& field) {
    auto enforceable = constraints::enforceable_schema(schema, field);
    if (!enforceable) return fields_.complain(enforceable.error());
    add(OutputForm::Kind::kJsonSchema, to_text(*enforceable), field);
  }

  void add_object(const std::string& field) { add_schema({{"type", "object"}}, field); }

  void read_response_format() {
    const Json* format = fields_.object("response_format");
    if (format == nullptr) return;
    Fields inner(*format, "response_format");
    const auto type = inner.text("type");
    if (inner.ok() && !type)
      inner.refuse("type", "is missing; it must be \"text\", \"json_object\" or \"json_schema\"");
    if (type && *type == "json_schema") {
      read_json_schema(inner);
    } else if (type && *type == "json_object") {
      add_object("response_format");
    } else if (type && *type != "text") {
      inner.refuse("type",
                   fmt::format("is \"{}\"; it must be \"text\", \"json_object\" or \"json_schema\"", *type));
    }
    if (!inner.ok()) fields_.complain(inner.status().error());
  }

  void read_json_schema(Fields& format) {
    const Json* declared = format.object("json_schema");
    if (declared == nullptr) return format.refuse("json_schema", "is missing");
    Fields inner(*declared, format.path_of("json_schema"));
    inner.text("name");
    inner.text("description");
    inner.flag("strict");
    const Json* schema = inner.find("schema");
    if (schema == nullptr) {
      inner.refuse("schema", "is missing");
    } else {
      add_schema(*schema, inner.path_of("schema"));
    }
    if (!inner.ok()) format.complain(inner.status().error());
  }

  // A schema as an object or as its text.
  void read_schema(Fields& fields, const char* key) {
    const Json* value = fields.find(key);
    if (value == nullptr) return;
    if (!value->is_string()) return add_schema(*value, fields.path_of(key));
    const auto parsed = parse_json(value->get_ref<const std::string&>());
    if (!parsed) return fields.refuse(key, fmt::format("is no JSON: {}", parsed.error().message));
    add_schema(*parsed, fields.path_of(key));
  }

  void read_text(Fields& fields, const char* key, OutputForm::Kind kind) {
    if (auto text = fields.text(key)) add(kind, std::move(*text), fields.path_of(key));
  }

  void read_choice(Fields& fields, const char* key) {
    const Json* choices = fields.array(key);
    if (choices == nullptr) return;
    std::string grammar = "root ::= ";
    for (size_t i = 0; i < choices->size(); ++i) {
      if (!(*choices)[i].is_string() || (*choices)[i].get_ref<const std::string&>().empty())
        return fields.refuse(fmt::format("{}[{}]", key, i), "must be text of one or more characters");
      grammar += (i == 0 ? "" : " | ") + to_text((*choices)[i]);
    }
    if (choices->empty() || grammar.size() > kMaxChoiceBytes)
      return fields.refuse(key,
                           fmt::format("must hold one or more texts of {} bytes at most", kMaxChoiceBytes));
    add(OutputForm::Kind::kGrammar, std::move(grammar), fields.path_of(key));
  }

  Fields& fields_;
  std::optional<OutputForm> form_;
};

}  // namespace

std::optional<constraints::OutputForm> read_output_form(Fields& fields) { return FormReader(fields).read(); }

}  // namespace lockstep::serving::openai
