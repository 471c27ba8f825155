// A process of a command's engine that is not the first: it has ranks, and neither API nor output.
#include "lockstep/runtime/hosts/worker.h"

#include "lockstep/base/log.h"
#include "lockstep/cli/commands.h"
#include "lockstep/cli/report.h"

namespace lockstep::cli {
namespace {

const runtime::EngineConfig* engine_of(const ServeCommand& command) { return &command.engine; }
const runtime::EngineConfig* engine_of(const GenerateCommand& command) { return &command.engine; }
const runtime::EngineConfig* engine_of(const ScoreCommand& command) { return &command.engine; }
const runtime::EngineConfig* engine_of(const EvalCommand& command) { return &command.engine; }
template <class T>
const runtime::EngineConfig* engine_of(const T&) {
  return nullptr;
}

}  // namespace

std::optional<int> run_as_worker(const Command& command) {
  const runtime::EngineConfig* engine = std::visit([](const auto& one) { return engine_of(one); }, command);
  if (engine == nullptr || engine->hosts.num == 1) return std::nullopt;
  const auto place = runtime::place_of(engine->hosts, runtime::process_environment());
  if (!place) return report(place.error());
  if (place->index == 0) return std::nullopt;
  // A launcher sends its signals to all processes. The head takes its time to stop, and this one ends with
  // it; a second signal ends it at once.
  runtime::EngineConfig config = *engine;
  config.hosts.interrupted = &interrupted();
  if (std::holds_alternative<ServeCommand>(command))
    config.hosts.after_failure = runtime::HostsConfig::AfterFailure::kJoinAgain;
  if (const Status status = runtime::serve_ranks(config, progress_lines()); !status)
    return report(status.error());
  log_info("process {} ends with the head", place->index);
  return kOk;
}

}  // namespace lockstep::cli
