#include "lockstep/cli/hosts_flags.h"

namespace lockstep::cli {
namespace {

constexpr const char* kHosts = "Hosts";

}  // namespace

void add_hosts_flags(CLI::App& app, runtime::HostsConfig& hosts) {
  app.add_option("--hosts,--nnodes", hosts.num,
                 "Processes that share the ranks; start this command once for each")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024))
      ->group(kHosts);
  app.add_option("--host-rank,--node-rank", hosts.index,
                 "Which of them this is, from 0, which has the API; default: as mpirun, srun or a "
                 "LeaderWorkerSet says")
      ->group(kHosts);
  app.add_option("--coordinator,--dist-init-addr", hosts.coordinator,
                 "Where process 0 is found: NAME:PORT; default: as the launcher says")
      ->group(kHosts);
  app.add_option("--host-join-timeout", hosts.join_seconds,
                 "Seconds after which a start without all processes is given up")
      ->capture_default_str()
      ->group(kHosts);
  app.add_option("--host-timeout", hosts.silence_seconds,
                 "Seconds of silence after which a process counts as dead")
      ->capture_default_str()
      ->group(kHosts);
}

}  // namespace lockstep::cli
