// Any bytes as the body of a request: they are refused with a message, or become a request whose prompt can
// be encoded. The first byte picks the endpoint.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "lockstep/serving/anthropic/message_request.h"
#include "lockstep/serving/chat.h"
#include "lockstep/serving/openai/chat_request.h"
#include "lockstep/serving/openai/completion_request.h"
#include "lockstep/serving/openai/responses_request.h"
#include "tests/source_dir.h"

namespace {

using namespace lockstep;
using namespace lockstep::serving;

const ChatModel& model() {
  static const ChatModel loaded =
      *ChatModel::load(std::string(LOCKSTEP_SOURCE_DIR) + "/models/tutor-deepseek-v3");
  return loaded;
}

void must(bool holds) {
  if (!holds) std::abort();
}

void must_explain(const Error& error) {
  must(!error.message.empty());
  must(error.code == ErrorCode::kInvalidArgument);
}

void try_prompt(const openai::ChatRequest& request) {
  const auto& options = request.options;
  must(options.num_choices >= 1 && options.num_choices <= openai::kMaxChoices);
  must(!options.max_tokens || *options.max_tokens >= 1);
  const auto chat = model().encode_chat(
      {request.messages, request.tools.tools, request.template_kwargs, request.add_generation_prompt});
  if (!chat) return must_explain(chat.error());
  for (const int32_t id : chat->ids) must(id >= 0 && id < model().tokenizer().size());
  ReplyReader reader(model().tokenizer(), model().reply_options(*chat, request.tools.tools));
  for (const int32_t id : chat->ids) reader.push(id);
  reader.finish();
}

void try_chat(const Json& body, const runtime::ModelInfo& info) {
  const auto request = openai::read_chat_request(body, info);
  if (!request) return must_explain(request.error());
  try_prompt(*request);
}

void try_responses(const Json& body, const runtime::ModelInfo& info) {
  if (const auto previous = openai::previous_response(body); !previous) must_explain(previous.error());
  const auto request = openai::read_responses_request(body, Json::array(), info);
  if (!request) return must_explain(request.error());
  const auto kept = parse_json(request->items);
  must(kept.ok() && kept->is_array() && request->shown.is_object());
  // What was kept can be gone on from, unless it is too long by then.
  const auto next = openai::read_responses_request(body, *kept, info);
  if (!next) must_explain(next.error());
  try_prompt(request->chat);
}

void try_messages(const Json& body, const runtime::ModelInfo& info) {
  const auto request = anthropic::read_message_request(body, anthropic::Purpose::kAnswer, info);
  if (!request) return must_explain(request.error());
  try_prompt(*request);
}

void try_completion(const Json& body, const runtime::ModelInfo& info) {
  const auto request = openai::read_completion_request(body, info);
  if (!request) return must_explain(request.error());
  must(!request->prompts.empty());
  for (const openai::Prompt& prompt : request->prompts) {
    if (const auto* text = std::get_if<std::string>(&prompt)) model().encode_prompt(*text);
    if (const auto* ids = std::get_if<std::vector<int32_t>>(&prompt))
      for (const int32_t id : *ids) must(id >= 0 && id < info.vocab);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0 || size > (1 << 16)) return 0;
  const auto body = parse_json({reinterpret_cast<const char*>(data) + 1, size - 1});
  if (!body) return 0;
  const runtime::ModelInfo info{.name = "m", .vocab = 1024, .context_length = 4096};
  switch (data[0] % 4) {
    case 0:
      try_chat(*body, info);
      break;
    case 1:
      try_completion(*body, info);
      break;
    case 2:
      try_responses(*body, info);
      break;
    default:
      try_messages(*body, info);
  }
  return 0;
}
