#pragma once
// All ranks of a process as threads: the default on the CPU. Ranks read each other's memory where it lies,
// the host's or a device's; what ranks of other processes show, if there are any, comes over links and is
// read by the same code. Sums are in rank order, so results repeat bit for bit, however many processes there
// are. Several worlds may live in one process.
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "lockstep/collectives/communicator.h"
#include "lockstep/planning/rank_grid.h"

namespace lockstep::collectives {

struct Failure;
class Rendezvous;
class Links;

struct InProcessOptions {
  std::chrono::milliseconds deadline{60000};  // of one wait for the other ranks
  int num_cores = 0;                          // 0: what the machine has; fewer than ranks makes waits sleep
  std::shared_ptr<Links> links;               // to the processes of the other ranks; none: all are here
};

class InProcessWorld {
 public:
  InProcessWorld(const planning::RankGrid& grid, const InProcessOptions& options);
  ~InProcessWorld();

  // The communicator of one rank of this process, to be used by one thread. It moves rows with the rank's
  // kernels, and must outlive neither them nor the world.
  std::unique_ptr<Communicator> communicator(int rank, kernels::Kernels& kernels);
  static Contract contract();

  // Ends every present and future wait of every rank, in the other processes too, with Fatal(reason). The
  // first reason is kept.
  void fail(const std::string& reason);
  Links* links() const { return links_.get(); }
  // Which ranks wait for which others, and where. From any thread.
  struct Waits {
    std::set<int> ranks;
    std::vector<std::string> texts;  // one a group
  };
  Waits waits() const;

 private:
  friend class InProcessCommunicator;
  class Receiver;
  Rendezvous& rendezvous(const std::vector<int>& members);
  void fail_here(const std::string& reason);

  const planning::RankGrid grid_;
  std::unique_ptr<Failure> failure_;
  // One a distinct rank set with a rank of this process, made up front.
  std::map<std::vector<int>, std::unique_ptr<Rendezvous>> groups_;
  std::vector<Rendezvous*> by_number_;  // of all rank sets; null where no rank of this process is in it
  const std::shared_ptr<Links> links_;
  std::unique_ptr<Receiver> receiver_;  // last: nothing comes any more before the rest goes
};

}  // namespace lockstep::collectives
