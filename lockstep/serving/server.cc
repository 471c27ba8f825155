#include "lockstep/serving/server.h"

#include <ctime>
#include <utility>

#include "lockstep/base/hash.h"
#include "lockstep/base/log.h"
#include "lockstep/serving/anthropic/messages.h"
#include "lockstep/serving/http/http.h"
#include "lockstep/serving/openai/api.h"
#include "lockstep/serving/openai/api_error.h"
#include "lockstep/serving/openai/responses.h"
#include "lockstep/serving/router.h"
#include "lockstep/serving/serving_metrics.h"
#include "lockstep/serving/starting_server.h"
#include "lockstep/serving/status_pages.h"
#include "lockstep/serving/task_queue.h"
#include "lockstep/serving/web/web.h"

namespace lockstep::serving {
namespace {

// Says whether two answers to the same seed come from the same configuration.
std::string fingerprint_of(const runtime::Engine& engine) {
  Hasher hash;
  hash.add(engine.model().name).add(engine.model().directory).add(engine.plan_text());
  return fmt::format("fp_{:012x}", hash.value() >> 16);
}

openai::ApiContext::Tenants tenants_of(const std::vector<std::string>& api_keys) {
  using Tenants = openai::ApiContext::Tenants;
  if (api_keys.empty()) return Tenants::kOne;
  return api_keys.size() == 1 ? Tenants::kOneKey : Tenants::kManyKeys;
}

http::ServerOptions http_options(const ServeOptions& options) {
  http::ServerOptions http;
  http.host = options.host;
  http.port = options.port;
  http.max_body_bytes = options.max_body_bytes;
  http.max_header_bytes = options.max_header_bytes;
  http.max_connections = options.max_connections;
  http.drain_timeout = options.drain_timeout;
  return http;
}

}  // namespace

class ApiServer::Impl {
 public:
  Impl(runtime::Engine& engine, const ServeOptions& options)
      : model_name_(options.served_model_name.empty() ? engine.model().name : options.served_model_name),
        chat_(options.chat_model),
        grammars_(chat_->tokenizer(), engine.model(), chat_->marker_ids()),
        metrics_(engine, model_name_),
        replies_(1),
        workers_(options.num_workers),
        api_({engine, *chat_, grammars_, metrics_, replies_.queue(), model_name_,
              static_cast<int64_t>(std::time(nullptr)), fingerprint_of(engine),
              tenants_of(options.api_keys)}),
        responses_(api_, options.api_keys.empty() ? openai::ResponsesApi::Owners::kEverybody
                                                  : openai::ResponsesApi::Owners::kByKey),
        messages_(api_),
        pages_(engine, metrics_, model_name_),
        router_(options.api_keys, CorsPolicy(options.cors_origins), workers_.queue(),
                options.max_waiting_requests, metrics_, options.request_log) {
    add_routes();
    add_page();
  }

