#pragma once
// How many processes share the ranks of an engine, which of them this is, and where the first one is to be
// found: as typed, and where nothing was typed as launchers (mpirun, srun, a LeaderWorkerSet) say it in the
// environment.
#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "lockstep/collectives/hosts/joining.h"

namespace lockstep::runtime {

struct HostsConfig {
  int num = 1;                                    // --hosts
  std::optional<int> index;                       // --host-rank
  std::string coordinator;                        // --coordinator: NAME, NAME:PORT or [ADDRESS]:PORT
  double join_seconds = 120;                      // --host-join-timeout
  double silence_seconds = 5;                     // --host-timeout
  const std::atomic<int>* interrupted = nullptr;  // not 0: stop waiting for the others
  // A server's processes find each other again; a command's end.
  enum class AfterFailure : uint8_t { kEnd, kJoinAgain };
  AfterFailure after_failure = AfterFailure::kEnd;
};

// The value of a variable, or null.
using Environment = std::function<const char*(const char* name)>;
Environment process_environment();

// The error names the flag that is missing or contradicted, and both values.
Result<collectives::HostPlace> place_of(const HostsConfig& hosts, const Environment& environment);

// Processes must have the same number of ranks, at least one.
Status check_hosts(const HostsConfig& hosts, int num_ranks);

// Ranks that share this machine's memory and cores. Processes that meet at a loopback address are all on it.
int ranks_of_this_machine(const HostsConfig& hosts, int num_ranks);

}  // namespace lockstep::runtime
