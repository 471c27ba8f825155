// Where a model folder keeps its chat template and its special tokens.
#include <algorithm>
#include <array>
#include <utility>

#include "lockstep/base/file.h"
#include "lockstep/serving/chat_template/chat_template.h"
#include "lockstep/serving/chat_template/special_tokens.h"

namespace lockstep::serving {
namespace {

constexpr size_t kMaxFileBytes = size_t{64} << 20;

bool is_there(const std::filesystem::path& path) {
  std::error_code failure;
  return std::filesystem::is_regular_file(path, failure);
}

// An object, or null where the file is not there.
Result<Json> read_object(const std::filesystem::path& path) {
  if (!is_there(path)) return Json();
  auto text = read_file(path, kMaxFileBytes);
  if (!text) return text.error();
  auto document = parse_json(*text);
  if (!document) return invalid_argument(path.string(), "{}: {}", path.string(), document.error().message);
  if (!document->is_object())
    return invalid_argument(path.string(), "{} holds no JSON object", path.string());
  return document;
}

const Json* find(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found != object.end() ? &*found : nullptr;
}

std::string names_of(const Json& templates) {
  std::string names;
  for (const Json& entry : templates)
    if (const Json* name = find(entry, "name"); name != nullptr && name->is_string())
      names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", name->get_ref<const std::string&>());
  return names;
}

// One of a list of {name, template}.
Result<std::string> pick(const Json& templates, std::string_view wanted, const std::string& file) {
  for (const Json& entry : templates) {
    const Json* name = find(entry, "name");
    const Json* source = find(entry, "template");
    if (name == nullptr || source == nullptr || !name->is_string() || !source->is_string())
      return invalid_argument(
          file, "chat_template in {} must be a list of objects with \"name\" and \"template\"", file);
    if (name->get_ref<const std::string&>() == wanted) return source->get<std::string>();
  }
  return Error{
      ErrorCode::kNotFound,
      fmt::format("{} has no chat template named \"{}\"; it has {}", file, wanted, names_of(templates)),
      file};
}

// The source in one JSON file, or an empty text where it has none.
Result<std::string> source_in(const std::filesystem::path& path, std::string_view name) {
  auto document = read_object(path);
  if (!document) return document.error();
  const Json* value = find(*document, "chat_template");
  if (value == nullptr || value->is_null()) return std::string();
  if (value->is_array()) return pick(*value, name.empty() ? "default" : name, path.string());
  if (!value->is_string())
    return invalid_argument(path.string(), "chat_template in {} is neither a string nor a list",
                            path.string());
  return value->get<std::string>();
}

Error no_template(const std::filesystem::path& directory) {
  return {ErrorCode::kNotFound,
          fmt::format("{} has no chat template: no chat_template.jinja, and no \"chat_template\" in "
                      "tokenizer_config.json",
                      directory.string()),
          directory.string()};
}

Result<std::string> find_source(const std::filesystem::path& directory, std::string_view name) {
  const bool is_file_name = !name.empty() && name.find_first_of("/\\") == std::string_view::npos;
  if (is_file_name) {
    const auto named = directory / "additional_chat_templates" / (std::string(name) + ".jinja");
    if (is_there(named)) return read_file(named, kMaxFileBytes);
  }
  const auto main = directory / "chat_template.jinja";
  if (is_there(main) && (name.empty() || name == "default")) return read_file(main, kMaxFileBytes);
  for (const char* file : {"tokenizer_config.json", "chat_template.json"}) {
    auto source = source_in(directory / file, name);
    if (!source || !source->empty()) return source;
  }
  return no_template(directory);
}

Result<std::optional<std::string>> token_text(const Json* value, std::string_view name,
                                              const std::string& file) {
  if (value == nullptr || value->is_null()) return std::optional<std::string>();
  if (value->is_object()) value = find(*value, "content");
  if (value == nullptr || !value->is_string())
    return invalid_argument(file, "{} in {} is neither a string nor an object with \"content\"", name, file);
  return std::optional(value->get<std::string>());
}

}  // namespace

Result<ChatTemplate> ChatTemplate::load(const std::filesystem::path& directory, std::string_view name) {
  auto source = find_source(directory, name);
  if (!source) return source.error();
  return parse(std::move(*source));
}

Json SpecialTokenTexts::variables() const {
  Json out = Json::object();
  if (bos_token) out["bos_token"] = *bos_token;
  if (eos_token) out["eos_token"] = *eos_token;
  if (pad_token) out["pad_token"] = *pad_token;
  if (unk_token) out["unk_token"] = *unk_token;
  return out;
}

Result<SpecialTokenTexts> load_special_tokens(const std::filesystem::path& directory) {
  const auto config_path = directory / "tokenizer_config.json";
  const auto map_path = directory / "special_tokens_map.json";
  auto config = read_object(config_path);
  if (!config) return config.error();
  auto map = read_object(map_path);
  if (!map) return map.error();

  SpecialTokenTexts tokens;
  const std::array<std::pair<const char*, std::optional<std::string>*>, 4> fields = {
      {{"bos_token", &tokens.bos_token},
       {"eos_token", &tokens.eos_token},
       {"pad_token", &tokens.pad_token},
       {"unk_token", &tokens.unk_token}}};
  const bool config_is_complete = find(*config, "added_tokens_decoder") != nullptr;
  for (const auto& [name, field] : fields) {
    const Json* in_config = find(*config, name);
    const Json* in_map = find(*map, name);
    const bool use_map = in_map != nullptr && (in_config == nullptr || !config_is_complete);
    auto text = use_map ? token_text(in_map, name, map_path.string())
                        : token_text(in_config, name, config_path.string());
    if (!text) return text.error();
    *field = std::move(*text);
  }
  return tokens;
}

}  // namespace lockstep::serving
