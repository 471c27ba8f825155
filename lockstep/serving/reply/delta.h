#pragma once
// One addition to a reply. Streamed answers send deltas on; whole answers add them up: there is no second way
// to build an answer, so the two cannot differ.
#include <vector>

#include "lockstep/serving/reply/traced_text.h"

namespace lockstep::serving {

enum class DeltaKind : unsigned char {
  kReasoning,
  kContent,
  kCallBegin,      // text is the function's name
  kCallArguments,  // text is a piece of the arguments' JSON
  kCallEnd,        // no text: the call is complete and its arguments are a JSON object
};

struct Delta {
  DeltaKind kind = DeltaKind::kContent;
  TracedText text;
  int call_idx = -1;  // of the three call kinds: 0, 1, ...
};

using Deltas = std::vector<Delta>;

}  // namespace lockstep::serving
