// lockstep serve: the engine behind the HTTP API until SIGINT or SIGTERM, which drain.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <thread>

#include "lockstep/base/file.h"
#include "lockstep/base/log.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/report.h"
#include "lockstep/serving/server.h"

namespace lockstep::cli {
namespace {

constexpr std::chrono::milliseconds kLookForSignals{50};

Result<std::vector<std::string>> read_keys(const ServeCommand& command) {
  std::vector<std::string> keys = command.api_keys;
  if (!command.api_key_file.empty()) {
    const auto text = read_file(command.api_key_file, size_t{1} << 20);
    if (!text) return text.error();
    std::istringstream lines(*text);
    for (std::string key; std::getline(lines, key);) {
      while (!key.empty() && (key.back() == '\r' || key.back() == ' ')) key.pop_back();
      if (!key.empty()) keys.push_back(key);
    }
    if (keys.empty())
      return invalid_argument("--api-key-file", "--api-key-file {} holds no key", command.api_key_file);
  }
  for (const std::string& key : keys)
    if (key.empty()) return invalid_argument("--api-key", "--api-key is empty");
  return keys;
}

serving::ChatOptions chat_options(const ServeCommand& command) {
  serving::ChatOptions options;
  if (command.reasoning_parser != "auto")
    options.reasoning = serving::reasoning::format_named(command.reasoning_parser);
  if (command.tool_call_parser != "auto")
    options.tools = serving::tool_parsing::format_named(command.tool_call_parser);
  return options;
}

// A colon in a host is an IPv6 address, which URLs put into brackets.
std::string address_of(const std::string& host, int port) {
  return host.find(':') == std::string::npos ? fmt::format("http://{}:{}", host, port)
                                             : fmt::format("http://[{}]:{}", host, port);
}

// The step that runs may take a while; nothing is said to have stopped before it has.
int ended(std::unique_ptr<runtime::Engine> engine, const runtime::Health& health) {
  constexpr double kLastStepSeconds = 10;
  if (health.step_seconds > 0) log_info("waiting up to {} s for the step that runs", kLastStepSeconds);
  const bool all_came_back = engine->stop(kLastStepSeconds);
  if (!all_came_back) log_error("a rank has not come back from its step and is left behind");
  log_info("stopped");
  const bool failed = health.state == runtime::Health::State::kFailed ||
                      health.state == runtime::Health::State::kRestarting || !all_came_back;
  if (failed && !health.reason.empty())
    fmt::print(stderr, "lockstep: the engine had failed: {}\n", health.reason);
  if (!all_came_back) std::_Exit(kFailed);  // its thread may still use what exit() would free
  return failed ? kFailed : kOk;
}

}  // namespace

int run(const ServeCommand& command) {
  const auto& stop = interrupted();
  auto keys = read_keys(command);
  if (!keys) return report(keys.error());
  auto model = serving::ChatModel::load(command.engine.model_directory, chat_options(command));
  if (!model) return report(model.error());
  const auto chat_model = std::make_shared<const serving::ChatModel>(*std::move(model));
  serving::ServeOptions options = {
      .host = command.host,
      .port = command.port,
      .served_model_name = command.engine.served_name,
      .api_keys = *std::move(keys),
      .cors_origins = command.cors_origins,
      .chat_model = chat_model,
      .max_body_bytes = command.max_body_bytes,
      .max_header_bytes = command.max_header_bytes,
      .max_connections = command.max_connections,
      .request_log = command.request_log,
      .drain_timeout = std::chrono::seconds(static_cast<int64_t>(std::ceil(command.drain_seconds)))};
  auto address = serving::ReservedAddress::bind(options);  // before the weights are read: they take long
  if (!address) return report(address.error());
  if (const Status open = address->answer_starting(); !open) return report(open.error());
  runtime::EngineConfig config = command.engine;
  config.num_valid_tokens = chat_model->tokenizer().size();
  config.hosts.interrupted = &stop;
  config.hosts.after_failure = runtime::HostsConfig::AfterFailure::kJoinAgain;
  auto engine = runtime::start_engine(config, progress_lines());
  if (!engine) return report(engine.error());
  if (stop.load() != 0) return kInterrupted;
  auto server = serving::ApiServer::make(**engine, std::move(options), *std::move(address));
  if (!server) return report(server.error());
  log_info("serving {} at {} (chat page at /, API at /v1, plan at /plan)", (*engine)->model().name,
           address_of(command.host, (*server)->port()));

  std::jthread watcher([&](const std::stop_token& ended) {
    while (!ended.stop_requested() && stop.load() == 0) std::this_thread::sleep_for(kLookForSignals);
    if (stop.load() == 0) return;
    log_info("stopping: new requests are refused, running ones may go on for {} s; again to stop at once",
             command.drain_seconds);
    (*server)->stop();
  });
  (*server)->run();
  watcher.request_stop();
  watcher.join();
  // A failed engine leaves the server answering /health with the reason until it is told to stop.
  const runtime::Health health = (*engine)->health();
  (*server).reset();  // whoever is still there has had its time; what the engine has of them is cancelled
  return ended(std::move(*engine), health);
}

}  // namespace lockstep::cli
