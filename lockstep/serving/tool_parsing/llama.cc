#include "lockstep/serving/tool_parsing/llama.h"

#include <set>
#include <string>
#include <utility>

#include "lockstep/serving/tool_parsing/call_builder.h"
#include "lockstep/serving/tool_parsing/json_calls.h"

namespace lockstep::serving::tool_parsing {
namespace {

NameCheck one_of(const Json& tools) {
  std::set<std::string> names;
  for (const Json& tool : tools)
    if (tool.is_object() && tool.contains("function") && tool["function"].is_object())
      names.insert(tool["function"].value("name", ""));
  return [names = std::move(names)](const std::string& name) { return names.contains(name); };
}

class LlamaParser : public ToolParser {
 public:
  explicit LlamaParser(const Json& tools) : objects_(";", one_of(tools)) {}

  void push(Lexeme lexeme, Deltas& out) override {
    if (state_ == State::kStart) {
      if (lexeme.kind == MarkerKind::kCallsBegin) {
        state_ = State::kObjects;
        held_.append(std::move(lexeme.text));
        return objects_.begin_unread(held_.take_all());
      }
      held_.append(std::move(lexeme.text));
      const size_t first = held_.text().find_first_not_of(" \t\r\n");
      if (first == std::string::npos) return;
      state_ = held_.text()[first] == '{' ? State::kObjects : State::kContent;
      lexeme.text = held_.take_all();
    }
    if (state_ == State::kObjects) {
      objects_.push(std::move(lexeme.text), call_, out);
      if (objects_.refused()) state_ = State::kContent;
      return;
    }
    call_.content(std::move(lexeme.text), out);
  }

  void finish(Deltas& out) override {
    if (state_ == State::kStart) call_.content(held_.take_all(), out);
    if (state_ == State::kObjects) objects_.finish(call_, out);
    call_.finish_content(out);
  }

 private:
  enum class State : unsigned char { kStart, kObjects, kContent };
  State state_ = State::kStart;
  CallBuilder call_;
  JsonCalls objects_;
  TracedText held_;  // white space before anything else
};

}  // namespace

std::vector<Marker> llama_markers() { return {{MarkerKind::kCallsBegin, "<|python_tag|>", {}}}; }

std::unique_ptr<ToolParser> make_llama_parser(const Json& tools) {
  return std::make_unique<LlamaParser>(tools);
}

}  // namespace lockstep::serving::tool_parsing
