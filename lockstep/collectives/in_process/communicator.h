#pragma once
// One rank's verbs in an InProcessWorld. Private to in_process; others use Communicator.
#include <map>
#include <memory>
#include <tuple>

#include "lockstep/collectives/communicator.h"
#include "lockstep/collectives/in_process/shown.h"

namespace lockstep::collectives {

class InProcessWorld;
class Rendezvous;

class InProcessCommunicator final : public Communicator {
 public:
  InProcessCommunicator(InProcessWorld& world, int rank, kernels::Kernels& kernels);

  Contract contract() const override;
  void all_reduce(const AllReduceArgs& args, AxisSet over, const Tag& tag) override;
  void reduce_scatter(const ReduceScatterArgs& args, AxisSet over, const Tag& tag) override;
  void all_gather(const AllGatherArgs& args, AxisSet over, const Tag& tag) override;
  void columns_to_rows(const ColumnsToRowsArgs& args, AxisSet over, const Tag& tag) override;
  void fused_all_reduce_add_norm(FusedAllReduceAddNormArgs& args, kernels::Kernels& kernels, AxisSet over,
                                 const Tag& tag) override;
  void fused_scatter_add_norm_gather(FusedScatterAddNormGatherArgs&, kernels::Kernels&, AxisSet over,
                                     const Tag&) override;
  void fused_combine_add(const FusedCombineAddArgs&, kernels::Kernels&, AxisSet over, const Tag&) override;
  void combine_add_norm(CombineAddNormArgs&, kernels::Kernels&, AxisSet over, const Tag&) override;
  void dispatch(const DispatchArgs& args, AxisSet over, const Tag& tag) override;
  void combine(const CombineArgs& args, AxisSet over, const Tag& tag) override;

 private:
  struct Place {
    Rendezvous* group = nullptr;
    int index = 0;
  };
  // Shows args to the group, runs body(what all members show) and leaves when everyone is done with reading.
  template <class Args, class Body>
  void together(const Args& args, AxisSet over, const Tag& tag, Body body);

  // Where members of the group are in other processes, sends them what they read of args.
  template <class Args>
  void send_away(const Args& args, const Place& place, const Tag& tag);

  InProcessWorld& world_;
  const int rank_;
  kernels::Kernels& kernels_;
  const std::unique_ptr<kernels::Fence> arrived_, done_;
  // What the others are shown. It outlives a call that ends in an exception while they still read.
  std::tuple<Shown<AllReduceArgs>, Shown<ReduceScatterArgs>, Shown<AllGatherArgs>, Shown<ColumnsToRowsArgs>,
             Shown<FusedAllReduceAddNormArgs>, Shown<DispatchArgs>, Shown<CombineArgs>>
      shown_;
  std::map<AxisSet, Place> places_;
};

}  // namespace lockstep::collectives
