#pragma once
// How a chat template wants the calls of earlier turns: some print an object of arguments as JSON, some join
// its text; some look for calls only where the content is null; some want ids of nine letters and digits.
// Found out by rendering a small chat. Private to chat.cc.
#include <functional>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"

namespace lockstep::serving {

struct CallForm {
  enum class Arguments : unsigned char { kObject, kText };
  enum class EmptyContent : unsigned char { kKept, kNull };
  Arguments arguments = Arguments::kObject;
  EmptyContent empty_content = EmptyContent::kKept;
  enum class Ids : unsigned char { kKept, kNineCharacters };
  Ids ids = Ids::kKept;
  bool operator==(const CallForm&) const = default;
};

// The first form whose calls `render` prints; the usual one when it prints none in any form.
CallForm find_call_form(const std::function<Result<std::string>(const Json& messages)>& render);

// Brings every call in `messages` into the form. Arguments that are no JSON object stay the text that they
// are.
void apply_call_form(const CallForm& form, Json& messages);

}  // namespace lockstep::serving
