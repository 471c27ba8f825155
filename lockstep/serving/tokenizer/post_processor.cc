#include "lockstep/serving/tokenizer/post_processor.h"

#include "lockstep/serving/tokenizer/json_fields.h"

namespace lockstep::serving::tokenizing {
namespace {

Status append_special_ids(const Json& special_tokens, const std::string& name, int num_ids,
                          const std::string& path, std::vector<int32_t>& out) {
  JsonFields all(special_tokens, path);
  JsonFields entry(all.any(name), all.path_of(name));
  const Json& ids = entry.array("ids");
  for (const JsonFields* read : {&all, &entry})
    if (!read->ok()) return read->error();
  for (const Json& id : ids) {
    if (!id.is_number_integer() || id.get<int64_t>() < 0 || id.get<int64_t>() >= num_ids)
      return invalid_argument(entry.path_of("ids"), "{} holds {}: it must hold ids between 0 and {}",
                              entry.path_of("ids"), excerpt(id), num_ids - 1);
    out.push_back(id.get<int32_t>());
  }
  return Done{};
}

Result<PromptFrame> read_template(const Json& value, int num_ids, const std::string& path) {
  JsonFields fields(value, path);
  const Json& single = fields.array("single");
  if (!fields.ok()) return fields.error();
  PromptFrame frame;
  bool is_after = false;
  for (size_t i = 0; i < single.size(); ++i) {
    JsonFields part(single[i], fmt::format("{}.single[{}]", path, i));
    if (!part.ok()) return part.error();
    if (!part.any("Sequence").is_null()) {
      if (is_after) return invalid_argument(part.path(), "{} places the text a second time", part.path());
      is_after = true;
      continue;
    }
    JsonFields special(part.any("SpecialToken"), part.path_of("SpecialToken"));
    const std::string name = special.text("id");
    if (!special.ok()) return special.error();
    Status added =
        append_special_ids(fields.any("special_tokens"), name, num_ids, fields.path_of("special_tokens"),
                           is_after ? frame.after : frame.before);
    if (!added) return added.error();
  }
  if (!is_after)
    return invalid_argument(path, "{}.single of {} parts does not place the text", path, single.size());
  return frame;
}

}  // namespace

Result<PromptFrame> read_post_processor(const Json& value, int num_ids, const std::string& path) {
  const auto type = component_type(value, path);
  if (!type) return type.error();
  if (type->empty() || *type == "ByteLevel") return PromptFrame{};
  if (*type == "TemplateProcessing") return read_template(value, num_ids, path);
  if (*type != "Sequence")
    return invalid_argument(
        path,
        "{}: the post-processor \"{}\" is not supported (supported: ByteLevel, TemplateProcessing, "
        "Sequence)",
        path, *type);
  JsonFields fields(value, path);
  const Json& parts = fields.array("processors");
  if (!fields.ok()) return fields.error();
  PromptFrame frame;
  for (size_t i = 0; i < parts.size(); ++i) {
    auto part = read_post_processor(parts[i], num_ids, fmt::format("{}.processors[{}]", path, i));
    if (!part) return part.error();
    frame.before.insert(frame.before.begin(), part->before.begin(), part->before.end());
    frame.after.insert(frame.after.end(), part->after.begin(), part->after.end());
  }
  return frame;
}

}  // namespace lockstep::serving::tokenizing
