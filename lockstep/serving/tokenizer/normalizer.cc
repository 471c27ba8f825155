#include "lockstep/serving/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <tuple>
#include <utility>

#include "lockstep/serving/tokenizer/json_fields.h"
#include "lockstep/serving/tokenizer/text_steps.h"
#include "lockstep/serving/tokenizer/unicode.h"
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

struct CharacterRange {
  utf8proc_int32_t first, last;
};

// Characters that decompose, or are ordered among marks, only since a Unicode version that the library which
// defines the format does not know (it has the tables of Unicode 10): there they stay as they are, and stand
// like letters. tools/record_tokenizer_expectations.py holds characters of every block against it.
constexpr CharacterRange kUnknown[] = {
    {0x07FD, 0x07FD},   {0x0898, 0x089F},   {0x08CA, 0x08D3},   {0x09FE, 0x09FE},   {0x0C3C, 0x0C3C},
    {0x0D3B, 0x0D3C},   {0x0EBA, 0x0EBA},   {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},
    {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xA82C, 0xA82C},   {0xAB69, 0xAB69},   {0x10781, 0x107BA},
    {0x10D24, 0x10D27}, {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
    {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11930, 0x11930},
    {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0}, {0x11A34, 0x11A34},
    {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42},
    {0x16FF0, 0x16FF1}, {0x1E030, 0x1E06D}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE},
    {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF}, {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}};

// Characters of everyday text that NFC leaves as they are, whatever stands around them: NFC_Quick_Check is
// Yes and the combining class 0 (Unicode 15, DerivedNormalizationProps and UnicodeData).
constexpr CharacterRange kAtRestInNfc[] = {
    {0x00A0, 0x02FF},                                       // Latin
    {0x0386, 0x0386}, {0x0388, 0x03FF},                     // Greek
    {0x0400, 0x0482}, {0x048A, 0x052F},                     // Cyrillic
    {0x05D0, 0x05EA},                                       // Hebrew letters
    {0x061B, 0x064A}, {0x0660, 0x066F},  {0x0671, 0x06D3},  // Arabic
    {0x0904, 0x0939}, {0x0993, 0x09A8},                     // Devanagari, Bengali letters
    {0x0E01, 0x0E37}, {0x0E3F, 0x0E47},                     // Thai
    {0x1E00, 0x1EFF}, {0x2010, 0x2027},  {0x20A0, 0x20C0},  // Latin, punctuation, currencies
    {0x2190, 0x21FF}, {0x2500, 0x27BF},                     // arrows, boxes, symbols
    {0x3001, 0x3029}, {0x3041, 0x3096},  {0x309D, 0x30FF},  // Kana and its punctuation
    {0x4E00, 0x9FFF}, {0xAC00, 0xD7A3},                     // Han, Hangul syllables
    {0xFF01, 0xFFEE}, {0x1F300, 0x1FAFF}};                  // wide forms, pictures

bool is_in(std::span<const CharacterRange> ranges, utf8proc_int32_t character) {
  const auto range = std::lower_bound(ranges.begin(), ranges.end(), character,
                                      [](const CharacterRange& r, utf8proc_int32_t c) { return r.last < c; });
  return range != ranges.end() && range->first <= character;
}

bool is_unknown(utf8proc_int32_t character) { return is_in(kUnknown, character); }

bool is_at_rest_in_nfc(std::string_view valid_text) {
  for (size_t i = 0; i < valid_text.size();) {
    const CodePoint character = code_point_at(valid_text, i);
    if (!is_in(kAtRestInNfc, static_cast<utf8proc_int32_t>(character.value))) return false;
    i += static_cast<size_t>(character.num_bytes);
  }
  return true;
}

void decompose(std::string_view valid_text, utf8proc_option_t options, std::vector<utf8proc_int32_t>& out) {
  constexpr int kLongest = 32;  // the longest decomposition of one character has 18 characters
  utf8proc_int32_t parts[kLongest];
  int last_class = 0;
  for (size_t i = 0; i < valid_text.size();) {
    const CodePoint character = code_point_at(valid_text, i);
    i += static_cast<size_t>(character.num_bytes);
    const auto value = static_cast<utf8proc_int32_t>(character.value);
    if (is_unknown(value)) {
      out.push_back(value);
      continue;
    }
    const auto num_parts = utf8proc_decompose_char(value, parts, kLongest, options, &last_class);
    LOCKSTEP_CHECK(num_parts > 0 && num_parts <= kLongest, "U+{:X} decomposes into {} parts", value,
                   num_parts);
    out.insert(out.end(), parts, parts + num_parts);
  }
}

int class_of(utf8proc_int32_t character) {
  const int combining_class = utf8proc_get_property(character)->combining_class;
  return combining_class != 0 && is_unknown(character) ? 0 : combining_class;
}
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

