#pragma once
// What stands between <tool_call> and </tool_call>, read as it is written. Private to tool_parsing.
#include <memory>
#include <string_view>

#include "lockstep/base/json.h"
#include "lockstep/serving/tool_parsing/call_builder.h"

namespace lockstep::serving::tool_parsing {

class CallBody {
 public:
  virtual ~CallBody() = default;
  // Begins the call in `call` once its name is known and hands its arguments on.
  virtual void push(std::string_view text, CallBuilder& call, Deltas& out) = 0;
  // At </tool_call>.
  virtual void close(CallBuilder& call, Deltas& out) = 0;
  // True when this cannot become a call any more; said only before the call began.
  virtual bool refused() const = 0;
};

std::unique_ptr<CallBody> make_json_body();
// `tools`: the request's array; a parameter's declared type says whether its text is a string or JSON.
std::unique_ptr<CallBody> make_function_body(const Json& tools);

}  // namespace lockstep::serving::tool_parsing
