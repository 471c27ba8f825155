#pragma once
// How the processes of one engine find each other before they do anything else. The head (process 0) listens
// at the coordinator's address; the others call there until it answers. Each brings what must be the same in
// all (build, model, configuration), and the head says whose differs, with both values, or who is missing.
// Then every two of the others connect, by whichever of their addresses answers. Who starts an engine calls
// join().
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/collectives/hosts/links.h"

namespace lockstep::collectives {

struct HostPlace {
  int num = 1, index = 0;   // processes, and which of them this is
  std::string coordinator;  // a name or an address of the head
  int port = 0;
  std::chrono::milliseconds patience{120000};     // until all are there
  std::chrono::milliseconds silence{5000};        // after which a process counts as dead, from then on
  const std::atomic<int>* interrupted = nullptr;  // not 0: stop waiting
  // Of the head, asked when it refuses: will it wait once more? None: no.
  std::function<bool()> waits_again;
};

struct Passport {
  // Names and values that must be the same in every process; compared in this order, the first difference is
  // what is told.
  std::vector<std::pair<std::string, std::string>> same;
  int num_ranks = 1;
  std::vector<int64_t> capacities;  // may differ; of each the least of all counts
};

struct Joined {
  std::shared_ptr<Links> links;
  std::vector<int64_t> capacities;
};

using JoinProgress = std::function<void(std::string_view)>;
// kAborted: the head refused and waits once more, so that the same call may succeed. Any other code is final.
Result<Joined> join(const HostPlace& place, const Passport& passport, const JoinProgress& progress);

}  // namespace lockstep::collectives
