#include "lockstep/serving/reply_parser.h"

#include <utility>

namespace lockstep::serving {
namespace {

constexpr int32_t kNoId = -1;  // no marker has it

}  // namespace

ReplyParser::ReplyParser(ReplyOptions options)
    : scanner_(std::move(options.markers)),
      splitter_(reasoning::make_splitter(
          options.tools == tool_parsing::Format::kHarmony ? reasoning::Format::kHarmony : options.reasoning,
          options.start)),
      tools_(tool_parsing::make_parser(options.tools, options.tool_definitions)),
      stop_(std::move(options.stop)),
      max_calls_(options.max_calls),
      min_tokens_(options.min_tokens) {}

Deltas ReplyParser::push(int32_t token_id, TracedText text) {
  Deltas out;
  if (ended_ || finished_) return out;
  ++num_tokens_;
  const bool was_inside = splitter_->inside();
  for (Lexeme& lexeme : scanner_.push(token_id, std::move(text))) push_lexeme(std::move(lexeme), out);
  // The tags themselves are not counted.
  if (was_inside && splitter_->inside()) ++num_reasoning_tokens_;
  return out;
}

Deltas ReplyParser::push_text(TracedText text) {
  Deltas out;
  if (ended_ || finished_ || text.holds_nothing()) return out;
  for (Lexeme& lexeme : scanner_.push(kNoId, std::move(text))) push_lexeme(std::move(lexeme), out);
  return out;
}

Deltas ReplyParser::finish() {
  Deltas out;
  if (finished_) return out;
  finished_ = true;
  if (ended_) return out;
  for (Lexeme& lexeme : scanner_.finish()) push_lexeme(std::move(lexeme), out);
  reasoning::Split split = splitter_->finish();
  if (!split.reasoning.holds_nothing()) out.push_back({DeltaKind::kReasoning, std::move(split.reasoning)});
  Deltas from_tools;
  for (Lexeme& lexeme : split.rest) tools_->push(std::move(lexeme), from_tools);
  tools_->finish(from_tools);
  pass_on(std::move(from_tools), out);
  if (!ended_) flush_stop(out);
  return out;
}

void ReplyParser::push_lexeme(Lexeme lexeme, Deltas& out) {
  if (ended_) return;
  reasoning::Split split = splitter_->push(std::move(lexeme));
  if (!split.reasoning.holds_nothing()) out.push_back({DeltaKind::kReasoning, std::move(split.reasoning)});
  Deltas from_tools;
  for (Lexeme& rest : split.rest) tools_->push(std::move(rest), from_tools);
  pass_on(std::move(from_tools), out);
}

void ReplyParser::pass_on(Deltas from_tools, Deltas& out) {
  for (Delta& delta : from_tools) {
    if (ended_) return;
    switch (delta.kind) {
      case DeltaKind::kReasoning:
        break;
      case DeltaKind::kContent:
        if (num_tokens_ > min_tokens_) delta.text = stop_.push(std::move(delta.text));
        if (!delta.text.holds_nothing()) out.push_back(std::move(delta));
        ended_ = stop_.matched();
        continue;
      case DeltaKind::kCallBegin:
        flush_stop(out);
        ++num_calls_;
        break;
      case DeltaKind::kCallArguments:
        break;
      case DeltaKind::kCallEnd:
        ++num_complete_calls_;
        ended_ = max_calls_ > 0 && num_calls_ >= max_calls_;
        break;
    }
    out.push_back(std::move(delta));
  }
}

void ReplyParser::flush_stop(Deltas& out) {
  if (TracedText held = stop_.finish(); !held.holds_nothing())
    out.push_back({DeltaKind::kContent, std::move(held)});
}

}  // namespace lockstep::serving
