#pragma once
// What the parsers of this folder share: content around calls, and the deltas of one call after another.
#include <string>
#include <string_view>

#include "lockstep/serving/reply/delta.h"

namespace lockstep::serving::tool_parsing {

class CallBuilder {
 public:
  // Content; line feeds at its end wait for what follows: a call drops them, text and finish() let them
  // through.
  void content(TracedText text, Deltas& out);
  void finish_content(Deltas& out);

  void begin(std::string name, Deltas& out);
  void arguments(std::string piece, Deltas& out);
  // The model closed the call: kCallEnd when the arguments are a JSON object; none at all become {}.
  void end(Deltas& out);
  // The output ended inside the call. Without `unsure`, text that may be frame, the arguments are whole, or
  // it is theirs.
  void cut_off(std::string unsure, Deltas& out);

  bool in_call() const { return in_call_; }
  int num_calls() const { return call_idx_ + 1; }

 private:
  bool arguments_are_complete() const;

  TracedText held_newlines_;
  bool after_call_ = false;  // line feeds that follow a call are frame
  bool in_call_ = false;
  int call_idx_ = -1;
  std::string arguments_;
};

std::string_view trimmed(std::string_view text);

}  // namespace lockstep::serving::tool_parsing
