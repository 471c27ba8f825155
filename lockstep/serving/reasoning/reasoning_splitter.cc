#include "lockstep/serving/reasoning/reasoning_splitter.h"

#include <string>
#include <utility>

#include "lockstep/serving/reasoning/harmony.h"

namespace lockstep::serving::reasoning {

namespace {

// A format's own name comes first.
constexpr std::pair<std::string_view, Format> kNames[] = {
    {"none", Format::kNone},       {"think", Format::kThinkTags},       {"gpt-oss", Format::kHarmony},
    {"qwen3", Format::kThinkTags}, {"deepseek-r1", Format::kThinkTags}, {"deepseek-v3", Format::kThinkTags},
    {"glm45", Format::kThinkTags}};

}  // namespace

std::string_view name_of(Format format) {
  for (const auto& [name, named] : kNames)
    if (named == format) return name;
  return "none";
}

std::optional<Format> format_named(std::string_view name) {
  for (const auto& [known, format] : kNames)
    if (known == name) return format;
  return std::nullopt;
}

std::vector<std::string_view> format_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, format] : kNames) names.push_back(name);
  return names;
}

std::vector<Marker> markers_of(Format format) {
  switch (format) {
    case Format::kNone:
      break;
    case Format::kThinkTags:
      return {{MarkerKind::kThinkBegin, std::string(kOpenTag), {}},
              {MarkerKind::kThinkEnd, std::string(kCloseTag), {}}};
    case Format::kHarmony:
      return harmony_markers();
  }
  return {};
}

std::unique_ptr<Splitter> make_splitter(Format format, Place start) {
  if (format == Format::kHarmony) return std::make_unique<HarmonySplitter>();
  return std::make_unique<ReasoningSplitter>(format, start);
}

Place starts_inside(std::string_view prompt) {
  const size_t last = prompt.find_last_not_of(" \t\r\n");
  if (last == std::string_view::npos) return Place::kOutside;
  return prompt.substr(0, last + 1).ends_with(kOpenTag) ? Place::kInside : Place::kOutside;
}

ReasoningSplitter::ReasoningSplitter(Format format, Place start)
    : state_(format == Format::kNone   ? State::kRest
             : start == Place::kInside ? State::kReasoning
                                       : State::kStart) {}

Split ReasoningSplitter::push(Lexeme lexeme) {
  switch (state_) {
    case State::kStart:
      return push_at_start(std::move(lexeme));
    case State::kReasoning:
      return push_inside(std::move(lexeme));
    case State::kAfter:
      return push_after(std::move(lexeme));
    case State::kRest:
      break;
  }
  Split split;
  split.rest.push_back(std::move(lexeme));
  return split;
}

Split ReasoningSplitter::finish() {
  Split split;
  if (held_.holds_nothing()) return split;
  if (state_ == State::kReasoning) {
    split.reasoning = held_.take_all();
  } else {
    split.rest.push_back({MarkerKind::kText, held_.take_all()});
  }
  return split;
}

Split ReasoningSplitter::push_at_start(Lexeme lexeme) {
  if (lexeme.kind == MarkerKind::kThinkBegin) {
    enter_reasoning();
    return {};
  }
  if (lexeme.kind == MarkerKind::kText && leading_newlines(lexeme.text.text()) == lexeme.text.text().size()) {
    held_.append(std::move(lexeme.text));
    return {};
  }
  state_ = State::kRest;
  Split split;
  if (!held_.holds_nothing()) split.rest.push_back({MarkerKind::kText, held_.take_all()});
  split.rest.push_back(std::move(lexeme));
  return split;
}

Split ReasoningSplitter::push_inside(Lexeme lexeme) {
  if (lexeme.kind == MarkerKind::kThinkEnd) {
    state_ = State::kAfter;
    held_ = {};
    return {};
  }
  // The tag that the model repeats after the prompt's own is frame as well.
  if (lexeme.kind == MarkerKind::kThinkBegin && at_first_character_) return {};
  if (at_first_character_) {
    lexeme.text.drop(leading_newlines(lexeme.text.text()));
    at_first_character_ = lexeme.text.empty();
  }
  held_.append(std::move(lexeme.text));
  Split split;
  const size_t size = held_.text().size();
  const size_t certain = size - trailing_newlines(held_.text());
  if (certain > 0) split.reasoning = held_.take(certain);
  return split;
}

Split ReasoningSplitter::push_after(Lexeme lexeme) {
  if (lexeme.kind == MarkerKind::kText) {
    lexeme.text.drop(leading_newlines(lexeme.text.text()));
    held_.append(std::move(lexeme.text));
    if (held_.empty()) return {};
    lexeme.text = held_.take_all();
  }
  state_ = State::kRest;
  Split split;
  split.rest.push_back(std::move(lexeme));
  return split;
}

void ReasoningSplitter::enter_reasoning() {
  state_ = State::kReasoning;
  at_first_character_ = true;
  held_ = {};
}

}  // namespace lockstep::serving::reasoning
