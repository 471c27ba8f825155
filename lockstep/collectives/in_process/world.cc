#include "lockstep/collectives/in_process/world.h"

#include <thread>

#include "lockstep/collectives/in_process/communicator.h"
#include "lockstep/collectives/in_process/rendezvous.h"

namespace lockstep::collectives {

InProcessWorld::InProcessWorld(const planning::RankGrid& grid, const InProcessOptions& options)
    : grid_(grid), failure_(std::make_unique<Failure>()) {
  const int cores =
      options.num_cores > 0 ? options.num_cores : static_cast<int>(std::thread::hardware_concurrency());
  const Waiting waiting = cores < grid.num_ranks() ? Waiting::kSleep : Waiting::kSpinThenSleep;
  for (uint32_t bits = 1; bits <= grid.all().bits(); ++bits)
    for (int rank = 0; rank < grid.num_ranks(); ++rank) {
      auto& group = groups_[grid.group(rank, AxisSet(bits))];
      if (!group)
        group = std::make_unique<Rendezvous>(grid.group(rank, AxisSet(bits)), waiting, options.deadline,
                                             *failure_);
    }
}

InProcessWorld::~InProcessWorld() = default;

std::unique_ptr<Communicator> InProcessWorld::communicator(int rank, kernels::Kernels& kernels) {
  return std::make_unique<InProcessCommunicator>(*this, rank, kernels);
}

Contract InProcessWorld::contract() {
  return {.name = "in_process",
          .sums = Contract::Sums::kInRankOrder,
          .rows = Contract::Rows::kAnyPerRank,
          .zero_rows = Contract::ZeroRows::kAllowed,
          .host_sync = Contract::HostSync::kBlocks,
          .capture = Contract::Capture::kNo,
          .fused_all_reduce_add_norm = Contract::FusedAllReduceAddNorm::kYes,
          .fused_scatter_norm_gather = Contract::FusedScatterNormGather::kYes,
          .fused_combine_add = Contract::FusedCombineAdd::kYes,
          .wire_types = {DType::kF32}};
}

void InProcessWorld::fail(const std::string& reason) {
  {
    const std::lock_guard lock(failure_->mutex);
    if (!failure_->happened.load()) {
      failure_->reason = reason;
      failure_->happened.store(true);
    }
  }
  for (auto& [members, group] : groups_) group->wake();
}

Rendezvous& InProcessWorld::rendezvous(const std::vector<int>& members) { return *groups_.at(members); }

}  // namespace lockstep::collectives
