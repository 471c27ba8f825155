#include "lockstep/collectives/in_process/communicator.h"

#include <algorithm>
#include <cstring>

#include "lockstep/collectives/in_process/rendezvous.h"
#include "lockstep/collectives/in_process/world.h"

namespace lockstep::collectives {
namespace {

float* row_of(const TensorView& view, int64_t row) { return view.as<float>() + row * view.stride[0]; }

void copy_rows(const TensorView& from, int64_t src, const TensorView& to, int64_t dst, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row)
    std::memcpy(row_of(to, dst + row), row_of(from, src + row),
                static_cast<size_t>(from.cols()) * sizeof(float));
}

void add_row(float* sum, const float* addend, int64_t width) {
  for (int64_t at = 0; at < width; ++at) sum[at] += addend[at];
}

// out[dst …] = the members' rows [src …] summed in member order.
template <class Args>
void sum_rows(const std::vector<const Args*>& members, int64_t src, const TensorView& out, int64_t dst,
              int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) {
    float* sum = row_of(out, dst + row);
    std::memcpy(sum, row_of(members[0]->in, src + row), static_cast<size_t>(out.cols()) * sizeof(float));
    for (size_t member = 1; member < members.size(); ++member)
      add_row(sum, row_of(members[member]->in, src + row), out.cols());
  }
}

template <class Args>
void check_same_rows(const std::vector<const Args*>& members, int64_t rows) {
  for (const Args* member : members) LOCKSTEP_CHECK_EQ(member->in.rows(), rows);
}

// Counts, then places: slots stand grouped by local expert, then by member, then by row.
void place_slots(const std::vector<const DispatchArgs*>& members, const DispatchArgs& own) {
  Dispatched& out = *own.out;
  const auto is_local = [&](int32_t expert) {
    return expert >= own.first_expert && expert < own.first_expert + own.num_local_experts;
  };
  std::vector<int32_t> next(static_cast<size_t>(own.num_local_experts) + 1, 0);
  for (const DispatchArgs* member : members)
    for (int64_t at = 0; at < member->expert_idx.num_elements(); ++at)
      if (const int32_t expert = member->expert_idx.as<int32_t>()[at]; is_local(expert))
        ++next[static_cast<size_t>(expert - own.first_expert) + 1];
  for (size_t expert = 1; expert < next.size(); ++expert) next[expert] += next[expert - 1];
  out.expert_start = next;
  out.num_slots = next.back();
  const int64_t hidden = own.x.cols();
  out.rows.resize(static_cast<size_t>(out.num_slots * hidden));
  out.slot_of.resize(members.size());
  for (size_t m = 0; m < members.size(); ++m) {
    const TensorView& idx = members[m]->expert_idx;
    out.slot_of[m].assign(static_cast<size_t>(idx.num_elements()), -1);
    for (int64_t at = 0; at < idx.num_elements(); ++at) {
      const int32_t expert = idx.as<int32_t>()[at];
      if (!is_local(expert)) continue;
      const int32_t slot = next[static_cast<size_t>(expert - own.first_expert)]++;
      out.slot_of[m][static_cast<size_t>(at)] = slot;
      std::memcpy(out.rows.data() + slot * hidden, row_of(members[m]->x, at / idx.cols()),
                  static_cast<size_t>(hidden) * sizeof(float));
    }
  }
}

// The rank's rows: weighted sums in top_k order over whichever member computed the expert.
void pull_weighted(const std::vector<const CombineArgs*>& members, const CombineArgs& own, size_t index) {
  const int64_t hidden = own.out.cols(), top_k = own.expert_idx.cols();
  for (int64_t row = 0; row < own.out.rows(); ++row) {
    float* sum = row_of(own.out, row);
    std::fill(sum, sum + hidden, 0.0f);
    for (int64_t k = 0; k < top_k; ++k) {
      const int64_t at = row * top_k + k;
      for (const CombineArgs* member : members) {
        const int32_t slot = member->dispatched->slot_of[index][static_cast<size_t>(at)];
        if (slot < 0) continue;
        const float* y = row_of(member->y, slot);
        const float weight = own.weight.as<float>()[at];
        for (int64_t column = 0; column < hidden; ++column) sum[column] += weight * y[column];
      }
    }
  }
}

struct Leaving {
  Rendezvous& group;
  int index;
  ~Leaving() { group.leave(index); }
};

}  // namespace

InProcessCommunicator::InProcessCommunicator(InProcessWorld& world, int rank) : world_(world) {
  for (uint32_t bits = 1; bits <= world.grid_.all().bits(); ++bits) {
    const AxisSet over(bits);
    places_[over] = {&world.rendezvous(world.grid_.group(rank, over)),
                     world.grid_.index_in_group(rank, over)};
  }
}

