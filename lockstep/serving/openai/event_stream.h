#pragma once
// What the streams of chat and of completions share: the chunks' common head, usage, the end and errors.
#include <string>
#include <string_view>

#include "lockstep/base/check.h"
#include "lockstep/serving/openai/chat_reply.h"

namespace lockstep::serving::openai {

class EventStream {
 public:
  // `object` is every chunk's: "chat.completion.chunk".
  EventStream(ReplyContext context, std::string_view object);

  const ReplyContext& context() const { return context_; }

  void start();
  // A chunk with one choice. `body` is JSON text without braces: "delta":{...} or "text":"...".
  void choice(int choice_idx, std::string_view body, std::string_view logprobs_json,
              std::string_view finish_reason);
  void add_usage(int choice_idx, const ChoiceEnd& end);
  void finish();
  void fail(const Error& error);

 private:
  ReplyContext context_;
  std::string head_;  // {"id":...,"system_fingerprint":...
  Usage usage_;
  bool started_ = false;
};

std::string_view name_of(ChoiceFinish finish);

}  // namespace lockstep::serving::openai