// Joins what composes and appends the result. utf8proc 2.8 takes U+11A7 for a Hangul ending and loses it.
// That and what is unknown begins no composition and joins none, so each part that it starts is composed on
// its own.
void compose(std::span<utf8proc_int32_t> characters, utf8proc_option_t options, std::string& out) {
  constexpr utf8proc_int32_t kNoEnding = 0x11A7;
  while (!characters.empty()) {
    const auto next = std::find_if(characters.begin() + 1, characters.end(), [](utf8proc_int32_t character) {
      return character == kNoEnding || is_unknown(character);
    });
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

// Where the budget runs out the rest stays as it is: deterministic, and never a failure.
std::string replace_matches(const Pattern& pattern, const std::string& text, const std::string& replacement) {
  WorkBudget budget(budget_of(text.size()));
  std::vector<PatternMatch> matches;
  std::string storage, out;
  pattern.matcher().find_all(with_stand_ins(text, storage), budget, matches);
  size_t at = 0;
  for (const PatternMatch& match : matches) {
    out.append(text, at, match.begin - at).append(replacement);
    at = match.end;
  }
  return out.append(text, at);
}

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
    if (form == NormalForm::kNfc && is_at_rest_in_nfc(valid_text.substr(other, end - other))) {
      out.append(valid_text.substr(begin, end - begin));
    } else {
      normalize_whole(valid_text.substr(begin, end - begin), form, out);
    }
    i = end;
  }
  return out;
}

Result<Normalizer> Normalizer::read(const Json& value, const std::string& path) {
  auto type = component_type(value, path);
  if (!type) return type.error();
  Normalizer normalizer;
  if (*type != "Sequence") {
    if (Status added = normalizer.add(value, *type, path); !added) return added.error();
    return normalizer;
  }
  JsonFields fields(value, path);
  const Json& parts = fields.array("normalizers");
  if (!fields.ok()) return fields.error();
  for (size_t i = 0; i < parts.size(); ++i) {
    auto part = read(parts[i], fmt::format("{}.normalizers[{}]", path, i));
    if (!part) return part.error();
    std::move(part->steps_.begin(), part->steps_.end(), std::back_inserter(normalizer.steps_));
  }
  return normalizer;
}

Status Normalizer::add(const Json& value, const std::string& type, const std::string& path) {
  if (type.empty()) return Done{};
  if (type == "Replace") return add_replace(value, path);
  JsonFields fields(value, path);
  if (const auto form = form_named(type)) {
    steps_.push_back({.kind = Kind::kForm, .form = *form, .from = {}, .text = {}, .pattern = {}});
  } else if (type == "Prepend") {
    steps_.push_back({.kind = Kind::kPrepend, .from = {}, .text = fields.text("prepend"), .pattern = {}});
  } else if (type == "Strip") {
    for (const auto& [side, kind] :
         {std::pair("strip_left", Kind::kStripStart), {"strip_right", Kind::kStripEnd}})
      if (fields.flag(side)) steps_.push_back({.kind = kind, .from = {}, .text = {}, .pattern = {}});
  } else {
    return invalid_argument(path,
                            "{}: the normalizer \"{}\" is not supported (supported: NFC, NFD, NFKC, NFKD, "
                            "Prepend, Replace, Strip, Sequence)",
                            path, type);
  }
  if (!fields.ok()) return fields.error();
  return Done{};
}

Status Normalizer::add_replace(const Json& value, const std::string& path) {
  JsonFields fields(value, path);
  JsonFields pattern(fields.any("pattern"), fields.path_of("pattern"));
  if (pattern.any("Regex").is_null()) {
    auto replace = read_string_replace(value, path);
    if (!replace) return replace.error();
    steps_.push_back({.kind = Kind::kReplaceText,
                      .from = std::move(replace->from),
                      .text = std::move(replace->to),
                      .pattern = {}});
    return Done{};
  }
  Step step{.kind = Kind::kReplacePattern, .from = {}, .text = fields.text("content"), .pattern = {}};
  const std::string regex = pattern.text("Regex");
  for (const JsonFields* read : {&fields, &pattern})
    if (!read->ok()) return read->error();
  auto compiled = Pattern::regex(regex, pattern.path_of("Regex"));
  if (!compiled) return compiled.error();
  step.pattern = std::move(*compiled);
  steps_.push_back(std::move(step));
  return Done{};
}

std::string Normalizer::apply(const Step& step, std::string text) {
  switch (step.kind) {
    case Kind::kForm:
      return std::all_of(text.begin(), text.end(), is_ascii) ? text : normalize(text, step.form);
    case Kind::kPrepend:
      return text.empty() ? text : step.text + text;
    case Kind::kReplaceText:
      return replace_all(text, step.from, step.text);
    case Kind::kReplacePattern:
      return replace_matches(*step.pattern, text, step.text);
    case Kind::kStripStart:
      return text.erase(0, skip_white_space(text, 0));
    case Kind::kStripEnd:
      text.resize(skip_white_space_back(text, text.size()));
      return text;
  }
  return text;
}

std::string Normalizer::apply(std::string_view valid_text) const {
  std::string text(valid_text);
  for (const Step& step : steps_) text = apply(step, std::move(text));
  return text;
}

}  // namespace lockstep::serving::tokenizing
