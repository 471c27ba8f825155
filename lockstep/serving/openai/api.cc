#include "lockstep/serving/openai/api.h"

#include <algorithm>
#include <charconv>
#include <ctime>
#include <utility>

#include "lockstep/serving/openai/chat_form.h"
#include "lockstep/serving/openai/completion_reply.h"
#include "lockstep/serving/openai/completion_request.h"
#include "lockstep/serving/openai/native.h"
#include "lockstep/serving/request_log.h"
#include "lockstep/serving/router.h"

namespace lockstep::serving::openai {
namespace {

constexpr std::string_view kReplicaHeader = "X-Data-Parallel-Rank";
constexpr std::string_view kModelsPath = "/v1/models/";
constexpr std::string_view kResponsesPath = "/v1/responses/";

// The route of a path, so that no name in it becomes a name of a metric.
std::string endpoint_of(const std::string& target) {
  for (const std::string_view below : {kModelsPath, kResponsesPath})
    if (target.starts_with(below)) return std::string(below);
  return target;
}

// The attention replica that a caller asks for.
Result<std::optional<int>> read_replica(const http::Request& request, size_t num_replicas) {
  const std::string_view text = request.header(kReplicaHeader);
  if (text.empty()) return std::optional<int>();
  int replica = -1;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), replica);
  if (failure != std::errc() || end != text.data() + text.size() || replica < 0 ||
      static_cast<size_t>(replica) >= num_replicas)
    return invalid_argument(std::string(kReplicaHeader),
                            "the header {} must be a replica from 0 to {}, not \"{}\"", kReplicaHeader,
                            num_replicas - 1, text);
  return std::optional(replica);
}

}  // namespace

Result<Json> read_body(const http::Request& request) {
  auto body = parse_json(request.body);
  if (!body) return invalid_argument("", "the request body cannot be read as JSON: {}", body.error().message);
  return body;
}

void Api::chat_completions(const http::Request& request, const Responder& responder) const {
  refuse(request, *responder, start_chat(request, responder));
}

void Api::completions(const http::Request& request, const Responder& responder) const {
  refuse(request, *responder, start_completions(request, responder));
}

void Api::generate(const http::Request& request, const Responder& responder) const {
  refuse(request, *responder, start_generate(request, responder));
}

void Api::tokenize(const http::Request& request, const Responder& responder) const {
  refuse(request, *responder, answer_tokenize(request, *responder));
}

void Api::detokenize(const http::Request& request, const Responder& responder) const {
  refuse(request, *responder, answer_detokenize(request, *responder));
}

void Api::embeddings(const http::Request& request, const Responder& responder) const {
  refuse(request, *responder, refuse_embeddings(request));
}

void Api::abort_request(const http::Request& request, const Responder& responder) const {
  refuse(request, *responder, answer_abort(request, *responder));
}

void Api::list_models(const http::Request& /*request*/, const Responder& responder) const {
  responder->send({.body = to_text({{"object", "list"}, {"data", Json::array({model_json()})}})});
}

void Api::show_model(const http::Request& request, const Responder& responder) const {
  const Refusal refusal =
      check_model(percent_decoded(std::string_view(request.target).substr(kModelsPath.size())));
  if (!refusal) return responder->send({.body = to_text(model_json())});
  refuse(request, *responder, refusal);
}

Api::Refusal Api::start_chat(const http::Request& request, const Responder& responder) const {
  const auto received = Clock::now();
  const auto body = read_body(request);
  if (!body) return api_error(body.error());
  const auto chat = read_chat_request(*body, context_.engine.model());
  if (!chat) return api_error(chat.error());
  return answer_chat(request, responder, *chat,
                     {.id_prefix = "chatcmpl-", .prompt_field = "messages", .received = received},
                     [&](ReplyContext context) {
                       return chat->options.stream ? make_chat_stream(std::move(context))
                                                   : make_chat_answer(std::move(context));
                     });
}

