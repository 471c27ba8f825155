#pragma once
// The endpoints of OpenAI's API: reads a request, encodes its prompt and sets a Generation going. Every
// method runs on a worker's thread and answers through the responder, at once or later.
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/runtime/engine.h"
#include "lockstep/serving/chat.h"
#include "lockstep/serving/constraints/grammar_compiler.h"
#include "lockstep/serving/generation.h"
#include "lockstep/serving/http/http.h"
#include "lockstep/serving/openai/api_error.h"
#include "lockstep/serving/openai/chat_reply.h"
#include "lockstep/serving/openai/chat_request.h"
#include "lockstep/serving/openai/completion_request.h"
#include "lockstep/serving/openai/generation_options.h"
#include "lockstep/serving/openai/open_generations.h"
#include "lockstep/serving/serving_metrics.h"
#include "lockstep/serving/task_queue.h"

namespace lockstep::serving::openai {

// Makes the constraint of one choice; null where there is none.
using ConstraintMaker = std::function<std::shared_ptr<runtime::TokenConstraint>()>;

struct ApiContext {
  runtime::Engine& engine;
  const ChatModel& chat;
  const constraints::GrammarCompiler& grammars;
  ServingMetrics& metrics;
  std::shared_ptr<TaskQueue> replies;  // of one thread, see generation.h
  std::string model_name;              // as the API calls it
  int64_t started_at = 0;              // seconds of Unix time
  std::string fingerprint;
  // Each API key is a tenant of its own: tenants take turns, share nothing of the cache, and abort only what
  // is theirs.
  enum class Tenants : unsigned char { kOne, kOneKey, kManyKeys } tenants = Tenants::kOne;
};

// The body as JSON; the error is the client's.
Result<Json> read_body(const http::Request& request);

class Api {
 public:
  using Responder = std::shared_ptr<http::Responder>;
  using Clock = std::chrono::steady_clock;
  // What may go wrong before an answer has begun; nothing when the answer is on its way.
  using Refusal = std::optional<ApiError>;

  // What the context refers to must outlive this.
  explicit Api(ApiContext context) : context_(std::move(context)) {}

  void chat_completions(const http::Request& request, const Responder& responder) const;
  void completions(const http::Request& request, const Responder& responder) const;
  void generate(const http::Request& request, const Responder& responder) const;  // SGLang's
  void flush_cache(const http::Request& request, const Responder& responder) const;
  void abort_request(const http::Request& request, const Responder& responder) const;
  void embeddings(const http::Request& request, const Responder& responder) const;
  void list_models(const http::Request& request, const Responder& responder) const;
  void show_model(const http::Request& request, const Responder& responder) const;
  void tokenize(const http::Request& request, const Responder& responder) const;
  void detokenize(const http::Request& request, const Responder& responder) const;

  // What every API of chats is made of: the chat becomes a prompt, and what comes of it is told to the
  // listener.
  struct ChatEnvelope {
    std::string_view id_prefix;     // of the answer's id
    std::string_view prompt_field;  // how errors name the messages
    Clock::time_point received;
  };
  using MakeChatListener = std::function<std::unique_ptr<GenerationListener>(ReplyContext context)>;
  Refusal answer_chat(const http::Request& request, const Responder& responder, const ChatRequest& chat,
                      const ChatEnvelope& envelope, const MakeChatListener& make_listener) const;
  Result<EncodedChat> encode(const ChatRequest& chat) const;
  Refusal check_model(const std::optional<std::string>& name) const;
  void refuse(const http::Request& request, http::Responder& responder, const Refusal& error,
              ErrorForm form = error_response) const;
  // From any thread: answers that are being made end with the error.
  void give_up_all(const Error& error) const;
  const runtime::Engine& engine() const { return context_.engine; }

 private:
  Refusal start_chat(const http::Request& request, const Responder& responder) const;
  Refusal start_completions(const http::Request& request, const Responder& responder) const;
  Refusal start_generate(const http::Request& request, const Responder& responder) const;

  // What an answer to prompts is made from.
  struct PromptReply {
    ReplyContext context;
    std::vector<std::string> echoes;     // of each choice, where prompts are repeated
    std::vector<int64_t> prompt_tokens;  // of each choice
  };
  using MakeListener = std::function<std::unique_ptr<GenerationListener>(PromptReply reply)>;
  Refusal continue_prompts(const http::Request& request, const Responder& responder,
                           const CompletionRequest& completion, Clock::time_point received,
                           const std::string& own_id, const MakeListener& make_listener) const;
  Refusal answer_tokenize(const http::Request& request, http::Responder& responder) const;
  Refusal answer_abort(const http::Request& request, http::Responder& responder) const;
  Refusal refuse_embeddings(const http::Request& request) const;
  Refusal answer_detokenize(const http::Request& request, http::Responder& responder) const;

  // What an answer's text must be; none where it may be anything.
  Result<ConstraintMaker> constraint_of(const ChatRequest& chat, const EncodedChat& encoded) const;
  Result<ConstraintMaker> constraint_of(const GenerationOptions& options) const;
  Refusal check_length(size_t prompt_length, const GenerationOptions& options, std::string_view field) const;
  Refusal check_scored(const CompletionRequest& completion, int64_t prompt_tokens) const;
  runtime::Request engine_request(const GenerationOptions& options, std::vector<int32_t> prompt,
                                  int choice_idx, std::optional<int> replica,
                                  const ConstraintMaker& constraint) const;
  std::string owner_of(const http::Request& request) const;  // the key's, where keys are tenants
  void set_tenant(const http::Request& from, runtime::Request& request) const;
  ReplyContext reply_context(std::string_view id_prefix, const GenerationOptions& options,
                             Responder responder) const;
  // `id`: by which the answer may be aborted.
  void start(const http::Request& request, const Responder& responder, const std::string& id,
             std::vector<ChoiceInput> choices, std::unique_ptr<GenerationListener> listener,
             Clock::time_point received) const;
  Json model_json() const;

  ApiContext context_;
  const std::shared_ptr<OpenGenerations> open_ = std::make_shared<OpenGenerations>();
};

}  // namespace lockstep::serving::openai
