#pragma once
// A model folder's way of talking: its tokenizer, its chat template, and how its replies mark reasoning and
// calls. What the server and the command line share; it knows no engine and no HTTP.
//
// Prompts. A chat is rendered by the template and the text is encoded with added tokens parsed, which gives
// the ids that Hugging Face's apply_chat_template gives. One thing is done differently on purpose: where a
// message of a user, a system or a tool (or a tool's definition) spells out a *special* token, that spelling
// is encoded as ordinary text, so that no text can forge the end of its message. Messages of the assistant
// are encoded as Hugging Face does, for templates look for tags in them. A prompt without a template
// (/v1/completions) is the caller's own: special tokens in it are parsed.
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"
#include "lockstep/serving/call_form.h"
#include "lockstep/serving/chat_template/chat_template.h"
#include "lockstep/serving/chat_template_variables.h"
#include "lockstep/serving/control_text.h"
#include "lockstep/serving/reply_parser.h"
#include "lockstep/serving/tokenizer/incremental_decoder.h"
#include "lockstep/serving/tokenizer/tokenizer.h"

namespace lockstep::serving {

// Nothing given: seen from the tokens that the tokenizer holds and from the template's text.
struct ChatOptions {
  std::optional<reasoning::Format> reasoning;
  std::optional<tool_parsing::Format> tools;
};

struct EncodedChat {
  std::string text;
  std::vector<int32_t> ids;
  reasoning::Place reply_start = reasoning::Place::kOutside;
};

// Reads one reply's tokens. The model must outlive it.
class ReplyReader {
 public:
  ReplyReader(const Tokenizer& tokenizer, ReplyOptions options);

  // `token_idx` is remembered in the deltas' texts unless it is TracedText::kNoToken.
  Deltas push(int32_t token_id, int token_idx = TracedText::kNoToken);
  Deltas finish();
  const ReplyParser& parser() const { return parser_; }

 private:
  const Tokenizer* tokenizer_;
  IncrementalDecoder decoder_;
  ReplyParser parser_;
};

class ChatModel {
 public:
  // The folder must hold tokenizer.json; without a chat template only plain completions work.
  static Result<ChatModel> load(const std::filesystem::path& directory, const ChatOptions& options = {});

  const Tokenizer& tokenizer() const { return tokenizer_; }
  reasoning::Format reasoning_format() const { return reasoning_; }
  tool_parsing::Format tool_format() const { return tools_; }
  bool has_template() const { return template_.has_value(); }
  std::string_view template_source() const { return template_ ? template_->source() : std::string_view(); }
  // Special tokens that replies are read by: of the markers of reasoning and calls those that are tokens.
  std::vector<int32_t> marker_ids() const;

  // Errors are the caller's: the template refuses the messages, the model has no template or no form of
  // calls.
  Result<EncodedChat> encode_chat(const ChatInput& input) const;

  // Text that no template rendered, with the tokens that the tokenizer puts before a prompt.
  std::vector<int32_t> encode_prompt(std::string_view text) const;

  // How the reply to such a chat is to be read; stop strings and limits are the caller's to add.
  ReplyOptions reply_options(const EncodedChat& chat, const Json& tools) const;

 private:
  ChatModel(Tokenizer tokenizer, std::optional<ChatTemplate> chat_template);
  void choose_formats(const ChatOptions& options);
  void probe_template();

  Tokenizer tokenizer_;
  std::optional<ChatTemplate> template_;
  Json special_variables_;  // bos_token, eos_token, ...
  ControlSpellings spellings_;
  std::vector<int32_t> prompt_prefix_;
  reasoning::Format reasoning_ = reasoning::Format::kNone;
  tool_parsing::Format tools_ = tool_parsing::Format::kNone;
  bool template_prints_tools_ = false;
  CallForm call_form_;
};

}  // namespace lockstep::serving
