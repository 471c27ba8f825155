#include "lockstep/cli/last_integer.h"

#include <gtest/gtest.h>

namespace lockstep::cli {
namespace {

TEST(LastInteger, IsTheLastRunOfDigits) {
  EXPECT_EQ(last_integer("12 + 30 = 42. The answer is 42."), 42);
  EXPECT_EQ(last_integer("{\"answer\": 7}"), 7);
  EXPECT_EQ(last_integer("first 1, then 2, then nothing"), 2);
  EXPECT_EQ(last_integer(""), std::nullopt);
  EXPECT_EQ(last_integer("no number"), std::nullopt);
}

TEST(LastInteger, KeepsSignsThatBelongToTheNumber) {
  EXPECT_EQ(last_integer("The answer is -346."), -346);
  EXPECT_EQ(last_integer("x-3"), 3);
  EXPECT_EQ(last_integer("10-3"), 3);
  EXPECT_EQ(last_integer("= -3"), -3);
}

TEST(LastInteger, SkipsThousandsCommasOnly) {
  EXPECT_EQ(last_integer("1,234"), 1234);
  EXPECT_EQ(last_integer("12,345,678 pens"), 12345678);
  EXPECT_EQ(last_integer("1,2345"), 2345);
  EXPECT_EQ(last_integer("4, 567"), 567);
}

TEST(LastInteger, TooLargeIsNone) {
  EXPECT_EQ(last_integer("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(last_integer("9223372036854775808"), std::nullopt);
  EXPECT_EQ(last_integer(std::string(100000, '9')), std::nullopt);
}

}  // namespace
}  // namespace lockstep::cli
