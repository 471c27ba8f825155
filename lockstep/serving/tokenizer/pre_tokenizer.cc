#include "lockstep/serving/tokenizer/pre_tokenizer.h"

#include <cstddef>
#include <optional>
#include <span>
#include <utility>

#include "lockstep/serving/tokenizer/json_fields.h"
#include "lockstep/serving/tokenizer/unicode.h"

namespace lockstep::serving::tokenizing {
namespace {

// The pattern of ByteLevel's use_regex, published with GPT-2.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct Segment {
  size_t begin = 0;
  size_t end = 0;
  bool is_delimiter = false;
};

std::optional<SplitBehavior> behavior_named(std::string_view name) {
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  return std::nullopt;
}

Result<SplitBehavior> read_behavior(std::string_view name, const std::string& path) {
  if (const auto behavior = behavior_named(name)) return *behavior;
  return invalid_argument(path,
                          "{} is \"{}\": it must be Isolated, Removed, MergedWithPrevious, "
                          "MergedWithNext or Contiguous",
                          path, name);
}

// Matches and the gaps between them, in order, covering the whole text.
void list_segments(std::span<const PatternMatch> matches, size_t size, SplitSense sense,
                   std::vector<Segment>& out) {
  const bool match_is_delimiter = sense == SplitSense::kMatchesAreDelimiters;
  out.clear();
  size_t at = 0;
  for (const PatternMatch& match : matches) {
    if (at != match.begin) out.push_back({at, match.begin, !match_is_delimiter});
    out.push_back({match.begin, match.end, match_is_delimiter});
    at = match.end;
  }
  if (at != size) out.push_back({at, size, !match_is_delimiter});
}

// A delimiter joins the segment before it, unless that is a delimiter too.
void merge_with_previous(std::vector<Segment>& segments) {
  size_t kept = 0;
  bool previous = false;
  for (const Segment& segment : segments) {
    if (segment.is_delimiter && !previous && kept > 0) {
      segments[kept - 1].end = segment.end;
    } else {
      segments[kept++] = segment;
    }
    previous = segment.is_delimiter;
  }
  segments.resize(kept);
}

// The same, seen from the end.
void merge_with_next(std::vector<Segment>& segments) {
  size_t kept = segments.size();
  bool next = false;
  for (size_t i = segments.size(); i-- > 0;) {
    const Segment segment = segments[i];
    if (segment.is_delimiter && !next && kept < segments.size()) {
      segments[kept].begin = segment.begin;
    } else {
      segments[--kept] = segment;
    }
    next = segment.is_delimiter;
  }
  segments.erase(segments.begin(), segments.begin() + static_cast<ptrdiff_t>(kept));
}

void merge_alike(std::vector<Segment>& segments) {
  size_t kept = 0;
  bool previous = false;
  for (const Segment& segment : segments) {
    if (segment.is_delimiter == previous && kept > 0) {
      segments[kept - 1].end = segment.end;
    } else {
      segments[kept++] = segment;
    }
    previous = segment.is_delimiter;
  }
  segments.resize(kept);
}

void apply_behavior(SplitBehavior behavior, std::vector<Segment>& segments) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return;
    case SplitBehavior::kRemoved:
      std::erase_if(segments, [](const Segment& s) { return s.is_delimiter; });
      return;
    case SplitBehavior::kMergedWithPrevious:
      return merge_with_previous(segments);
    case SplitBehavior::kMergedWithNext:
      return merge_with_next(segments);
    case SplitBehavior::kContiguous:
      return merge_alike(segments);
  }
}

// Cuts every piece by one step.
void apply_split(const SplitStep& step, WorkBudget& budget, std::vector<std::string_view>& pieces) {
  Pattern::Matcher matcher = step.pattern.matcher();
  std::vector<std::string_view> cut;
  cut.reserve(pieces.size());
  std::vector<PatternMatch> matches;
  std::vector<Segment> segments;
  std::string storage;
  for (const std::string_view piece : pieces) {
    matches.clear();
    matcher.find_all(with_stand_ins(piece, storage), budget, matches);
    list_segments(matches, piece.size(), step.sense, segments);
    apply_behavior(step.behavior, segments);
    for (const Segment& segment : segments)
      if (segment.begin != segment.end)
        cut.push_back(piece.substr(segment.begin, segment.end - segment.begin));
  }
  pieces = std::move(cut);
}

// Marks stand for spaces; each begins a piece.
void apply_metaspace(const MetaspaceOptions& step, const char* first_byte, Pieces& cut) {
  std::vector<std::string_view> pieces;
  for (const std::string_view piece : cut.pieces) {
    std::string& marked = cut.owned.emplace_back(replace_all(piece, " ", step.replacement));
    const bool may_prepend = step.prepend == MetaspacePrepend::kAlways ||
                             (step.prepend == MetaspacePrepend::kFirst && piece.data() == first_byte);
    if (may_prepend && !marked.starts_with(step.replacement)) marked.insert(0, step.replacement);
    const std::string_view all = marked;
    size_t begin = 0;
    while (step.splits && begin < all.size()) {
      const size_t next = all.find(step.replacement, begin + 1);
      if (next == std::string_view::npos) break;
      pieces.push_back(all.substr(begin, next - begin));
      begin = next;
    }
    if (begin < all.size()) pieces.push_back(all.substr(begin));
  }
  cut.pieces = std::move(pieces);
}

}  // namespace

