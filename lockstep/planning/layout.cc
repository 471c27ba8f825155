#include "lockstep/planning/layout.h"

#include <utility>

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

namespace {

// "Shard(dp,tp)" -> its placement, and the axes by way of `grid`.
Result<std::pair<Placement, AxisSet>> read_word(std::string_view text, const RankGrid& grid) {
  const auto open = text.find('(');
  if (open == std::string_view::npos || text.back() != ')')
    return invalid_argument("", "not a layout: \"{}\"", text);
  for (const Word& word : kWords) {
    if (text.substr(0, open) != word.name) continue;
    const auto axes = grid.axes_named(text.substr(open + 1, text.size() - open - 2));
    if (!axes) return axes.error();
    if (axes->empty()) return invalid_argument("", "{} without an axis", word.name);
    return std::pair(word.placement, *axes);
  }
  return invalid_argument("", "not a placement: \"{}\"", text.substr(0, open));
}

}  // namespace

Result<Layout> layout_from_text(std::string_view text, const RankGrid& grid) {
  Layout layout;
  if (text == "Replicate") return layout;
  if (text.empty()) return invalid_argument("", "a layout is missing");
  AxisSet placed;
  for (;;) {
    const auto space = text.find(' ');
    const std::string_view word_text = text.substr(0, space);
    if (word_text.empty()) return invalid_argument("", "two spaces in a layout, or one at its end");
    const auto word = read_word(word_text, grid);
    if (!word) return word.error();
    if (const AxisSet twice = placed & word->second; !twice.empty())
      return invalid_argument("", "the axis {} is placed twice", grid.name_of(twice));
    placed = placed | word->second;
    layout = layout.with(word->second, word->first);
    if (space == std::string_view::npos) return layout;
    text.remove_prefix(space + 1);
  }
}

}  // namespace lockstep::planning
