#pragma once
// Turns the output tokens of one reply, one by one, into deltas of reasoning, content and tool calls. Server
// and command line use this same class; it knows no tokenizer, no engine and no JSON API.
//
// Stop strings are looked for in the content only: one inside reasoning or inside the arguments of a call
// would end the reply before its answer, or break its JSON.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/serving/reasoning/reasoning_splitter.h"
#include "lockstep/serving/reply/delta.h"
#include "lockstep/serving/reply/marker_scanner.h"
#include "lockstep/serving/reply/stop_strings.h"
#include "lockstep/serving/tool_parsing/tool_parser.h"

namespace lockstep::serving {

struct ReplyOptions {
  std::vector<Marker> markers;  // of both formats, with the ids that the tokenizer has for them
  reasoning::Format reasoning = reasoning::Format::kNone;
  reasoning::Place start = reasoning::Place::kOutside;
  tool_parsing::Format tools = tool_parsing::Format::kNone;
  Json tool_definitions;          // the request's "tools"
  int max_calls = 0;              // the reply ends with this many calls; 0 is any number
  std::vector<std::string> stop;  // stop strings
  int min_tokens = 0;             // stop strings that end within so many tokens count as text
};

class ReplyParser {
 public:
  explicit ReplyParser(ReplyOptions options);

  bool is_marker_token(int32_t token_id) const { return scanner_.is_marker_token(token_id); }

  // `text`: what decoding this token added. Ignored once ended() is true.
  Deltas push(int32_t token_id, TracedText text);
  // Text that decoding adds late, after the token it belongs to.
  Deltas push_text(TracedText text);
  // The last deltas; to be called once, also after ended().
  Deltas finish();

  // True when a stop string or max_calls ended the reply: no more tokens are wanted.
  bool ended() const { return ended_; }
  const std::string& stop_string() const { return stop_.match(); }  // that ended the reply; empty: none did
  int num_tokens() const { return num_tokens_; }
  int num_reasoning_tokens() const { return num_reasoning_tokens_; }
  int num_calls() const { return num_calls_; }
  int num_complete_calls() const { return num_complete_calls_; }

 private:
  void push_lexeme(Lexeme lexeme, Deltas& out);
  void pass_on(Deltas from_tools, Deltas& out);
  void flush_stop(Deltas& out);

  MarkerScanner scanner_;
  std::unique_ptr<reasoning::Splitter> splitter_;
  std::unique_ptr<tool_parsing::ToolParser> tools_;
  StopStrings stop_;
  const int max_calls_, min_tokens_;
  bool ended_ = false, finished_ = false;
  int num_tokens_ = 0, num_reasoning_tokens_ = 0, num_calls_ = 0, num_complete_calls_ = 0;
};

}  // namespace lockstep::serving
