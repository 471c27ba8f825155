#include "lockstep/planning/layout.h"

namespace lockstep::planning {
namespace {

struct Word {
  Placement placement;
  std::string_view name;
};
constexpr Word kWords[] = {
    {Placement::kShard, "Shard"}, {Placement::kPartial, "Partial"}, {Placement::kColumns, "Columns"}};

}  // namespace

std::string to_text(const Layout& layout, const RankGrid& grid) {
  std::string text;
  for (const Word& word : kWords) {
    const AxisSet axes = layout.axes_with(word.placement, grid);
    if (!axes.empty())
      text += fmt::format("{}{}({})", text.empty() ? "" : " ", word.name, grid.name_of(axes));
  }
  return text.empty() ? "Replicate" : text;
}

Result<Layout> layout_from_text(std::string_view text, const RankGrid& grid) {
  Layout layout;
  if (text == "Replicate") return layout;
  while (!text.empty()) {
    const auto open = text.find('('), close = text.find(')');
    if (open == std::string_view::npos || close == std::string_view::npos || close < open)
      return invalid_argument("", "not a layout: \"{}\"", text);
    bool known = false;
    for (const Word& word : kWords) {
      if (text.substr(0, open) != word.name) continue;
      const auto axes = grid.axes_named(text.substr(open + 1, close - open - 1));
      if (!axes) return axes.error();
      layout = layout.with(*axes, word.placement);
      known = true;
    }
    if (!known) return invalid_argument("", "not a placement: \"{}\"", text.substr(0, open));
    text = text.substr(close + 1);
    if (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  }
  return layout;
}

}  // namespace lockstep::planning
