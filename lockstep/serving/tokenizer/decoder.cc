#include "lockstep/serving/tokenizer/decoder.h"

#include <algorithm>
#include <cctype>

#include "lockstep/serving/tokenizer/byte_alphabet.h"
#include "lockstep/serving/tokenizer/json_fields.h"
#include "lockstep/serving/tokenizer/text_steps.h"
#include "lockstep/serving/tokenizer/utf8.h"

namespace lockstep::serving::tokenizing {
namespace {

std::optional<int> hex_digit(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return std::nullopt;
}

bool is_one_character(const std::string& text) {
  return !text.empty() && boundary_after(text, 0) == text.size();
}

}  // namespace

std::optional<uint8_t> byte_of_token(std::string_view spelling) {
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || spelling[5] != '>') return std::nullopt;
  const auto high = hex_digit(spelling[3]), low = hex_digit(spelling[4]);
  if (!high || !low) return std::nullopt;
  return static_cast<uint8_t>(*high * 16 + *low);
}

std::string byte_token(uint8_t byte) { return fmt::format("<0x{:02X}>", byte); }

Result<TokenDecoder> TokenDecoder::read(const Json& value, const std::string& path) {
  const auto type = component_type(value, path);
  if (!type) return type.error();
  TokenDecoder decoder;
  if (*type != "Sequence") {
    if (Status added = decoder.add(value, *type, path); !added) return added.error();
    return decoder;
  }
  JsonFields fields(value, path);
  const Json& parts = fields.array("decoders");
  if (!fields.ok()) return fields.error();
  if (parts.empty())
    return invalid_argument(path, "{} is a Sequence of 0 decoders: tokens would be joined with spaces", path);
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string part_path = fmt::format("{}.decoders[{}]", path, i);
    const auto part_type = component_type(parts[i], part_path);
    if (!part_type) return part_type.error();
    if (*part_type == "ByteLevel" && parts.size() > 1)
      return invalid_argument(part_path, "{}: ByteLevel is one of {} decoders: it must be the only one",
                              part_path, parts.size());
    if (Status added = decoder.add(parts[i], *part_type, part_path); !added) return added.error();
  }
  return decoder;
}

Status TokenDecoder::add(const Json& value, const std::string& type, const std::string& path) {
  if (type == "ByteLevel") {
    is_byte_level_ = true;
    return Done{};
  }
  if (type == "Strip") return add_strip(value, path);
  if (type == "Fuse") {
    is_fused_ = true;
    return Done{};
  }
  if (is_fused_ || rule_.has_byte_runs) {
    return invalid_argument(path, "{}: the decoder \"{}\" comes after {}: only {}Strip is supported there",
                            path, type, is_fused_ ? "Fuse" : "ByteFallback", is_fused_ ? "" : "Fuse and ");
  }
  JsonFields fields(value, path);
  Step step;
  if (type == "ByteFallback") {
    rule_.has_byte_runs = true;
    return Done{};
  }
  if (type == "Replace") {
    auto replace = read_string_replace(value, path);
    if (!replace) return replace.error();
    step.replace = Replace{std::move(replace->from), std::move(replace->to)};
  } else if (type == "Metaspace") {
    auto metaspace = read_metaspace(value, path);
    if (!metaspace) return metaspace.error();
    const bool drops_first = metaspace->prepend != MetaspacePrepend::kNever;
    rule_.first_differs = rule_.first_differs || drops_first;
    step.metaspace = Metaspace{std::move(metaspace->replacement), drops_first};
  } else {
    return invalid_argument(path,
                            "{} is {}: the decoders supported are ByteLevel, Replace, Strip, Metaspace, "
                            "ByteFallback, Fuse and Sequence",
                            path, type.empty() ? "null" : type);
  }
  steps_.push_back(std::move(step));
  return Done{};
}

Status TokenDecoder::add_strip(const Json& value, const std::string& path) {
  JsonFields fields(value, path);
  Strip strip{fields.text("content"), fields.integer("start"), fields.integer("stop")};
  if (!fields.ok()) return fields.error();
  constexpr int64_t kMost = 1024;
  if (!is_one_character(strip.content) || std::clamp<int64_t>(strip.start, 0, kMost) != strip.start ||
      std::clamp<int64_t>(strip.stop, 0, kMost) != strip.stop)
    return invalid_argument(path,
                            "{} strips {} at {} places before and {} after: one character, 0 to {} places",
                            path, excerpt(value.value("content", Json())), strip.start, strip.stop, kMost);
  if (!is_fused_) {
    if (rule_.has_byte_runs)
      return invalid_argument(path, "{}: Strip between ByteFallback and Fuse is not supported, of {} before",
                              path, strip.start);
    steps_.push_back({.replace = {}, .strip = std::move(strip), .metaspace = {}});
    return Done{};
  }
  if (strip.stop != 0 || rule_.num_stripped != 0)
    return invalid_argument(path, "{}.stop is {}: behind Fuse one Strip at the start is supported", path,
                            strip.stop);
  rule_.num_stripped = static_cast<int>(strip.start);
  rule_.stripped = std::move(strip.content);
  return Done{};
}

std::string TokenDecoder::apply(std::string text, bool is_first) const {
  for (const Step& step : steps_) {
    if (step.replace) text = replace_all(text, step.replace->from, step.replace->to);
    if (step.metaspace)
      text =
          replace_all(text, step.metaspace->replacement, is_first && step.metaspace->drops_first ? "" : " ");
    if (step.strip) {
      const std::string& content = step.strip->content;
      for (int64_t i = 0; i < step.strip->start && text.starts_with(content); ++i)
        text.erase(0, content.size());
      for (int64_t i = 0; i < step.strip->stop && text.ends_with(content); ++i)
        text.resize(text.size() - content.size());
    }
  }
  return text;
}

TokenForm TokenDecoder::form_of(const std::string& spelling) const {
  // Added tokens are written as text, and decode by the same rule: what is not of the alphabet stands for
  // itself.
  if (is_byte_level_) return {.text = bytes_of_spelling(spelling).value_or(spelling), .first = {}};
  TokenForm form{.text = apply(spelling, false), .first = {}};
  if (rule_.first_differs) form.first = apply(spelling, true);
  if (!rule_.has_byte_runs) return form;
  if (const auto byte = byte_of_token(form.text)) {
    form.text.assign(1, static_cast<char>(*byte));
    form.first = form.text;
    form.is_byte = true;
  }
  return form;
}

}  // namespace lockstep::serving::tokenizing
