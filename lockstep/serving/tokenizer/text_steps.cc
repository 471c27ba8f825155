#include "lockstep/serving/tokenizer/text_steps.h"

#include "lockstep/serving/tokenizer/json_fields.h"
#include "lockstep/serving/tokenizer/utf8.h"

namespace lockstep::serving::tokenizing {

Result<StringReplace> read_string_replace(const Json& value, const std::string& path) {
  JsonFields fields(value, path);
  StringReplace replace;
  replace.to = fields.text("content");
  JsonFields pattern(fields.any("pattern"), fields.path_of("pattern"));
  if (!pattern.any("Regex").is_null())
    return invalid_argument(pattern.path_of("Regex"), "{} is {}: only a String is supported here",
                            pattern.path_of("Regex"), excerpt(pattern.any("Regex")));
  replace.from = pattern.text("String");
  for (const JsonFields* read : {&fields, &pattern})
    if (!read->ok()) return read->error();
  if (replace.from.empty())
    return invalid_argument(pattern.path_of("String"), "{} has 0 characters: it must have one or more",
                            pattern.path_of("String"));
  return replace;
}

Result<MetaspaceOptions> read_metaspace(const Json& value, const std::string& path) {
  JsonFields fields(value, path);
  MetaspaceOptions options;
  options.replacement = fields.text("replacement");
  options.splits = fields.flag_or("split", true);
  const std::string scheme = fields.text_or("prepend_scheme", "always");
  const bool adds_prefix = fields.flag_or("add_prefix_space", true);
  if (!fields.ok()) return fields.error();
  if (options.replacement.empty() || boundary_after(options.replacement, 0) != options.replacement.size())
    return invalid_argument(fields.path_of("replacement"), "{} has {} bytes: it must be one character",
                            fields.path_of("replacement"), options.replacement.size());
  if (scheme != "always" && scheme != "first" && scheme != "never")
    return invalid_argument(fields.path_of("prepend_scheme"),
                            "{} is \"{}\": it must be always, first or never",
                            fields.path_of("prepend_scheme"), scheme);
  if (scheme == "first") options.prepend = MetaspacePrepend::kFirst;
  if (scheme == "never" || !adds_prefix) options.prepend = MetaspacePrepend::kNever;
  return options;
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  size_t at = 0;
  for (size_t found = text.find(from); found != std::string_view::npos; found = text.find(from, at)) {
    out.append(text.substr(at, found - at)).append(to);
    at = found + from.size();
  }
  return out.append(text.substr(at));
}

}  // namespace lockstep::serving::tokenizing