Contract InProcessCommunicator::contract() const { return InProcessWorld::contract(); }

template <class Args, class Body>
void InProcessCommunicator::together(const Args& args, AxisSet over, const Tag& tag, Body body) {
  if (over.empty()) return body(std::vector<const Args*>{&args}, size_t{0});
  const Place place = places_.at(over);
  Args& own = std::get<Args>(shown_);
  own = args;
  const auto& shown = place.group->meet(place.index, &own, tag);
  std::vector<const Args*> members;
  for (const void* one : shown) members.push_back(static_cast<const Args*>(one));
  // Also a body that throws leaves with the others: they still read what this rank showed.
  const Leaving leaving{*place.group, place.index};
  body(members, static_cast<size_t>(place.index));
}

void InProcessCommunicator::all_reduce(const AllReduceArgs& args, AxisSet over, const Tag& tag) {
  together(args, over, tag, [&](const std::vector<const AllReduceArgs*>& members, size_t) {
    check_same_rows(members, args.in.rows());
    sum_rows(members, 0, args.out, 0, args.out.rows());
  });
}

void InProcessCommunicator::reduce_scatter(const ReduceScatterArgs& args, AxisSet over, const Tag& tag) {
  together(args, over, tag, [&](const std::vector<const ReduceScatterArgs*>& members, size_t) {
    check_same_rows(members, args.in.rows());
    for (const RowPiece& piece : args.keeps)
      sum_rows(members, piece.src_row, args.out, piece.dst_row, piece.num_rows);
  });
}

void InProcessCommunicator::all_gather(const AllGatherArgs& args, AxisSet over, const Tag& tag) {
  together(args, over, tag, [&](const std::vector<const AllGatherArgs*>& members, size_t) {
    for (const RowPiece& piece : args.pieces) {
      const TensorView& from = members[static_cast<size_t>(piece.member)]->in;
      LOCKSTEP_CHECK_LE(piece.src_row + piece.num_rows, from.rows());
      copy_rows(from, piece.src_row, args.out, piece.dst_row, piece.num_rows);
    }
  });
}

void InProcessCommunicator::columns_to_rows(const ColumnsToRowsArgs& args, AxisSet over, const Tag& tag) {
  together(args, over, tag, [&](const std::vector<const ColumnsToRowsArgs*>& members, size_t) {
    check_same_rows(members, args.in.rows());
    int64_t column = 0;
    for (const ColumnsToRowsArgs* member : members) {
      const int64_t width = member->in.cols();
      LOCKSTEP_CHECK_LE(column + width, args.out.cols());
      for (const RowPiece& piece : args.keeps)
        copy_rows(member->in, piece.src_row, args.out.col_range(column, width), piece.dst_row,
                  piece.num_rows);
      column += width;
    }
    LOCKSTEP_CHECK_EQ(column, args.out.cols());
  });
}

void InProcessCommunicator::fused_all_reduce_add_norm(FusedAllReduceAddNormArgs& args,
                                                      kernels::Kernels& kernels, AxisSet over,
                                                      const Tag& tag) {
  constexpr int64_t kBlock = 8;  // rows that stay in the cache between sum, add and norm
  together(args, over, tag, [&](const std::vector<const FusedAllReduceAddNormArgs*>& members, size_t) {
    check_same_rows(members, args.in.rows());
    args.first_non_finite_row = -1;
    for (int64_t row = 0; row < args.in.rows(); row += kBlock) {
      const int64_t rows = std::min(kBlock, args.in.rows() - row);
      const TensorView out = args.out.row_range(row, rows), residual = args.residual.row_range(row, rows);
      sum_rows(members, row, out, 0, rows);
      kernels.add({.x = residual, .y = out});
      kernels::RmsNormArgs norm{.x = residual, .weight = args.weight, .eps = args.eps, .out = out};
      kernels.rms_norm(norm);
      if (norm.first_non_finite_row >= 0 && args.first_non_finite_row < 0)
        args.first_non_finite_row = row + norm.first_non_finite_row;
    }
  });
}

void InProcessCommunicator::dispatch(const DispatchArgs& args, AxisSet over, const Tag& tag) {
  together(args, over, tag,
           [&](const std::vector<const DispatchArgs*>& members, size_t) { place_slots(members, args); });
}

void InProcessCommunicator::combine(const CombineArgs& args, AxisSet over, const Tag& tag) {
  together(args, over, tag, [&](const std::vector<const CombineArgs*>& members, size_t index) {
    pull_weighted(members, args, index);
  });
}

}  // namespace lockstep::collectives
