#include "lockstep/serving/tool_parsing/call_builder.h"

#include <utility>

#include "lockstep/base/json.h"

namespace lockstep::serving::tool_parsing {

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

void CallBuilder::content(TracedText text, Deltas& out) {
  if (after_call_) {
    text.drop(leading_newlines(text.text()));
    if (text.empty()) return;
    after_call_ = false;
  }
  held_newlines_.append(std::move(text));
  const size_t certain = held_newlines_.text().size() - trailing_newlines(held_newlines_.text());
  if (certain > 0) out.push_back({DeltaKind::kContent, held_newlines_.take(certain)});
}

void CallBuilder::finish_content(Deltas& out) {
  if (!held_newlines_.holds_nothing()) out.push_back({DeltaKind::kContent, held_newlines_.take_all()});
}

void CallBuilder::begin(std::string name, Deltas& out) {
  held_newlines_ = {};
  in_call_ = true;
  arguments_.clear();
  out.push_back({DeltaKind::kCallBegin, TracedText(std::move(name)), ++call_idx_});
}

void CallBuilder::arguments(std::string piece, Deltas& out) {
  if (piece.empty()) return;
  arguments_ += piece;
  out.push_back({DeltaKind::kCallArguments, TracedText(std::move(piece)), call_idx_});
}

void CallBuilder::end(Deltas& out) {
  if (!in_call_) return;
  if (arguments_.empty()) arguments("{}", out);
  if (arguments_are_complete()) out.push_back({DeltaKind::kCallEnd, {}, call_idx_});
  in_call_ = false;
  after_call_ = true;
}

void CallBuilder::cut_off(std::string unsure, Deltas& out) {
  if (!in_call_) return;
  if (!arguments_are_complete()) arguments(std::move(unsure), out);
  if (arguments_are_complete()) out.push_back({DeltaKind::kCallEnd, {}, call_idx_});
  in_call_ = false;
}

bool CallBuilder::arguments_are_complete() const {
  const auto parsed = parse_json(arguments_);
  return parsed.ok() && parsed->is_object();
}

}  // namespace lockstep::serving::tool_parsing