Api::Refusal Api::answer_chat(const http::Request& request, const Responder& responder,
                              const ChatRequest& chat, const ChatEnvelope& envelope,
                              const MakeChatListener& make_listener) const {
  if (auto refusal = check_model(chat.model)) return refusal;
  const auto replica = read_replica(request, context_.engine.stats().replicas.size());
  if (!replica) return api_error(replica.error());
  const auto encoded = encode(chat);
  if (!encoded) return api_error(encoded.error());
  if (auto refusal = check_length(encoded->ids.size(), chat.options, envelope.prompt_field)) return refusal;

  const auto constraint = constraint_of(chat, *encoded);
  if (!constraint) return api_error(constraint.error());
  ReplyOptions reply = context_.chat.reply_options(*encoded, chat.tools.tools);
  reply.stop = chat.options.stop;
  reply.min_tokens = chat.options.min_tokens;
  reply.max_calls = chat.tools.one_call_at_most ? 1 : 0;
  std::vector<ChoiceInput> choices;
  for (int i = 0; i < chat.options.num_choices; ++i)
    choices.push_back({engine_request(chat.options, encoded->ids, i, *replica, *constraint), reply});
  ReplyContext context = reply_context(envelope.id_prefix, chat.options, responder);
  context.prompt_tokens = static_cast<int64_t>(encoded->ids.size());
  const std::string id = context.head.id;
  start(request, responder, id, std::move(choices), make_listener(std::move(context)), envelope.received);
  return std::nullopt;
}

Result<EncodedChat> Api::encode(const ChatRequest& chat) const {
  return context_.chat.encode_chat(
      {chat.messages, chat.tools.tools, chat.template_kwargs, chat.add_generation_prompt});
}

Api::Refusal Api::start_completions(const http::Request& request, const Responder& responder) const {
  const auto received = Clock::now();
  const auto body = read_body(request);
  if (!body) return api_error(body.error());
  const auto completion = read_completion_request(*body, context_.engine.model());
  if (!completion) return api_error(completion.error());
  if (auto refusal = check_model(completion->model)) return refusal;
  return continue_prompts(request, responder, *completion, received, "", [&](PromptReply reply) {
    return completion->options.stream
               ? make_completion_stream(std::move(reply.context), std::move(reply.echoes))
               : make_completion_answer(std::move(reply.context), std::move(reply.echoes));
  });
}

Api::Refusal Api::start_generate(const http::Request& request, const Responder& responder) const {
  const auto received = Clock::now();
  const auto body = read_body(request);
  if (!body) return api_error(body.error());
  const auto native = read_native_request(*body, context_.engine.model());
  if (!native) return api_error(native.error());
  return continue_prompts(
      request, responder, native->completion, received, native->id, [&](PromptReply reply) {
        return native->completion.options.stream
                   ? make_native_stream(std::move(reply.context), std::move(reply.prompt_tokens))
                   : make_native_answer(std::move(reply.context), std::move(reply.prompt_tokens),
                                        native->answers);
      });
}