  // First the sockets, then the workers, who may still push to the replies' thread, then that one: only then
  // nobody reads the other members any more. Requests that the engine still has are cancelled, for their
  // clients are gone.
  ~Impl() {
    http_.reset();
    pages_.stop();
    workers_.stop();
    replies_.stop();
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status open(std::unique_ptr<StartingServer> server) {
    http_ = std::move(server);
    log_info("replies of {}: reasoning {}, tool calls {}", model_name_,
             reasoning::name_of(chat_->reasoning_format()), tool_parsing::name_of(chat_->tool_format()));
    http_->http().when_drain_is_over([this] {
      api_.give_up_all(
          {ErrorCode::kUnavailable, "the server is stopping, and this answer had not come to its end", ""});
    });
    return http_->hand_over([this](http::Request request, std::shared_ptr<http::Responder> responder) {
      router_.handle(std::move(request), std::move(responder));
    });
  }

  http::Server& http() { return http_->http(); }
  void run() { http_->run(); }

 private:
  void add_routes() {
    const auto api = [this](void (openai::Api::*method)(const http::Request&, const openai::Api::Responder&)
                                const) {
      return [this, method](const http::Request& request, const std::shared_ptr<http::Responder>& responder) {
        (api_.*method)(request, responder);
      };
    };
    router_.add({"POST", "/v1/chat/completions", Access::kNeedsKey, RunsOn::kWorker,
                 api(&openai::Api::chat_completions)});
    router_.add(
        {"POST", "/v1/completions", Access::kNeedsKey, RunsOn::kWorker, api(&openai::Api::completions)});
    router_.add({"POST", "/v1/responses", Access::kNeedsKey, RunsOn::kWorker,
                 [this](const auto& request, const auto& to) { responses_.create(request, to); }});
    router_.add({"GET", "/v1/responses/", Access::kNeedsKey, RunsOn::kIoThread,
                 [this](const auto& request, const auto& to) { responses_.show(request, to); }});
    router_.add({"DELETE", "/v1/responses/", Access::kNeedsKey, RunsOn::kIoThread,
                 [this](const auto& request, const auto& to) { responses_.remove(request, to); }});
    router_.add({"POST", "/v1/messages", Access::kNeedsKey, RunsOn::kWorker,
                 [this](const auto& request, const auto& to) { messages_.create(request, to); },
                 anthropic::message_error_response});
    router_.add({"POST", "/v1/messages/count_tokens", Access::kNeedsKey, RunsOn::kWorker,
                 [this](const auto& request, const auto& to) { messages_.count_tokens(request, to); },
                 anthropic::message_error_response});
    router_.add({"POST", "/generate", Access::kNeedsKey, RunsOn::kWorker, api(&openai::Api::generate)});
    router_.add(
        {"GET", "/get_server_info", Access::kNeedsKey, RunsOn::kIoThread,
         [this](const auto& request, const auto& responder) { pages_.server_info(request, responder); }});
    router_.add({"GET", "/v1/models", Access::kNeedsKey, RunsOn::kIoThread, api(&openai::Api::list_models)});
    router_.add({"GET", "/v1/models/", Access::kNeedsKey, RunsOn::kIoThread, api(&openai::Api::show_model)});
    router_.add(
        {"POST", "/v1/embeddings", Access::kNeedsKey, RunsOn::kWorker, api(&openai::Api::embeddings)});
    for (const char* method : {"GET", "POST"})  // as SGLang has it
      router_.add(
          {method, "/flush_cache", Access::kNeedsKey, RunsOn::kWorker, api(&openai::Api::flush_cache)});
    router_.add(
        {"POST", "/abort_request", Access::kNeedsKey, RunsOn::kWorker, api(&openai::Api::abort_request)});
    router_.add({"POST", "/tokenize", Access::kNeedsKey, RunsOn::kWorker, api(&openai::Api::tokenize)});
    router_.add({"POST", "/detokenize", Access::kNeedsKey, RunsOn::kWorker, api(&openai::Api::detokenize)});
    router_.add({"GET", "/health", Access::kOpen, RunsOn::kIoThread,
                 [this](const auto& request, const auto& responder) { pages_.health(request, responder); }});
    const auto page = [this](const char* path, void (StatusPages::*method)(const http::Request&,
                                                                           const StatusPages::Responder&)) {
      router_.add({"GET", path, Access::kOpen, RunsOn::kIoThread,
                   [this, method](const auto& request, const auto& to) { (pages_.*method)(request, to); }});
    };
    page("/ready", &StatusPages::ready);
    page("/livez", &StatusPages::livez);
    page("/health_generate", &StatusPages::health_generate);
    router_.add({"GET", "/live", Access::kOpen, RunsOn::kIoThread,
                 [this](const auto& request, const auto& responder) { pages_.live(request, responder); }});
    router_.add({"GET", "/metrics", Access::kNeedsKey, RunsOn::kWorker,
                 [this](const auto& request, const auto& responder) { pages_.metrics(request, responder); }});
    router_.add({"GET", "/plan", Access::kOpen, RunsOn::kWorker,
                 [this](const auto& request, const auto& responder) { pages_.plan(request, responder); }});
  }

  void add_page() {
    const auto page = [](const http::Request& request, const std::shared_ptr<http::Responder>& responder) {
      auto response = web::page_response(request);
      if (!response)
        response = openai::error_response(
            {.status = 404, .message = fmt::format("no file {} here", request.target)});
      responder->send(std::move(*response));
    };
    router_.add({"GET", "/", Access::kOpen, RunsOn::kIoThread, page});
    router_.add({"GET", "/web/", Access::kOpen, RunsOn::kIoThread, page});
  }

  const std::string model_name_;
  const std::shared_ptr<const ChatModel> chat_;
  const constraints::GrammarCompiler grammars_;
  ServingMetrics metrics_;
  Workers replies_, workers_;
  const openai::Api api_;
  const openai::ResponsesApi responses_;
  const anthropic::MessagesApi messages_;
  StatusPages pages_;
  Router router_;
  std::unique_ptr<StartingServer> http_;
};

Result<std::unique_ptr<ApiServer>> ApiServer::make(runtime::Engine& engine, ServeOptions options) {
  auto address = ReservedAddress::bind(options);
  if (!address) return address.error();
  return make(engine, std::move(options), *std::move(address));
}

Result<std::unique_ptr<ApiServer>> ApiServer::make(runtime::Engine& engine, ServeOptions options,
                                                   ReservedAddress address) {
  if (options.chat_model == nullptr) {
    auto chat = ChatModel::load(engine.model().directory);
    if (!chat) return chat.error();
    options.chat_model = std::make_shared<const ChatModel>(*std::move(chat));
  }
  auto impl = std::make_unique<Impl>(engine, options);
  if (const Status open = impl->open(std::move(address.server_)); !open.ok()) return open.error();
  return std::unique_ptr<ApiServer>(new ApiServer(std::move(impl)));
}

Result<ReservedAddress> ReservedAddress::bind(const ServeOptions& options) {
  auto server = StartingServer::bind(http_options(options));
  if (!server) return server.error();
  return ReservedAddress(std::move(*server));
}

int ReservedAddress::port() const { return server_->http().port(); }

Status ReservedAddress::answer_starting() { return server_->answer_starting(); }

ReservedAddress::ReservedAddress(std::unique_ptr<StartingServer> server) : server_(std::move(server)) {}
ReservedAddress::ReservedAddress(ReservedAddress&&) noexcept = default;
ReservedAddress::~ReservedAddress() = default;

ApiServer::ApiServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ApiServer::~ApiServer() = default;

int ApiServer::port() const { return impl_->http().port(); }
void ApiServer::run() { impl_->run(); }
void ApiServer::stop() { impl_->http().stop(); }

}  // namespace lockstep::serving
