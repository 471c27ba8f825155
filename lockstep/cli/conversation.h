#pragma once
// Prompts into requests and tokens into replies, through the model folder's own tokenizer and template.
#include <memory>
#include <string>
#include <vector>

#include "lockstep/cli/batch.h"
#include "lockstep/cli/commands.h"
#include "lockstep/serving/chat.h"

namespace lockstep::cli {

struct Prompt {
  std::vector<int32_t> ids;
  serving::ReplyOptions reply;
};

// The messages asked through the chat template; tools may be null.
Result<Prompt> chat_prompt(const serving::ChatModel& model, const Json& messages, const Json& tools,
                           Thinking thinking);
Prompt text_prompt(const serving::ChatModel& model, std::string_view text);
Json user_message(std::string_view text);  // [{"role": "user", "content": text}]

// Whether the values of the flags are ones that an engine takes; the error names the flag.
Status check_flags(const SamplingFlags& flags);

// Where the flags say nothing the model's own defaults hold.
runtime::Request make_request(const Prompt& prompt, const SamplingFlags& flags,
                              const runtime::ModelInfo& model);

struct ToolCall {
  std::string name, arguments;
};

// One reply, read token by token.
class Reply {
 public:
  Reply(const serving::ChatModel& model, serving::ReplyOptions options);

  // The deltas that the token added. Ended() afterwards means that no more tokens are wanted.
  serving::Deltas push(int32_t token_id);
  serving::Deltas finish();
  bool ended() const { return reader_.parser().ended(); }

  const std::string& content() const { return content_; }
  const std::string& reasoning() const { return reasoning_; }
  const std::vector<ToolCall>& calls() const { return calls_; }

 private:
  serving::Deltas keep(serving::Deltas deltas);
  serving::ReplyReader reader_;
  std::string content_, reasoning_;
  std::vector<ToolCall> calls_;
};

// {"content", "reasoning_content"?, "tool_calls"?, "finish_reason", "prompt_tokens", "completion_tokens",
// "error"?}
Json to_json(const Reply& reply, const Answer& answer, size_t num_prompt_tokens);

}  // namespace lockstep::cli
