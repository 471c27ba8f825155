#pragma once
// The ranks of one engine as a grid of atomic axes. Pure arithmetic: no communicator, no device.
//
// Attention factors the ranks as (TP, CP, DP), experts as (TP, EP, copies), dense layers, head and embedding
// as (TP, replicas), each with the fastest first over the same rank number. The atomic axes are the common
// refinement of all of them, so every group that any stage needs is a set of atomic axes. Factorizations that
// do not nest have no common refinement and are refused.
#include <bit>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/check.h"

namespace lockstep::planning {

inline constexpr int kMaxAxes = 8;

// A set of atomic axes of one grid.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr explicit AxisSet(uint32_t bits) : bits_(bits) {}
  static constexpr AxisSet of(int axis) { return AxisSet(uint32_t{1} << axis); }

  constexpr bool has(int axis) const { return (bits_ >> axis) & 1U; }
  constexpr bool empty() const { return bits_ == 0; }
  constexpr int count() const { return std::popcount(bits_); }
  constexpr uint32_t bits() const { return bits_; }
  constexpr bool contains(AxisSet other) const { return (other.bits_ & ~bits_) == 0; }
  constexpr AxisSet operator|(AxisSet other) const { return AxisSet(bits_ | other.bits_); }
  constexpr AxisSet operator&(AxisSet other) const { return AxisSet(bits_ & other.bits_); }
  constexpr AxisSet operator-(AxisSet other) const { return AxisSet(bits_ & ~other.bits_); }
  constexpr auto operator<=>(const AxisSet&) const = default;

 private:
  uint32_t bits_ = 0;
};

// How the ranks of a replica that compute attention with a share of its rows each share them out.
enum class RowShares : uint8_t {
  kContiguous,  // each a run of rows; the last ones look back furthest
  kZigzag,      // of every prompt each an early run and a late one, so that all look back as far
};
std::string_view name_of(RowShares shares);

// Sizes by role. Each width must divide num_ranks: attention_tp * attention_dp == num_ranks and so on.
struct GridShape {
  int num_ranks = 1;
  int attention_tp = 1;  // ranks of a replica, A * C; attention DP is num_ranks / attention_tp
  int expert_tp = 1;     // T; EP is num_ranks / (T * M)
  int dense_tp = 1;      // N; dense replicas are num_ranks / N
  int moe_dp = 1;        // M: copies of the experts, each for the rows of its own ranks
  int head_tp = 0;       // over which the vocabulary of the LM head is split; 0: all ranks
  int embedding_tp = 1;  // over which the vocabulary of the embedding is split
  int attn_cp = 1;       // C: ranks of a replica that share out its rows; its heads are split over the others
  RowShares row_shares = RowShares::kContiguous;
  bool operator==(const GridShape&) const = default;
};

struct AtomicAxis {
  std::string name;  // "tp", "dp"; "tp0", "tp1", … fastest first where a role had to be refined
  int size = 1;      // > 1
  int stride = 1;    // distance in ranks between neighbours along this axis
};

class RankGrid {
 public:
  // kInvalidArgument when two factorizations do not nest; the message names both widths.
  static Result<RankGrid> make(const GridShape& shape);

  int num_ranks() const { return shape_.num_ranks; }
  const GridShape& shape() const { return shape_; }
  const std::vector<AtomicAxis>& axes() const { return axes_; }  // fastest first
  int num_axes() const { return static_cast<int>(axes_.size()); }

  AxisSet all() const { return AxisSet((uint32_t{1} << axes_.size()) - 1); }
  AxisSet attention_tp() const { return below(shape_.attention_tp); }
  AxisSet attention_dp() const { return all() - attention_tp(); }
  AxisSet expert_tp() const { return below(shape_.expert_tp); }
  AxisSet attention_heads() const { return below(shape_.attention_tp / shape_.attn_cp); }
  AxisSet attention_cp() const { return attention_tp() - attention_heads(); }
  AxisSet expert_copies() const { return all() - below(shape_.num_ranks / shape_.moe_dp); }
  AxisSet expert_parallel() const { return all() - expert_tp() - expert_copies(); }
  AxisSet head_tp() const { return shape_.head_tp == 0 ? all() : below(shape_.head_tp); }
  AxisSet embedding_tp() const { return below(shape_.embedding_tp); }
  AxisSet dense_tp() const { return below(shape_.dense_tp); }
  int num_replicas() const { return shape_.num_ranks / shape_.attention_tp; }
  int replica_of(int rank) const { return rank / shape_.attention_tp; }

  int coord(int rank, int axis) const { return rank / axes_[axis].stride % axes_[axis].size; }
  int size(AxisSet over) const;  // ranks of one group
  // The ranks that differ from `rank` only along `over`, ascending; contains `rank`.
  std::vector<int> group(int rank, AxisSet over) const;
  int index_in_group(int rank, AxisSet over) const;

  std::string name_of(AxisSet over) const;  // "dp,tp", slowest first; "-" for the empty set
  Result<AxisSet> axes_named(std::string_view names) const;

 private:
  explicit RankGrid(const GridShape& shape) : shape_(shape) {}
  AxisSet below(int width) const;  // the axes that make up the fastest `width` ranks
  GridShape shape_;
  std::vector<AtomicAxis> axes_;
};

}  // namespace lockstep::planning
