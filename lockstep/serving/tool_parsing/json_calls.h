#pragma once
// JSON objects in a row, each a call: as Mistral writes them in an array and Llama one behind the other.
// Private to tool_parsing.
#include <memory>
#include <string>

#include "lockstep/serving/tool_parsing/call_body.h"
#include "lockstep/serving/tool_parsing/json_value.h"

namespace lockstep::serving::tool_parsing {

class JsonCalls {
 public:
  // `separators`: characters that may stand between the objects, besides white space.
  JsonCalls(std::string separators, NameCheck accepts);

  // Text that came before the first object, part of it should it be no call.
  void begin_unread(TracedText text) { unread_.append(std::move(text)); }
  void push(TracedText text, CallBuilder& call, Deltas& out);
  // No more text belongs to these objects.
  void finish(CallBuilder& call, Deltas& out);

  // True once something stood there that is no call; it was made content.
  bool refused() const { return refused_; }

 private:
  void push_object(TracedText piece, CallBuilder& call, Deltas& out);
  void refuse(TracedText rest, CallBuilder& call, Deltas& out);

  const std::string between_;
  const NameCheck accepts_;
  std::unique_ptr<CallBody> body_;  // of the object that is being read
  ValueEnd end_;
  TracedText unread_;  // of an object that has not become a call
  bool refused_ = false;
};

}  // namespace lockstep::serving::tool_parsing
