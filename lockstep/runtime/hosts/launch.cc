#include "lockstep/runtime/hosts/launch.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <utility>

#include "lockstep/base/hash.h"

namespace lockstep::runtime {
namespace {

constexpr int kMostHosts = 1024;
constexpr int kDefaultPort = 20555;
// Ports that Linux gives to nobody by itself.
constexpr int kFirstJobPort = 20600, kNumJobPorts = 10000;

// A launcher, by the variables that it sets in every process.
struct Launcher {
  const char *name, *index, *size;
};
constexpr Launcher kLaunchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"mpiexec", "PMI_RANK", "PMI_SIZE"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"},
    {"LeaderWorkerSet", "LWS_WORKER_INDEX", "LWS_GROUP_SIZE"},
};

std::optional<int> number_of(const char* text) {
  if (text == nullptr) return std::nullopt;
  const std::string_view digits(text);
  int value = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (failure != std::errc() || end != digits.data() + digits.size() || value < 0) return std::nullopt;
  return value;
}

std::string value_of(const Environment& environment, const char* name) {
  const char* value = environment(name);
  return value == nullptr ? "" : value;
}

const Launcher* launcher_of(const Environment& environment) {
  for (const Launcher& launcher : kLaunchers)
    if (number_of(environment(launcher.index)) && number_of(environment(launcher.size))) return &launcher;
  return nullptr;
}

// "node[03-17,20],gpu1" -> "node03": the host of the first task.
std::string first_of_node_list(const std::string& list) {
  const size_t bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  return list.substr(0, bracket) + list.substr(bracket + 1, list.find_first_of("-,]", bracket) - bracket - 1);
}

// Jobs that run at the same time on one machine should not meet.
int port_of_job(const std::string& job) {
  if (job.empty()) return kDefaultPort;
  return kFirstJobPort + static_cast<int>(Hasher().add(job).value() % kNumJobPorts);
}

struct Coordinator {
  std::string name;
  int port = kDefaultPort;
};

std::optional<Coordinator> coordinator_of_launcher(const Environment& environment) {
  if (const std::string leader = value_of(environment, "LWS_LEADER_ADDRESS"); !leader.empty())
    return Coordinator{.name = leader};
  std::string nodes = value_of(environment, "SLURM_STEP_NODELIST");
  if (nodes.empty()) nodes = value_of(environment, "SLURM_JOB_NODELIST");
  if (!nodes.empty())
    return Coordinator{first_of_node_list(nodes), port_of_job(value_of(environment, "SLURM_JOB_ID") + "." +
                                                              value_of(environment, "SLURM_STEP_ID"))};
  const auto local = number_of(environment("OMPI_COMM_WORLD_LOCAL_SIZE"));
  if (local && local == number_of(environment("OMPI_COMM_WORLD_SIZE")))
    return Coordinator{"127.0.0.1", port_of_job(value_of(environment, "OMPI_MCA_ess_base_jobid") +
                                                value_of(environment, "PMIX_NAMESPACE"))};
  return std::nullopt;
}

Result<Coordinator> coordinator_typed(const std::string& text) {
  const size_t colon = text.rfind(':');
  const bool in_brackets = text.starts_with('[');
  const bool has_port =
      colon != std::string::npos && (in_brackets ? text[colon - 1] == ']' : text.find(':') == colon);
  Coordinator found{.name = has_port ? text.substr(0, colon) : text};
  if (in_brackets && found.name.ends_with(']')) found.name = found.name.substr(1, found.name.size() - 2);
  const auto port = has_port ? number_of(text.substr(colon + 1).c_str()) : std::optional(kDefaultPort);
  if (found.name.empty() || !port || *port < 1 || *port > 65535)
    return invalid_argument("--coordinator",
                            "--coordinator {} is not NAME, NAME:PORT or [ADDRESS]:PORT with a port from 1 to "
                            "65535",
                            text);
  found.port = *port;
  return found;
}

// What only several processes need says that several were meant: each would serve the whole model by itself.
Status check_alone(const HostsConfig& hosts, const Launcher* launcher, const Environment& environment) {
  if (hosts.index)
    return invalid_argument("--host-rank", "--host-rank {} means nothing with --hosts 1: give --hosts too",
                            *hosts.index);
  if (!hosts.coordinator.empty())
    return invalid_argument("--coordinator",
                            "--coordinator {} means nothing with --hosts 1: give --hosts too",
                            hosts.coordinator);
  if (launcher == nullptr) return Done{};
  if (const int size = *number_of(environment(launcher->size)); size > 1)
    return invalid_argument("--hosts",
                            "--hosts is 1 and {0} started {1} processes ({2}), each of which would serve the "
                            "whole model: give --hosts {1}, or start one process; engines apart from each "
                            "other are started without {2}",
                            launcher->name, size, launcher->size);
  return Done{};
}

}  // namespace