Api::Refusal Api::continue_prompts(const http::Request& request, const Responder& responder,
                                   const CompletionRequest& completion, Clock::time_point received,
                                   const std::string& own_id, const MakeListener& make_listener) const {
  const auto replica = read_replica(request, context_.engine.stats().replicas.size());
  if (!replica) return api_error(replica.error());
  const GenerationOptions& options = completion.options;
  const auto constraint = constraint_of(options);
  if (!constraint) return api_error(constraint.error());
  PromptReply reply{.context = reply_context("cmpl-", options, responder)};
  if (!own_id.empty()) reply.context.head.id = own_id;
  reply.context.num_choices = options.num_choices * static_cast<int>(completion.prompts.size());
  std::vector<ChoiceInput> choices;
  for (const Prompt& prompt : completion.prompts) {
    const auto* text = std::get_if<std::string>(&prompt);
    const std::vector<int32_t> ids =
        text ? context_.chat.encode_prompt(*text) : std::get<std::vector<int32_t>>(prompt);
    if (ids.empty())
      return ApiError{
          .message = fmt::format("'{}' is empty, and this model's tokenizer puts nothing before it",
                                 completion.prompt_field),
          .param = completion.prompt_field};
    if (auto refusal = check_length(ids.size(), options, completion.prompt_field)) return refusal;
    reply.context.prompt_tokens += static_cast<int64_t>(ids.size());
    for (int i = 0; i < options.num_choices; ++i) {
      choices.push_back({engine_request(options, ids, i, *replica, *constraint),
                         {.stop = options.stop, .min_tokens = options.min_tokens}});
      reply.prompt_tokens.push_back(static_cast<int64_t>(ids.size()));
      if (completion.echo)
        reply.echoes.push_back(text ? *text : context_.chat.tokenizer().decode(ids, SpecialTokens::kSkip));
    }
  }
  if (auto refusal = check_scored(completion, reply.context.prompt_tokens)) return refusal;
  const std::string id = reply.context.head.id;
  start(request, responder, id, std::move(choices), make_listener(std::move(reply)), received);
  return std::nullopt;
}

Result<ConstraintMaker> Api::constraint_of(const GenerationOptions& options) const {
  if (!options.form) return ConstraintMaker();
  auto form = context_.grammars.compile(*options.form);
  if (!form) return form.error();
  return ConstraintMaker([form = std::move(*form)] { return form.start({}); });
}

Result<ConstraintMaker> Api::constraint_of(const ChatRequest& chat, const EncodedChat& encoded) const {
  auto wanted = wanted_form(chat, context_.chat, encoded);
  if (!wanted) return wanted.error();
  if (!*wanted) return ConstraintMaker();
  auto form = context_.grammars.compile((*wanted)->form);
  if (!form) return form.error();
  return ConstraintMaker(
      [form = std::move(*form), openings = std::move((*wanted)->openings)] { return form.start(openings); });
}

Api::Refusal Api::check_model(const std::optional<std::string>& name) const {
  if (!name || *name == context_.model_name) return std::nullopt;
  return ApiError{.status = 404,
                  .message = fmt::format("The model `{}` does not exist; this server has `{}`", *name,
                                         context_.model_name),
                  .param = "model",
                  .code = "model_not_found"};
}

Api::Refusal Api::check_length(size_t prompt_length, const GenerationOptions& options,
                               std::string_view field) const {
  const auto context_length = static_cast<size_t>(context_.engine.model().context_length);
  // At least one token must fit behind the prompt, unless none is wanted.
  const size_t least = options.max_tokens == 0 ? 0 : 1;
  if (prompt_length + least <= context_length) return std::nullopt;
  return ApiError{
      .message = fmt::format(
          "This model's maximum context length is {} tokens. However, your {} resulted in {} tokens, "
          "which leaves no room for an answer. Please reduce the length of the {}.",
          context_length, field, prompt_length, field),
      .param = std::string(field),
      .code = "context_length_exceeded"};
}

// Log probabilities of prompts are written for every choice, between the texts of all others.
Api::Refusal Api::check_scored(const CompletionRequest& completion, int64_t prompt_tokens) const {
  constexpr int64_t kMaxScored = int64_t{1} << 18;
  const GenerationOptions& options = completion.options;
  if (options.prompt_logprobs < 0) return std::nullopt;
  if (options.max_tokens == 0 && options.num_choices > 1)
    return ApiError{.message = fmt::format("'n' is {}: with max_tokens 0 all choices are the prompt, give 1",
                                           options.num_choices),
                    .param = "n"};
  const int64_t limit = std::max<int64_t>(kMaxScored, context_.engine.model().context_length);
  const int64_t scored = prompt_tokens * options.num_choices;
  if (scored <= limit) return std::nullopt;
  return ApiError{.message = fmt::format(
                      "'{}': with echo and logprobs all choices' prompts may have {} tokens together, not "
                      "{}; ask for fewer prompts at a time, or a smaller n",
                      completion.prompt_field, limit, scored),
                  .param = completion.prompt_field};
}

