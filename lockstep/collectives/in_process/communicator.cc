#include "lockstep/collectives/in_process/communicator.h"

#include <algorithm>
#include <cstring>

#include "lockstep/collectives/hosts/rank_messages.h"
#include "lockstep/collectives/in_process/rendezvous.h"
#include "lockstep/collectives/in_process/world.h"

namespace lockstep::collectives {
namespace {

template <class Args>
void check_same_rows(const std::vector<const Args*>& members, int64_t rows) {
  for (const Args* member : members) LOCKSTEP_CHECK_EQ(member->in.rows(), rows);
}
template <class Args>
void check_same_shapes(const std::vector<const Args*>& members, const TensorView& own) {
  check_same_rows(members, own.rows());
  for (const Args* member : members) LOCKSTEP_CHECK_EQ(member->in.cols(), own.cols());
}

void check_pieces(const std::vector<const AllGatherArgs*>& members, const AllGatherArgs& own) {
  for (const AllGatherArgs* member : members) LOCKSTEP_CHECK_EQ(member->in.cols(), own.out.cols());
  for (const RowPiece& piece : own.pieces)
    LOCKSTEP_CHECK_LE(piece.src_row + piece.num_rows,
                      members.at(static_cast<size_t>(piece.source))->in.rows());
}

// What all members give.
template <class Args>
std::vector<TensorView> inputs_of(const std::vector<const Args*>& members) {
  std::vector<TensorView> inputs;
  for (const Args* member : members) inputs.push_back(member->in);
  return inputs;
}

// As many slots as the members' rows could need; where the host can see how many they did, it is those.
void place_exact_slots(const std::vector<const DispatchArgs*>& members, const DispatchArgs& own,
                       kernels::Kernels& kernels) {
  Dispatched& out = *own.out;
  std::vector<kernels::PlaceSlotsArgs::Source> sources;
  int64_t slots = 0;
  for (size_t m = 0; m < members.size(); ++m) {
    const TensorView& idx = members[m]->expert_idx;
    sources.push_back({.x = members[m]->x, .expert_idx = idx, .slot_of = out.slot_of[m]});
    slots += idx.rows() * idx.cols();
  }
  out.expert_start = out.start_buffer.view(DType::kI32, {own.num_local_experts + 1});
  out.rows = out.row_buffer.view({slots, own.x.cols()});
  kernels.place_slots({.sources = sources,
                       .first_expert = own.first_expert,
                       .expert_start = out.expert_start,
                       .out = out.rows,
                       .readers = own.readers});
  if (out.memory->access() == Memory::Access::kByHost)
    out.rows = out.rows.row_range(0, out.expert_start.as<int32_t>()[own.num_local_experts]);
}

float* row_of(const TensorView& view, int64_t row) { return view.as<float>() + row * view.stride[0]; }

// Every row that has an expert here, once, at the place that its member has for it; holes stay zero.
void place_tokens(const std::vector<const DispatchArgs*>& members, const DispatchArgs& own,
                  const auto& is_local) {
  const int64_t hidden = own.x.cols();
  own.out->tokens.assign(members.size() * static_cast<size_t>(own.max_rows * hidden), 0.0f);
  for (size_t m = 0; m < members.size(); ++m) {
    const TensorView& idx = members[m]->expert_idx;
    LOCKSTEP_CHECK_LE(idx.rows(), own.max_rows);
    for (int64_t row = 0; row < idx.rows(); ++row) {
      const int32_t* experts = idx.as<int32_t>() + row * idx.cols();
      if (std::none_of(experts, experts + idx.cols(), is_local)) continue;
      const int64_t place = static_cast<int64_t>(m) * own.max_rows + row;
      std::memcpy(own.out->tokens.data() + place * hidden, row_of(members[m]->x, row),
                  static_cast<size_t>(hidden) * sizeof(float));
    }
  }
}

// The first slot of every local expert, and the end: as many as came, or as many as could have come.
void set_first_slots(const std::vector<int32_t>& counts, const DispatchArgs& own, size_t members) {
  const int64_t capacity = own.max_rows * static_cast<int64_t>(members);
  own.out->expert_start = own.out->start_buffer.view(DType::kI32, {own.num_local_experts + 1});
  int32_t* first = own.out->expert_start.as<int32_t>();
  first[0] = 0;
  for (size_t expert = 0; expert < counts.size(); ++expert) {
    const bool by_expert = own.slots == planning::ExchangeSlots::kExpertMajor;
    if (by_expert) LOCKSTEP_CHECK_LE(counts[expert], capacity);
    first[expert + 1] = first[expert] + (by_expert ? static_cast<int32_t>(capacity) : counts[expert]);
  }
}

// Buffers are sized by the step plan's geometry alone, so there are holes. In the host's memory.
void place_with_holes(const std::vector<const DispatchArgs*>& members, const DispatchArgs& own) {
  Dispatched& out = *own.out;
  LOCKSTEP_CHECK(out.memory->access() == Memory::Access::kByHost, "{} slots in the memory of a device",
                 own.num_local_experts);
  const auto is_local = [&](int32_t expert) {
    return expert >= own.first_expert && expert < own.first_expert + own.num_local_experts;
  };
  std::vector<int32_t> counts(static_cast<size_t>(own.num_local_experts), 0);
  for (const DispatchArgs* member : members)
    for (int64_t at = 0; at < member->expert_idx.num_elements(); ++at)
      if (const int32_t expert = member->expert_idx.as<int32_t>()[at]; is_local(expert))
        ++counts[static_cast<size_t>(expert - own.first_expert)];
  set_first_slots(counts, own, members.size());
  const int32_t* first = out.expert_start.as<int32_t>();
  std::vector<int32_t> next(first, first + own.num_local_experts + 1);
  const int64_t hidden = own.x.cols();
  const bool by_token = own.slots == planning::ExchangeSlots::kTokenMajor;
  if (by_token) place_tokens(members, own, is_local);
  out.rows = out.row_buffer.view({next.back(), hidden});
  std::fill_n(out.rows.as<float>(), out.rows.num_elements(), 0.0f);
  for (size_t m = 0; m < members.size(); ++m) {
    const TensorView& idx = members[m]->expert_idx;
    for (int64_t at = 0; at < idx.num_elements(); ++at) {
      const int32_t expert = idx.as<int32_t>()[at];
      int32_t& slot = out.slot_of[m].as<int32_t>()[at];
      slot = -1;
      if (!is_local(expert)) continue;
      slot = next[static_cast<size_t>(expert - own.first_expert)]++;
      const int64_t row = at / idx.cols(), place = static_cast<int64_t>(m) * own.max_rows + row;
      const float* from = by_token ? out.tokens.data() + place * hidden : row_of(members[m]->x, row);
      std::memcpy(row_of(out.rows, slot), from, static_cast<size_t>(hidden) * sizeof(float));
    }
  }
}

void place_slots(const std::vector<const DispatchArgs*>& members, const DispatchArgs& own,
                 kernels::Kernels& kernels) {
  Dispatched& out = *own.out;
  while (out.slot_buffers.size() < members.size()) out.slot_buffers.emplace_back(*out.memory);
  out.slot_of.clear();
  for (size_t m = 0; m < members.size(); ++m) {
    const TensorView& idx = members[m]->expert_idx;
    LOCKSTEP_CHECK_EQ(members[m]->x.cols(), own.x.cols());
    LOCKSTEP_CHECK_EQ(idx.cols(), own.expert_idx.cols());
    out.slot_of.push_back(out.slot_buffers[m].view(DType::kI32, {idx.rows(), idx.cols()}));
  }
  if (own.slots == planning::ExchangeSlots::kExactCount) return place_exact_slots(members, own, kernels);
  place_with_holes(members, own);
}

// What the members computed for this rank's rows.
struct Pulled {
  std::vector<kernels::PullWeightedArgs::Source> sources;
  kernels::PullWeightedArgs args(const CombineArgs& own) const {
    return {.sources = sources, .weight = own.weight, .out = own.out};
  }
};
Pulled pulled_by(const std::vector<const CombineArgs*>& members, size_t index, const CombineArgs& own) {
  Pulled pulled;
  for (const CombineArgs* member : members) {
    const TensorView& slots = member->dispatched->slot_of.at(index);
    LOCKSTEP_CHECK_EQ(member->y.cols(), own.out.cols());
    LOCKSTEP_CHECK_EQ(slots.rows(), own.weight.rows());
    LOCKSTEP_CHECK_EQ(slots.cols(), own.weight.cols());
    pulled.sources.push_back({.y = member->y, .slot_of = slots});
  }
  return pulled;
}

struct Leaving {
  Rendezvous& group;
  int index;
  ~Leaving() { group.leave(index); }
};

}  // namespace

InProcessCommunicator::InProcessCommunicator(InProcessWorld& world, int rank, kernels::Kernels& kernels)
    : world_(world),
      rank_(rank),
      kernels_(kernels),
      arrived_(kernels.make_fence()),
      done_(kernels.make_fence()) {
  for (uint32_t bits = 1; bits <= world.grid_.all().bits(); ++bits) {
    const AxisSet over(bits);
    places_[over] = {&world.rendezvous(world.grid_.group(rank, over)),
                     world.grid_.index_in_group(rank, over)};
  }
}

Contract InProcessCommunicator::contract() const { return InProcessWorld::contract(); }

// Where kernels run on after a call returns, the ranks' streams are ordered by fences: nobody reads what
// another has not written yet, or writes what another has not read yet. done_ may be recorded again, by its
// owner's next call, before another waits for it: that waits for more, and never for itself.
template <class Args, class Body>
void InProcessCommunicator::together(const Args& args, AxisSet over, const Tag& tag, Body body) {
  if (over.empty()) return body(std::vector<const Args*>{&args}, size_t{0});
  const Place place = places_.at(over);
  Shown<Args>& own = std::get<Shown<Args>>(shown_);
  own = {args, arrived_.get(), done_.get()};
  if (arrived_ != nullptr) kernels_.record(*arrived_);
  if (world_.links() != nullptr) send_away(args, place, tag);
  const auto& shown = place.group->meet(place.index, static_cast<const ShownVerb*>(&own), tag);
  std::vector<const kernels::Fence*> done;
  {
    // Whatever throws from here on, this rank leaves with the others: they still read what it showed, and
    // wait for it without a deadline.
    const Leaving leaving{*place.group, place.index};
    std::vector<const Args*> members;
    for (const void* one : shown) {
      const auto* verb = static_cast<const ShownVerb*>(one);
      LOCKSTEP_CHECK_EQ(static_cast<int>(verb->verb), static_cast<int>(own.verb));
      const auto* member = static_cast<const Shown<Args>*>(verb);
      members.push_back(&member->args);
      if (member == &own || member->arrived == nullptr) continue;
      kernels_.wait(*member->arrived);
      done.push_back(member->done);
    }
    body(members, static_cast<size_t>(place.index));
    if (done_ != nullptr) kernels_.record(*done_);
  }
  for (const kernels::Fence* fence : done) kernels_.wait(*fence);
}

template <class Args>
void InProcessCommunicator::send_away(const Args& args, const Place& place, const Tag& tag) {
  Links& links = *world_.links();
  for (const Rendezvous::Abroad& abroad : place.group->abroad()) {
    RankMessage message({.group = place.group->number(), .rank = static_cast<uint32_t>(rank_)}, tag,
                        verb_of<Args>());
    add_args(message, args, {.first = abroad.first, .num = abroad.num});
    links.send(abroad.process, FrameKind::kRows, message.parts());
  }
}

void InProcessCommunicator::all_reduce(const AllReduceArgs& args, AxisSet over, const Tag& tag) {
  together(args, over, tag, [&](const std::vector<const AllReduceArgs*>& members, size_t) {
    check_same_shapes(members, args.in);
    const RowPiece all{.num_rows = args.out.rows()};
    kernels_.sum_rows({.addends = inputs_of(members), .pieces = {&all, 1}, .out = args.out});
  });
}

void InProcessCommunicator::reduce_scatter(const ReduceScatterArgs& args, AxisSet over, const Tag& tag) {
  together(args, over, tag, [&](const std::vector<const ReduceScatterArgs*>& members, size_t) {
    check_same_shapes(members, args.in);
    kernels_.sum_rows({.addends = inputs_of(members), .pieces = args.keeps, .out = args.out});
  });
}

void InProcessCommunicator::all_gather(const AllGatherArgs& args, AxisSet over, const Tag& tag) {
  together(args, over, tag, [&](const std::vector<const AllGatherArgs*>& members, size_t) {
    check_pieces(members, args);
    kernels_.copy_rows({.sources = inputs_of(members), .pieces = args.pieces, .out = args.out});
  });
}

void InProcessCommunicator::columns_to_rows(const ColumnsToRowsArgs& args, AxisSet over, const Tag& tag) {
  together(args, over, tag, [&](const std::vector<const ColumnsToRowsArgs*>& members, size_t) {
    check_same_rows(members, args.in.rows());
    int64_t columns = 0;
    for (const ColumnsToRowsArgs* member : members) columns += member->in.cols();
    LOCKSTEP_CHECK_EQ(columns, args.out.cols());
    int64_t column = 0;
    for (const ColumnsToRowsArgs* member : members) {
      const int64_t width = member->in.cols();
      kernels_.sum_rows(
          {.addends = {&member->in, 1}, .pieces = args.keeps, .out = args.out.col_range(column, width)});
      column += width;
    }
  });
}

void InProcessCommunicator::fused_all_reduce_add_norm(FusedAllReduceAddNormArgs& args,
                                                      kernels::Kernels& kernels, AxisSet over,
                                                      const Tag& tag) {
  together(args, over, tag, [&](const std::vector<const FusedAllReduceAddNormArgs*>& members, size_t) {
    check_same_shapes(members, args.in);
    const auto addends = inputs_of(members);
    kernels::SumAddNormArgs sum{.addends = addends,
                                .residual = args.residual,
                                .weight = args.weight,
                                .eps = args.eps,
                                .out = args.out};
    kernels.sum_add_norm(sum);
    args.first_non_finite_row = sum.first_non_finite_row;
  });
}

// The slices are summed, added and normed while they are at hand; the gather has to wait until all members
// have.
void InProcessCommunicator::fused_scatter_add_norm_gather(FusedScatterAddNormGatherArgs& args,
                                                          kernels::Kernels& kernels, AxisSet over,
                                                          const Tag& tag) {
  const ReduceScatterArgs scatter{.in = args.in, .out = args.normed, .keeps = args.keeps};
  together(scatter, over, tag, [&](const std::vector<const ReduceScatterArgs*>& members, size_t) {
    check_same_shapes(members, args.in);
    kernels_.sum_rows({.addends = inputs_of(members), .pieces = args.keeps, .out = args.normed});
    kernels.add({.x = args.residual, .y = args.normed});
    kernels::RmsNormArgs norm{.x = args.residual, .weight = args.weight, .eps = args.eps, .out = args.normed};
    kernels.rms_norm(norm);
    args.first_non_finite_row = norm.first_non_finite_row;
  });
  all_gather({.in = args.normed, .out = args.out, .pieces = args.pieces}, over, tag);
}

void InProcessCommunicator::fused_combine_add(const FusedCombineAddArgs& args, kernels::Kernels& kernels,
                                              AxisSet over, const Tag& tag) {
  together(args.combine, over, tag, [&](const std::vector<const CombineArgs*>& members, size_t index) {
    kernels.pull_add({.pull = pulled_by(members, index, args.combine).args(args.combine),
                      .plus = args.shared,
                      .onto = args.residual});
  });
}

void InProcessCommunicator::combine_add_norm(CombineAddNormArgs& args, kernels::Kernels& kernels,
                                             AxisSet over, const Tag& tag) {
  together(args.combine, over, tag, [&](const std::vector<const CombineArgs*>& members, size_t index) {
    const Pulled pulled = pulled_by(members, index, args.combine);
    kernels::PullAddNormArgs pull{.pull = pulled.args(args.combine),
                                  .plus = args.shared,
                                  .residual = args.residual,
                                  .weight = args.weight,
                                  .eps = args.eps,
                                  .out = args.out,
                                  .out_readers = args.out_readers};
    kernels.pull_add_norm(pull);
    args.first_non_finite_row = pull.first_non_finite_row;
  });
}

void InProcessCommunicator::dispatch(const DispatchArgs& args, AxisSet over, const Tag& tag) {
  together(args, over, tag, [&](const std::vector<const DispatchArgs*>& members, size_t) {
    place_slots(members, args, kernels_);
  });
}

void InProcessCommunicator::combine(const CombineArgs& args, AxisSet over, const Tag& tag) {
  together(args, over, tag, [&](const std::vector<const CombineArgs*>& members, size_t index) {
    kernels_.pull_weighted(pulled_by(members, index, args).args(args));
  });
}

}  // namespace lockstep::collectives
