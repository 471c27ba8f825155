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

constexpr uint64_t kFreeSteps = uint64_t{1} << 26;
constexpr uint64_t kStepsPerByte = 512;

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

}  // namespace

Result<PreTokenizer> PreTokenizer::read(const Json& value, const std::string& path) {
  PreTokenizer steps;
  if (const Status added = steps.add(value, path); !added) return added.error();
  if (steps.byte_level_ == ByteLevel::kAbsent)
    return invalid_argument(path, "{} has no ByteLevel step: only byte-level BPE is supported", path);
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
  if (byte_level_ != ByteLevel::kAbsent)
    return invalid_argument(path, "{}: \"{}\" comes after ByteLevel, which must be the last step", path,
                            *type);
  if (*type == "Split") return add_split(value, path);
  if (*type == "Digits") return add_digits(value, path);
  if (*type == "ByteLevel") return add_byte_level(value, path);
  return invalid_argument(
      path, "{}: the pre-tokenizer \"{}\" is not supported (supported: Split, Digits, ByteLevel, Sequence)",
      path, *type);
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
  const auto behavior = behavior_named(behavior_name);
  if (!behavior)
    return invalid_argument(fields.path_of("behavior"),
                            "{} is \"{}\": it must be Isolated, Removed, MergedWithPrevious, "
                            "MergedWithNext or Contiguous",
                            fields.path_of("behavior"), behavior_name);
  const std::string name = pattern_fields.path_of(kind);
  auto pattern = is_regex ? Pattern::regex(text, name) : Pattern::literal(text, name);
  if (!pattern) return pattern.error();
  const auto sense = inverted ? SplitSense::kGapsAreDelimiters : SplitSense::kMatchesAreDelimiters;
  splits_.push_back({std::move(*pattern), *behavior, sense});
  return Done{};
}

Status PreTokenizer::add_digits(const Json& value, const std::string& path) {
  JsonFields fields(value, path);
  const bool one_by_one = fields.flag("individual_digits");
  if (!fields.ok()) return fields.error();
  auto pattern = Pattern::regex("\\p{N}", path);
  if (!pattern) return pattern.error();
  const auto behavior = one_by_one ? SplitBehavior::kIsolated : SplitBehavior::kContiguous;
  splits_.push_back({std::move(*pattern), behavior, SplitSense::kMatchesAreDelimiters});
  return Done{};
}

Status PreTokenizer::add_byte_level(const Json& value, const std::string& path) {
  JsonFields fields(value, path);
  byte_level_ = fields.flag("add_prefix_space") ? ByteLevel::kPrefixSpace : ByteLevel::kPlain;
  const bool use_pattern = fields.flag_or("use_regex", true);
  if (!fields.ok()) return fields.error();
  num_splits_before_space_ = splits_.size();
  if (!use_pattern) return Done{};
  auto pattern = Pattern::regex(kByteLevelPattern, path);
  if (!pattern) return pattern.error();
  splits_.push_back({std::move(*pattern), SplitBehavior::kIsolated, SplitSense::kMatchesAreDelimiters});
  return Done{};
}

Pieces PreTokenizer::cut(std::string_view valid_text) const {
  Pieces cut;
  if (valid_text.empty()) return cut;
  WorkBudget budget(kFreeSteps + kStepsPerByte * valid_text.size());
  cut.pieces.push_back(valid_text);
  for (size_t i = 0; i <= splits_.size(); ++i) {
    if (i == num_splits_before_space_ && byte_level_ == ByteLevel::kPrefixSpace) {
      for (std::string_view& piece : cut.pieces)
        if (!piece.starts_with(' ')) piece = cut.owned.emplace_back(" ").append(piece);
    }
    if (i < splits_.size()) apply_split(splits_[i], budget, cut.pieces);
  }
  return cut;
}

}  // namespace lockstep::serving::tokenizing