// max_tokens is an upper bound: what does not fit into the context any more ends with finish_reason "length"
// as well.
runtime::Request Api::engine_request(const GenerationOptions& options, std::vector<int32_t> prompt,
                                     int choice_idx, std::optional<int> replica,
                                     const ConstraintMaker& constraint) const {
  const int room = context_.engine.model().context_length - static_cast<int>(prompt.size());
  runtime::Request request{.prompt = std::move(prompt), .sampling = options.sampling};
  request.sampling.seed = seed_of_choice(options.sampling.seed, choice_idx);
  request.max_new_tokens = std::min(options.max_tokens.value_or(room), room);
  request.min_new_tokens = std::min(options.min_tokens, request.max_new_tokens);
  request.stop_token_ids = options.stop_token_ids;
  request.ignore_eos = options.ignore_eos;
  request.num_top_logprobs = options.num_top_logprobs;
  request.prompt_logprobs = options.prompt_logprobs;
  request.replica = replica;
  request.priority = options.priority;
  request.tenant = options.user;
  request.cache_salt = options.cache_salt;
  if (constraint) request.constraint = constraint();
  return request;
}

ReplyContext Api::reply_context(std::string_view id_prefix, const GenerationOptions& options,
                                Responder responder) const {
  return {.head = {random_id(id_prefix), static_cast<int64_t>(std::time(nullptr)), context_.model_name,
                   context_.fingerprint},
          .tokenizer = &context_.chat.tokenizer(),
          .responder = std::move(responder),
          .num_choices = options.num_choices,
          .choices_per_prompt = options.num_choices,
          .num_top_logprobs = options.num_top_logprobs,
          .include_usage = options.include_usage};
}

std::string Api::owner_of(const http::Request& request) const {
  return context_.tenants == ApiContext::Tenants::kOne ? std::string() : std::string(given_key(request));
}

// A key's requests are apart from all others, whatever they say themselves.
void Api::set_tenant(const http::Request& from, runtime::Request& request) const {
  if (context_.tenants == ApiContext::Tenants::kOne) return;
  const auto with_key = [key = given_key(from)](std::string_view name) {
    return fmt::format("{}:{}{}", key.size(), key, name);
  };
  request.tenant = with_key(request.tenant);
  request.cache_salt = with_key(request.cache_salt);
}

void Api::start(const http::Request& request, const Responder& responder, const std::string& id,
                std::vector<ChoiceInput> choices, std::unique_ptr<GenerationListener> listener,
                Clock::time_point received) const {
  for (ChoiceInput& choice : choices) {
    choice.request.label = request.header(kRequestIdHeader);
    set_tenant(request, choice.request);
  }
  const int num_choices = static_cast<int>(choices.size());
  auto generation = std::make_shared<Generation>(
      context_.engine, context_.chat.tokenizer(), std::move(choices),
      context_.metrics.measure(std::move(listener), request.target, received, num_choices));
  generation->keep(open_->add(owner_of(request), id, generation));
  responder->on_disconnect(
      [weak = std::weak_ptr(generation), replies = context_.replies] { Generation::cancel(weak, *replies); });
  generation->start(context_.replies);
}

void Api::give_up_all(const Error& error) const {
  for (const auto& generation : open_->all()) Generation::give_up(generation, *context_.replies, error);
}

void Api::refuse(const http::Request& request, http::Responder& responder, const Refusal& error,
                 ErrorForm form) const {
  if (!error) return;
  context_.metrics.count_refusal(endpoint_of(request.target), error->status);
  responder.send(form(*error));
}

Json Api::model_json() const {
  return {{"id", context_.model_name},
          {"object", "model"},
          {"created", context_.started_at},
          {"owned_by", "lockstep"},
          {"max_model_len", context_.engine.model().context_length}};
}

}  // namespace lockstep::serving::openai
