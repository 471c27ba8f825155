#include "lockstep/serving/reasoning/harmony.h"

#include <string_view>
#include <utility>

namespace lockstep::serving::reasoning {
namespace {

constexpr size_t kMaxHeaderBytes = 512;
constexpr std::string_view kRecipient = "to=", kFunctions = "functions.";
constexpr char kChannelMark = '\n';  // no header has one of its own

std::string_view word_at(std::string_view text, size_t begin) {
  const size_t end = text.find_first_of(" \t\r\n<", begin);
  return text.substr(begin, end == std::string_view::npos ? end : end - begin);
}

std::string_view channel_of(std::string_view header) {
  const size_t mark = header.rfind(kChannelMark);
  if (mark == std::string_view::npos) return {};
  const size_t begin = header.find_first_not_of(" \t", mark + 1);
  return begin == std::string_view::npos ? std::string_view() : word_at(header, begin);
}

std::string_view recipient_of(std::string_view header) {
  const size_t place = header.find(kRecipient);
  return place == std::string_view::npos ? std::string_view() : word_at(header, place + kRecipient.size());
}

}  // namespace

std::vector<Marker> harmony_markers() {
  return {{MarkerKind::kMessageBegin, "<|start|>", {}},  {MarkerKind::kChannel, "<|channel|>", {}},
          {MarkerKind::kMessageText, "<|message|>", {}}, {MarkerKind::kMessageEnd, "<|end|>", {}},
          {MarkerKind::kMessageEnd, "<|call|>", {}},     {MarkerKind::kMessageEnd, "<|return|>", {}},
          {MarkerKind::kFrame, "<|constrain|>", {}}};
}

Split HarmonySplitter::push(Lexeme lexeme) {
  switch (state_) {
    case State::kBetween:
      if (lexeme.kind == MarkerKind::kText) {
        lexeme.text.drop(leading_newlines(lexeme.text.text()));
        if (lexeme.text.empty()) return {};
      }
      state_ = State::kHeader;
      if (lexeme.kind == MarkerKind::kMessageBegin) return {};
      [[fallthrough]];
    case State::kHeader:
      return push_header(std::move(lexeme));
    case State::kMessage:
      return push_message(std::move(lexeme));
    case State::kPlain:
      break;
  }
  Split split;
  split.rest.push_back({MarkerKind::kText, std::move(lexeme.text)});
  return split;
}

Split HarmonySplitter::push_header(Lexeme lexeme) {
  Split split;
  if (lexeme.kind == MarkerKind::kMessageText) {
    begin_message(split);
    return split;
  }
  if (lexeme.kind == MarkerKind::kText) {
    for (const char c : lexeme.text.text()) words_ += c == kChannelMark ? ' ' : c;
  } else {
    words_ += lexeme.kind == MarkerKind::kChannel ? kChannelMark : ' ';
  }
  header_.append(std::move(lexeme.text));
  if (words_.size() > kMaxHeaderBytes) {
    state_ = State::kPlain;
    split.rest.push_back({MarkerKind::kText, header_.take_all()});
  }
  return split;
}

Split HarmonySplitter::push_message(Lexeme lexeme) {
  Split split;
  if (lexeme.kind == MarkerKind::kMessageEnd || lexeme.kind == MarkerKind::kMessageBegin) {
    end_message(split);
    if (lexeme.kind == MarkerKind::kMessageBegin) state_ = State::kHeader;
    return split;
  }
  if (target_ == Target::kReasoning) {
    split.reasoning = std::move(lexeme.text);
  } else {
    split.rest.push_back({MarkerKind::kText, std::move(lexeme.text)});
  }
  return split;
}

void HarmonySplitter::begin_message(Split& split) {
  const std::string_view recipient = recipient_of(words_);
  const bool is_call = recipient.starts_with(kFunctions) && recipient.size() > kFunctions.size();
  const bool is_reasoning = channel_of(words_) == "analysis";
  target_ = is_call ? Target::kCall : is_reasoning ? Target::kReasoning : Target::kContent;
  if (is_call)
    split.rest.push_back(
        {MarkerKind::kCallBegin, TracedText(std::string(recipient.substr(kFunctions.size())))});
  state_ = State::kMessage;
  header_ = {};
  words_.clear();
}

void HarmonySplitter::end_message(Split& split) {
  if (target_ == Target::kCall) split.rest.push_back({MarkerKind::kCallEnd, {}});
  state_ = State::kBetween;
}

Split HarmonySplitter::finish() {
  Split split;
  if (state_ == State::kHeader && !header_.holds_nothing())
    split.rest.push_back({MarkerKind::kText, header_.take_all()});
  return split;
}

}  // namespace lockstep::serving::reasoning