Environment process_environment() {
  return [](const char* name) -> const char* { return std::getenv(name); };
}

Result<collectives::HostPlace> place_of(const HostsConfig& hosts, const Environment& environment) {
  if (hosts.num < 1 || hosts.num > kMostHosts)
    return invalid_argument("--hosts", "--hosts {} is not between 1 and {}", hosts.num, kMostHosts);
  constexpr double kLeast = 0.1, kDay = 86400;
  for (const auto& [flag, seconds] :
       {std::pair{"--host-join-timeout", hosts.join_seconds}, {"--host-timeout", hosts.silence_seconds}})
    if (!(seconds >= kLeast && seconds <= kDay))
      return invalid_argument(flag, "{} {} is not between {} and {} seconds", flag, seconds, kLeast, kDay);
  const auto milliseconds = [](double seconds) {
    return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
  };
  collectives::HostPlace place{.num = hosts.num,
                               .patience = milliseconds(hosts.join_seconds),
                               .silence = milliseconds(hosts.silence_seconds),
                               .interrupted = hosts.interrupted};
  const Launcher* launcher = launcher_of(environment);
  if (hosts.num == 1) {
    if (const Status alone = check_alone(hosts, launcher, environment); !alone) return alone.error();
    return place;
  }
  if (launcher != nullptr && !hosts.index) {
    if (const int size = *number_of(environment(launcher->size)); size != hosts.num)
      return invalid_argument("--hosts", "--hosts is {} and {} started {} processes ({})", hosts.num,
                              launcher->name, size, launcher->size);
    place.index = *number_of(environment(launcher->index));
  } else if (hosts.index) {
    place.index = *hosts.index;
  } else {
    return invalid_argument("--host-rank",
                            "--hosts {} needs --host-rank, from 0 to {}, where neither mpirun, srun nor a "
                            "LeaderWorkerSet says which process this is",
                            hosts.num, hosts.num - 1);
  }
  if (place.index < 0 || place.index >= hosts.num)
    return invalid_argument("--host-rank", "--host-rank {} is not between 0 and {}", place.index,
                            hosts.num - 1);
  Coordinator coordinator;
  if (!hosts.coordinator.empty()) {
    const auto typed = coordinator_typed(hosts.coordinator);
    if (!typed) return typed.error();
    coordinator = *typed;
  } else if (const auto found = coordinator_of_launcher(environment)) {
    coordinator = *found;
  } else {
    return invalid_argument("--coordinator",
                            "--hosts {} needs --coordinator, the name or address of the machine of process 0 "
                            "and a port that is free there, such as node1:{}",
                            hosts.num, kDefaultPort);
  }
  place.coordinator = coordinator.name;
  place.port = coordinator.port;
  return place;
}

Status check_hosts(const HostsConfig& hosts, int num_ranks) {
  if (hosts.num >= 1 && num_ranks % hosts.num == 0) return Done{};
  std::string working;
  for (int num = 1; num <= num_ranks; ++num)
    if (num_ranks % num == 0) working += fmt::format("{}{}", working.empty() ? "" : ", ", num);
  return invalid_argument("--hosts", "--hosts {} does not divide --tp-size {}; these do: {}", hosts.num,
                          num_ranks, working);
}

int ranks_of_this_machine(const HostsConfig& hosts, int num_ranks) {
  if (hosts.num == 1) return num_ranks;
  const auto place = place_of(hosts, process_environment());
  return place && collectives::is_loopback(place->coordinator) ? num_ranks : num_ranks / hosts.num;
}

}  // namespace lockstep::runtime
