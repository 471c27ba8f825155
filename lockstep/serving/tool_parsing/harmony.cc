#include "lockstep/serving/tool_parsing/harmony.h"

#include <utility>

#include "lockstep/serving/tool_parsing/call_builder.h"

namespace lockstep::serving::tool_parsing {
namespace {

class HarmonyParser : public ToolParser {
 public:
  void push(Lexeme lexeme, Deltas& out) override {
    if (lexeme.kind == MarkerKind::kCallBegin) {
      call_.end(out);
      call_.begin(lexeme.text.text(), out);
    } else if (lexeme.kind == MarkerKind::kCallEnd) {
      call_.end(out);
    } else if (call_.in_call()) {
      call_.arguments(lexeme.text.text(), out);
    } else {
      call_.content(std::move(lexeme.text), out);
    }
  }

  void finish(Deltas& out) override {
    call_.cut_off({}, out);
    call_.finish_content(out);
  }

 private:
  CallBuilder call_;
};

}  // namespace

std::unique_ptr<ToolParser> make_harmony_parser() { return std::make_unique<HarmonyParser>(); }

}  // namespace lockstep::serving::tool_parsing
