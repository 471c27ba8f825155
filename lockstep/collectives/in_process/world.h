#pragma once
// All ranks of a process as threads: the default on the CPU. Ranks read each other's memory where it lies,
// the host's or a device's;
// sums are in rank order, so results repeat bit for bit. Several worlds may live in one process.
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/collectives/communicator.h"
#include "lockstep/planning/rank_grid.h"

namespace lockstep::collectives {

struct Failure;
class Rendezvous;

struct InProcessOptions {
  std::chrono::milliseconds deadline{60000};  // of one wait for the other ranks
  int num_cores = 0;                          // 0: what the machine has; fewer than ranks makes waits sleep
};

class InProcessWorld {
 public:
  InProcessWorld(const planning::RankGrid& grid, const InProcessOptions& options);
  ~InProcessWorld();

  // The communicator of one rank, to be used by one thread. It moves rows with the rank's kernels, and must
  // outlive neither them nor the world.
  std::unique_ptr<Communicator> communicator(int rank, kernels::Kernels& kernels);
  static Contract contract();

  // Ends every present and future wait of every rank with Fatal(reason). The first reason is kept.
  void fail(const std::string& reason);

 private:
  friend class InProcessCommunicator;
  Rendezvous& rendezvous(const std::vector<int>& members);

  const planning::RankGrid grid_;
  std::unique_ptr<Failure> failure_;
  std::map<std::vector<int>, std::unique_ptr<Rendezvous>> groups_;  // one a distinct rank set, made up front
};

}  // namespace lockstep::collectives
