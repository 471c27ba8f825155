#include "lockstep/serving/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <tuple>

#include "lockstep/serving/tokenizer/json_fields.h"
#include "lockstep/serving/tokenizer/utf8.h"

namespace lockstep::serving::tokenizing {
namespace {

utf8proc_option_t options_of(NormalForm form) {
  const bool composes = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool is_compatibility = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  unsigned options = UTF8PROC_STABLE;
  options |= composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (is_compatibility) options |= UTF8PROC_COMPAT;
  return static_cast<utf8proc_option_t>(options);
}

void decompose(std::string_view valid_text, utf8proc_option_t options, std::vector<utf8proc_int32_t>& out) {
  constexpr int kLongest = 32;  // the longest decomposition of one character has 18 characters
  utf8proc_int32_t parts[kLongest];
  int last_class = 0;
  for (size_t i = 0; i < valid_text.size();) {
    const CodePoint character = code_point_at(valid_text, i);
    i += static_cast<size_t>(character.num_bytes);
    const auto value = static_cast<utf8proc_int32_t>(character.value);
    const auto num_parts = utf8proc_decompose_char(value, parts, kLongest, options, &last_class);
    LOCKSTEP_CHECK(num_parts > 0 && num_parts <= kLongest, "U+{:X} decomposes into {} parts", value,
                   num_parts);
    out.insert(out.end(), parts, parts + num_parts);
  }
}

int class_of(utf8proc_int32_t character) { return utf8proc_get_property(character)->combining_class; }
bool is_mark(utf8proc_int32_t character) { return class_of(character) != 0; }

// Canonical order of marks: by class, equals as they stand. utf8proc's own ordering swaps neighbours, which
// is quadratic on a long run of marks.
void order_marks(std::vector<utf8proc_int32_t>& characters) {
  std::vector<std::tuple<int, size_t, utf8proc_int32_t>> run;  // class, place, mark
  for (auto at = characters.begin(); at != characters.end();) {
    const auto begin = std::find_if(at, characters.end(), is_mark);
    at = std::find_if_not(begin, characters.end(), is_mark);
    run.clear();
    for (auto mark = begin; mark != at; ++mark) run.emplace_back(class_of(*mark), run.size(), *mark);
    std::sort(run.begin(), run.end());
    std::transform(run.begin(), run.end(), begin, [](const auto& entry) { return std::get<2>(entry); });
  }
}

// Joins what composes and appends the result. utf8proc 2.8 takes U+11A7 for a Hangul ending and loses it; it
// begins no composition and joins none, so each part that it starts is composed on its own.
void compose(std::span<utf8proc_int32_t> characters, utf8proc_option_t options, std::string& out) {
  constexpr utf8proc_int32_t kNoEnding = 0x11A7;
  while (!characters.empty()) {
    const auto next = std::find(characters.begin() + 1, characters.end(), kNoEnding);
    const auto part = characters.first(static_cast<size_t>(next - characters.begin()));
    const auto size = static_cast<utf8proc_ssize_t>(part.size());
    const auto num_left = utf8proc_normalize_utf32(part.data(), size, options);
    LOCKSTEP_CHECK(num_left > 0 && num_left <= size, "{} characters composed to {}", size, num_left);
    for (const utf8proc_int32_t character : part.first(static_cast<size_t>(num_left)))
      append_code_point(static_cast<char32_t>(character), out);
    characters = characters.subspan(part.size());
  }
}

void normalize_whole(std::string_view valid_text, NormalForm form, std::string& out) {
  const utf8proc_option_t options = options_of(form);
  std::vector<utf8proc_int32_t> characters;
  characters.reserve(valid_text.size());
  decompose(valid_text, options, characters);
  order_marks(characters);
  compose(characters, options, out);
}

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

std::optional<NormalForm> form_named(std::string_view type) {
  if (type == "NFC") return NormalForm::kNfc;
  if (type == "NFD") return NormalForm::kNfd;
  if (type == "NFKC") return NormalForm::kNfkc;
  if (type == "NFKD") return NormalForm::kNfkd;
  return std::nullopt;
}

}  // namespace

// ASCII never changes and never joins what stands before it, so the text may be cut in front of any ASCII
// character: only runs of other characters, each with the one ASCII character that they could join, go
// through the library.
std::string normalize(std::string_view valid_text, NormalForm form) {
  std::string out;
  out.reserve(valid_text.size());
  for (size_t i = 0; i < valid_text.size();) {
    const auto at = [&](size_t k) { return valid_text.begin() + static_cast<ptrdiff_t>(k); };
    const auto other =
        static_cast<size_t>(std::find_if_not(at(i), valid_text.end(), is_ascii) - valid_text.begin());
    if (other == valid_text.size()) {
      out.append(valid_text.substr(i));
      break;
    }
    const size_t begin = other > i ? other - 1 : other;
    out.append(valid_text.substr(i, begin - i));
    const auto end =
        static_cast<size_t>(std::find_if(at(other), valid_text.end(), is_ascii) - valid_text.begin());
    normalize_whole(valid_text.substr(begin, end - begin), form, out);
    i = end;
  }
  return out;
}

Result<Normalizer> Normalizer::read(const Json& value, const std::string& path) {
  auto type = component_type(value, path);
  if (!type) return type.error();
  Normalizer normalizer;
  if (type->empty()) return normalizer;
  if (const auto form = form_named(*type)) {
    normalizer.forms_.push_back(*form);
    return normalizer;
  }
  if (*type != "Sequence")
    return invalid_argument(
        path, "{}: the normalizer \"{}\" is not supported (supported: NFC, NFD, NFKC, NFKD, Sequence)", path,
        *type);
  JsonFields fields(value, path);
  const Json& parts = fields.array("normalizers");
  if (!fields.ok()) return fields.error();
  for (size_t i = 0; i < parts.size(); ++i) {
    auto part = read(parts[i], fmt::format("{}.normalizers[{}]", path, i));
    if (!part) return part.error();
    normalizer.forms_.insert(normalizer.forms_.end(), part->forms_.begin(), part->forms_.end());
  }
  return normalizer;
}

std::string Normalizer::apply(std::string_view valid_text) const {
  std::string text(valid_text);
  for (const NormalForm form : forms_) text = normalize(text, form);
  return text;
}

}  // namespace lockstep::serving::tokenizing