Result<PreTokenizer> PreTokenizer::read(const Json& value, const std::string& path) {
  PreTokenizer steps;
  if (const Status added = steps.add(value, path); !added) return added.error();
  return steps;
}

Status PreTokenizer::add(const Json& value, const std::string& path) {
  const auto type = component_type(value, path);
  if (!type) return type.error();
  if (type->empty()) return Done{};
  if (*type == "Sequence") {
    JsonFields fields(value, path);
    const Json& parts = fields.array("pretokenizers");
    if (!fields.ok()) return fields.error();
    for (size_t i = 0; i < parts.size(); ++i)
      if (Status added = add(parts[i], fmt::format("{}.pretokenizers[{}]", path, i)); !added) return added;
    return Done{};
  }
  if (is_byte_level_)
    return invalid_argument(path, "{}: \"{}\" comes after ByteLevel, which must be the last step", path,
                            *type);
  if (*type == "Split") return add_split(value, path);
  if (*type == "Digits") return add_digits(value, path);
  if (*type == "ByteLevel") return add_byte_level(value, path);
  if (*type == "WhitespaceSplit") return add_pattern("\\s", SplitBehavior::kRemoved, path);
  if (*type == "Metaspace") {
    auto options = read_metaspace(value, path);
    if (!options) return options.error();
    steps_.push_back({.split = {}, .metaspace = std::move(*options), .prefix_space = {}});
    return Done{};
  }
  return invalid_argument(path,
                          "{}: the pre-tokenizer \"{}\" is not supported (supported: Split, Digits, "
                          "WhitespaceSplit, Metaspace, ByteLevel, Sequence)",
                          path, *type);
}

Status PreTokenizer::add_pattern(std::string_view pattern, SplitBehavior behavior, const std::string& path) {
  auto compiled = Pattern::regex(pattern, path);
  if (!compiled) return compiled.error();
  steps_.push_back({.split = SplitStep{std::move(*compiled), behavior, SplitSense::kMatchesAreDelimiters},
                    .metaspace = {},
                    .prefix_space = {}});
  return Done{};
}

Status PreTokenizer::add_split(const Json& value, const std::string& path) {
  JsonFields fields(value, path);
  const std::string behavior_name = fields.text("behavior");
  const bool inverted = fields.flag("invert");
  JsonFields pattern_fields(fields.any("pattern"), fields.path_of("pattern"));
  const bool is_regex = !pattern_fields.any("Regex").is_null();
  const char* const kind = is_regex ? "Regex" : "String";
  const std::string text = pattern_fields.text(kind);
  for (const JsonFields* read : {&fields, &pattern_fields})
    if (!read->ok()) return read->error();
  const auto behavior = read_behavior(behavior_name, fields.path_of("behavior"));
  if (!behavior) return behavior.error();
  const std::string name = pattern_fields.path_of(kind);
  auto pattern = is_regex ? Pattern::regex(text, name) : Pattern::literal(text, name);
  if (!pattern) return pattern.error();
  const auto sense = inverted ? SplitSense::kGapsAreDelimiters : SplitSense::kMatchesAreDelimiters;
  steps_.push_back(
      {.split = SplitStep{std::move(*pattern), *behavior, sense}, .metaspace = {}, .prefix_space = {}});
  return Done{};
}

Status PreTokenizer::add_digits(const Json& value, const std::string& path) {
  JsonFields fields(value, path);
  const bool one_by_one = fields.flag("individual_digits");
  if (!fields.ok()) return fields.error();
  return add_pattern("\\p{N}", one_by_one ? SplitBehavior::kIsolated : SplitBehavior::kContiguous, path);
}

Status PreTokenizer::add_byte_level(const Json& value, const std::string& path) {
  JsonFields fields(value, path);
  is_byte_level_ = true;
  if (fields.flag("add_prefix_space"))
    steps_.push_back({.split = {}, .metaspace = {}, .prefix_space = PrefixSpace{}});
  const bool use_pattern = fields.flag_or("use_regex", true);
  if (!fields.ok()) return fields.error();
  if (!use_pattern) return Done{};
  return add_pattern(kByteLevelPattern, SplitBehavior::kIsolated, path);
}

Pieces PreTokenizer::cut(std::string_view valid_text, TextPlace place) const {
  Pieces cut;
  if (valid_text.empty()) return cut;
  const char* const first_byte = place == TextPlace::kFirst ? valid_text.data() : nullptr;
  WorkBudget budget(budget_of(valid_text.size()));
  cut.pieces.push_back(valid_text);
  for (const Step& step : steps_) {
    if (step.split) {
      apply_split(*step.split, budget, cut.pieces);
    } else if (step.metaspace) {
      apply_metaspace(*step.metaspace, first_byte, cut);
    } else {
      for (std::string_view& piece : cut.pieces)
        if (!piece.starts_with(' ')) piece = cut.owned.emplace_back(" ").append(piece);
    }
  }
  return cut;
}

}  // namespace lockstep::serving::tokenizing
