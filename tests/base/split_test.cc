#include "lockstep/base/split.h"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(SplitRange, PartsTileTheWholeAndOwnersAgree) {
  for (int64_t total = 1; total <= 40; ++total)
    for (int64_t parts = 1; parts <= 20; ++parts) {
      int64_t next = 0;
      for (int64_t index = 0; index < parts; ++index) {
        const Range range = split_range(total, parts, index);
        ASSERT_EQ(range.begin, next);
        ASSERT_LE(range.size(), (total + parts - 1) / parts);
        for (int64_t at = range.begin; at < range.end; ++at) ASSERT_EQ(owner_of(total, parts, at), index);
        next = range.end;
      }
      ASSERT_EQ(next, total);
    }
}

TEST(SplitRange, DividingSizesAreEqualBlocks) {
  EXPECT_EQ(split_range(16, 4, 1).begin, 4);
  EXPECT_EQ(split_range(16, 4, 1).end, 8);
}

}  // namespace
}  // namespace lockstep
