#include "lockstep/planning/rank_grid.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace lockstep::planning {
namespace {

struct Width {
  const char* role;
  int value;
};

Status check_nesting(const std::vector<Width>& widths) {
  for (const Width& a : widths)
    for (const Width& b : widths)
      if (a.value < b.value && b.value % a.value != 0)
        return invalid_argument("",
                                "the {} width {} and the {} width {} do not nest: neither divides the other",
                                a.role, a.value, b.role, b.value);
  return Done{};
}

void name_axes(std::vector<AtomicAxis>& axes, const GridShape& shape) {
  const auto role = [&](const AtomicAxis& axis) {
    if (axis.stride < shape.attention_tp / shape.attn_cp) return "tp";
    return axis.stride < shape.attention_tp ? "cp" : "dp";
  };
  std::map<std::string, int> of_role, next;
  for (const AtomicAxis& axis : axes) ++of_role[role(axis)];
  for (AtomicAxis& axis : axes) {
    axis.name = role(axis);
    if (of_role[role(axis)] > 1) axis.name += std::to_string(next[role(axis)]++);
  }
}

}  // namespace

std::string_view name_of(RowShares shares) {
  return shares == RowShares::kContiguous ? "contiguous" : "zigzag";
}

Result<RankGrid> RankGrid::make(const GridShape& shape) {
  if (shape.num_ranks < 1 || shape.moe_dp < 1 || shape.num_ranks % shape.moe_dp != 0)
    return invalid_argument("", "{} copies of the experts do not divide the {} ranks", shape.moe_dp,
                            shape.num_ranks);
  if (shape.attn_cp < 1 || shape.attention_tp < 1 || shape.attention_tp % shape.attn_cp != 0)
    return invalid_argument("", "a context-parallel width of {} does not divide the {} ranks of a replica",
                            shape.attn_cp, shape.attention_tp);
  const std::vector<Width> widths = {{"attention-TP", shape.attention_tp},
                                     {"attention heads'", shape.attention_tp / shape.attn_cp},
                                     {"experts' TP", shape.expert_tp},
                                     {"dense-TP", shape.dense_tp},
                                     {"experts' copy", shape.num_ranks / shape.moe_dp},
                                     {"head", shape.head_tp == 0 ? shape.num_ranks : shape.head_tp},
                                     {"embedding", shape.embedding_tp},
                                     {"rank", shape.num_ranks}};
  for (const Width& width : widths)
    if (width.value < 1 || shape.num_ranks % width.value != 0)
      return invalid_argument("", "the {} width {} does not divide the {} ranks", width.role, width.value,
                              shape.num_ranks);
  if (auto nested = check_nesting(widths); !nested) return nested.error();
  if (shape.num_ranks / shape.moe_dp % shape.expert_tp != 0)
    return invalid_argument("", "the experts' TP width {} does not divide the {} ranks of a copy",
                            shape.expert_tp, shape.num_ranks / shape.moe_dp);

  RankGrid grid(shape);
  std::set<int> cuts = {1};
  for (const Width& width : widths) cuts.insert(width.value);
  for (auto cut = cuts.begin(); std::next(cut) != cuts.end(); ++cut)
    grid.axes_.push_back({.name = "", .size = *std::next(cut) / *cut, .stride = *cut});
  name_axes(grid.axes_, shape);
  LOCKSTEP_CHECK_LE(grid.num_axes(), kMaxAxes);
  return grid;
}

AxisSet RankGrid::below(int width) const {
  AxisSet set;
  for (int axis = 0; axis < num_axes(); ++axis)
    if (axes_[axis].stride < width) set = set | AxisSet::of(axis);
  return set;
}

int RankGrid::size(AxisSet over) const {
  int product = 1;
  for (int axis = 0; axis < num_axes(); ++axis)
    if (over.has(axis)) product *= axes_[axis].size;
  return product;
}

std::vector<int> RankGrid::group(int rank, AxisSet over) const {
  std::vector<int> members = {rank};
  for (int axis = 0; axis < num_axes(); ++axis) {
    if (!over.has(axis)) continue;
    std::vector<int> wider;
    for (const int member : members)
      for (int at = 0; at < axes_[axis].size; ++at)
        wider.push_back(member + (at - coord(member, axis)) * axes_[axis].stride);
    members = std::move(wider);
  }
  std::sort(members.begin(), members.end());
  return members;
}

int RankGrid::index_in_group(int rank, AxisSet over) const {
  int index = 0, scale = 1;
  for (int axis = 0; axis < num_axes(); ++axis) {
    if (!over.has(axis)) continue;
    index += coord(rank, axis) * scale;
    scale *= axes_[axis].size;
  }
  return index;
}

std::string RankGrid::name_of(AxisSet over) const {
  std::string names;
  for (int axis = num_axes() - 1; axis >= 0; --axis)
    if (over.has(axis)) names += (names.empty() ? "" : ",") + axes_[axis].name;
  return names.empty() ? "-" : names;
}

Result<AxisSet> RankGrid::axes_named(std::string_view names) const {
  AxisSet set;
  if (names == "-") return set;
  for (;;) {
    const auto comma = names.find(',');
    const std::string_view name = names.substr(0, comma);
    const auto at =
        std::find_if(axes_.begin(), axes_.end(), [&](const AtomicAxis& axis) { return axis.name == name; });
    if (at == axes_.end())
      return invalid_argument("", "this grid has no axis \"{}\"; its axes are {}", name, name_of(all()));
    const AxisSet axis = AxisSet::of(static_cast<int>(at - axes_.begin()));
    if (set.contains(axis)) return invalid_argument("", "the axis \"{}\" is named twice", name);
    set = set | axis;
    if (comma == std::string_view::npos) return set;
    names.remove_prefix(comma + 1);
  }
}

}  // namespace lockstep::planning
