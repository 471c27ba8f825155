#pragma once
// One call, read as it is written. Private to tool_parsing.
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "lockstep/base/json.h"
#include "lockstep/serving/tool_parsing/call_builder.h"

namespace lockstep::serving::tool_parsing {

class CallBody {
 public:
  virtual ~CallBody() = default;
  // Begins the call in `call` once its name is known and hands its arguments on.
  virtual void push(std::string_view text, CallBuilder& call, Deltas& out) = 0;
  // The text of the call is over: at </tool_call>, or at the end of what the body itself read.
  virtual void close(CallBuilder& call, Deltas& out) = 0;
  // True when this cannot become a call any more; said only before the call began.
  virtual bool refused() const = 0;
};

// A body that finds its own end in the text.
class SelfEndingBody : public CallBody {
 public:
  virtual bool done() const = 0;
  // After done(): what was pushed beyond the end.
  virtual std::string take_rest() = 0;
};

// Says whether a name may be called; an empty one accepts all.
using NameCheck = std::function<bool(const std::string& name)>;

// {"name": ..., "arguments": ...}
std::unique_ptr<CallBody> make_json_body(NameCheck accepts = {});

// In the bodies below a parameter's declared type says whether its text is a string or JSON. `tools`: the
// request's array, which must outlive the body.
//
// <function=NAME> <parameter=KEY> VALUE </parameter> </function>: Qwen3.5, Qwen3-Coder.
std::unique_ptr<CallBody> make_function_body(const Json& tools);
// NAME <arg_key>KEY</arg_key> <arg_value>VALUE</arg_value>: GLM.
std::unique_ptr<CallBody> make_glm_body(const Json& tools);
// <｜DSML｜invoke name="NAME"> <｜DSML｜parameter name="KEY" string="true|false">VALUE</｜DSML｜parameter>
// </｜DSML｜invoke>: DeepSeek-V3.2.
std::unique_ptr<SelfEndingBody> make_dsml_body(const Json& tools);

}  // namespace lockstep::serving::tool_parsing
