#pragma once
// Splits a reply of gpt-oss, which is a row of messages in channels:
//
//   <|channel|>analysis<|message|>...<|end|><|start|>assistant<|channel|>final<|message|>...
//
//   The analysis channel is reasoning. The final channel is content, and so is commentary that is addressed
//   to nobody. A message to functions.NAME is a call: kCallBegin with the name, its arguments as text,
//   kCallEnd. Text where a header should stand that becomes none is content.
#include <string>

#include "lockstep/serving/reasoning/reasoning_splitter.h"

namespace lockstep::serving::reasoning {

std::vector<Marker> harmony_markers();

class HarmonySplitter : public Splitter {
 public:
  Split push(Lexeme lexeme) override;
  Split finish() override;
  bool inside() const override { return state_ == State::kMessage && target_ == Target::kReasoning; }

 private:
  enum class State : unsigned char {
    kHeader,   // between <|start|> and <|message|>
    kMessage,  // behind <|message|>
    kBetween,  // behind <|end|>
    kPlain,    // no header came: everything is content
  };
  enum class Target : unsigned char { kReasoning, kContent, kCall };

  void begin_message(Split& split);
  void end_message(Split& split);
  Split push_header(Lexeme lexeme);
  Split push_message(Lexeme lexeme);

  State state_ = State::kHeader;
  Target target_ = Target::kContent;
  TracedText header_;  // what stands in the output of it
  std::string words_;  // the same with a mark where the channel is named
};

}  // namespace lockstep::serving::reasoning
