#include "lockstep/planning/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace lockstep::planning::test {
namespace {

using ::testing::HasSubstr;
using enum Placement;

RankGrid three_axes() {
  return *RankGrid::make({.num_ranks = 8, .attention_tp = 4, .expert_tp = 2, .dense_tp = 1});
}

std::vector<Layout> all_layouts(const RankGrid& grid) {
  std::vector<Layout> layouts = {Layout()};
  for (int axis = 0; axis < grid.num_axes(); ++axis) {
    std::vector<Layout> wider;
    for (const Layout& layout : layouts)
      for (const Placement placement : {kReplicate, kShard, kPartial, kColumns})
        wider.push_back(layout.with(AxisSet::of(axis), placement));
    layouts = std::move(wider);
  }
  return layouts;
}

TEST(Layout, IsReplicatedUntilSaidOtherwise) {
  const RankGrid grid = three_axes();
  EXPECT_EQ(Layout().axes_with(kReplicate, grid), grid.all());
  for (int axis = 0; axis < kMaxAxes; ++axis) EXPECT_EQ(Layout().at(axis), kReplicate);
}

TEST(Layout, WithChangesItsAxesAndNoOthers) {
  const Layout layout = Layout().with(AxisSet::of(0), kPartial).with(AxisSet::of(7), kColumns);
  EXPECT_EQ(layout.at(0), kPartial);
  EXPECT_EQ(layout.at(7), kColumns);
  for (int axis = 1; axis < 7; ++axis) EXPECT_EQ(layout.at(axis), kReplicate);
  EXPECT_EQ(layout.with(AxisSet::of(0), kShard).at(0), kShard);
  EXPECT_EQ(layout.with(AxisSet::of(0), kReplicate).with(AxisSet::of(7), kReplicate), Layout());
  static_assert(Layout().with(AxisSet(3), kShard) != Layout());
}

TEST(Layout, OfEveryKindOfThreeAxesIsReadBackFromItsText) {
  const RankGrid grid = three_axes();
  const auto layouts = all_layouts(grid);
  ASSERT_EQ(layouts.size(), 64u);
  std::set<std::string> texts;
  std::set<uint32_t> bits;
  for (const Layout& layout : layouts) {
    const std::string text = to_text(layout, grid);
    const auto read = layout_from_text(text, grid);
    ASSERT_TRUE(read.ok()) << text << ": " << read.error().message;
    EXPECT_EQ(*read, layout) << text;
    EXPECT_LT(layout.bits(), 64u);
    texts.insert(text);
    bits.insert(layout.bits());
  }
  EXPECT_EQ(texts.size(), 64u);
  EXPECT_EQ(bits.size(), 64u);
}

TEST(Layout, IsWrittenAsInTheDesign) {
  const RankGrid grid = three_axes();
  const Layout attention_gives =
      Layout().with(grid.attention_dp(), kShard).with(grid.attention_tp(), kPartial);
  EXPECT_EQ(to_text(attention_gives, grid), "Shard(dp) Partial(tp1,tp0)");
  EXPECT_EQ(to_text(Layout(), grid), "Replicate");
  EXPECT_EQ(to_text(Layout().with(grid.all(), kShard), grid), "Shard(dp,tp1,tp0)");
}

TEST(Layout, RefusesTextThatIsNone) {
  const RankGrid grid = three_axes();
  for (const char* wrong : {"", " ", "Shard", "Shard()", "Shard(-)", "Shard(dp", "Shard dp)", "shard(dp)",
                            "Shard(dp) ", " Shard(dp)", "Shard(dp)  Partial(tp0)", "Shard(dp)Partial(tp0)",
                            "Replicate Shard(dp)", "Replicate(dp)", "Sum(tp0)", "Shard(ep)"})
    EXPECT_FALSE(layout_from_text(wrong, grid).ok()) << '"' << wrong << '"';
  EXPECT_THAT(layout_from_text("Shard(dp) Partial(dp)", grid).error().message,
              HasSubstr("axis dp is placed twice"));
  EXPECT_THAT(layout_from_text("Sum(tp0)", grid).error().message, HasSubstr("\"Sum\""));
  EXPECT_FALSE(layout_from_text("Shard(tp0) Shard(tp0)", grid).ok());
}

}  // namespace
}  // namespace lockstep::planning::test
