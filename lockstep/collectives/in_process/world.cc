#include "lockstep/collectives/in_process/world.h"

#include <algorithm>
#include <set>

#include "lockstep/base/control_groups.h"
#include "lockstep/collectives/hosts/links.h"
#include "lockstep/collectives/hosts/rank_messages.h"
#include "lockstep/collectives/in_process/communicator.h"
#include "lockstep/collectives/in_process/rendezvous.h"

namespace lockstep::collectives {

namespace {

Range ranks_here(const planning::RankGrid& grid, const Links* links) {
  return links == nullptr ? Range{0, grid.num_ranks()} : links->ranks_of(links->own());
}

// Groups are ascending, and so are the ranks of processes.
std::vector<Rendezvous::Abroad> abroad_of(const std::vector<int>& members, const Links* links) {
  std::vector<Rendezvous::Abroad> found;
  for (size_t at = 0; links != nullptr && at < members.size(); ++at) {
    const int process = links->process_of(members[at]);
    if (process == links->own()) continue;
    if (found.empty() || found.back().process != process) found.push_back({.process = process, .first = at});
    ++found.back().num;
  }
  return found;
}

}  // namespace

// What comes over the links, on the threads that receive.
class InProcessWorld::Receiver final : public LinkUser {
 public:
  explicit Receiver(InProcessWorld& world) : world_(world) { world.links_->attach(FrameKind::kRows, *this); }
  ~Receiver() override { world_.links_->detach(FrameKind::kRows); }

  void on_frame(int process, Frame frame) override {
    const auto group_of = [&](uint32_t number) -> Rendezvous& {
      if (number >= world_.by_number_.size() || world_.by_number_[number] == nullptr)
        throw WrongBytes(fmt::format("group {} of {}", number, world_.by_number_.size()));
      return *world_.by_number_[number];
    };
    auto [head, from_afar] = read_rank_message(
        std::move(frame), [&](uint32_t number) { return group_of(number).members().size(); });
    const Range theirs = world_.links_->ranks_of(process);
    if (!theirs.contains(head.rank))
      throw WrongBytes(fmt::format("{} speaks for rank {}", world_.links_->name_of(process), head.rank));
    group_of(head.group).show_from_afar(static_cast<int>(head.rank), std::move(from_afar));
  }
  void on_failure(const std::string& reason) override { world_.fail_here(reason); }

 private:
  InProcessWorld& world_;
};

InProcessWorld::InProcessWorld(const planning::RankGrid& grid, const InProcessOptions& options)
    : grid_(grid), failure_(std::make_unique<Failure>()), links_(options.links) {
  const int cores = options.num_cores > 0 ? options.num_cores : usable_cores();
  const Waiting waiting = cores < grid.num_ranks() ? Waiting::kSleep : Waiting::kSpinThenSleep;
  std::set<std::vector<int>> groups;
  for (uint32_t bits = 1; bits <= grid.all().bits(); ++bits)
    for (int rank = 0; rank < grid.num_ranks(); ++rank) groups.insert(grid.group(rank, AxisSet(bits)));
  const Range here = ranks_here(grid, links());
  for (const std::vector<int>& members : groups) {
    const auto number = static_cast<uint32_t>(by_number_.size());
    by_number_.push_back(nullptr);
    if (std::none_of(members.begin(), members.end(), [&](int rank) { return here.contains(rank); })) continue;
    auto& group = groups_[members] = std::make_unique<Rendezvous>(
        Rendezvous::Group{.members = members, .number = number, .abroad = abroad_of(members, links())},
        waiting, options.deadline, *failure_);
    by_number_.back() = group.get();
  }
  if (links() != nullptr) receiver_ = std::make_unique<Receiver>(*this);
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
  fail_here(reason);
  if (links() != nullptr) links()->fail(reason);
}

void InProcessWorld::fail_here(const std::string& reason) {
  {
    const std::lock_guard lock(failure_->mutex);
    if (!failure_->happened.load()) {
      failure_->reason = reason;
      failure_->happened.store(true);
    }
  }
  for (auto& [members, group] : groups_) group->wake();
}

InProcessWorld::Waits InProcessWorld::waits() const {
  Waits waits;
  for (const auto& [members, group] : groups_)
    if (auto pending = group->pending()) {
      waits.ranks.insert(pending->waiting.begin(), pending->waiting.end());
      waits.texts.push_back(std::move(pending->text));
    }
  return waits;
}

Rendezvous& InProcessWorld::rendezvous(const std::vector<int>& members) { return *groups_.at(members); }

}  // namespace lockstep::collectives
