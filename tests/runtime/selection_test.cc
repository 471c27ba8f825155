#include "lockstep/runtime/sampler/selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

namespace lockstep::runtime {
namespace {

using testing::ElementsAre;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<Entry> sorted(std::span<const float> values) {
  std::vector<Entry> entries;
  for (size_t i = 0; i < values.size(); ++i) entries.push_back({values[i], static_cast<int32_t>(i)});
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.value > b.value; });
  return entries;
}

// Few distinct values, so that ties are everywhere.
std::vector<float> with_ties(std::mt19937_64& engine, size_t size, int num_values) {
  std::vector<float> values;
  for (size_t i = 0; i < size; ++i)
    values.push_back(static_cast<float>(std::uniform_int_distribution<int>(0, num_values - 1)(engine)) / 8);
  return values;
}

TEST(Selection, LargestAreThoseOfASort) {
  std::mt19937_64 engine(1);
  for (const size_t size : {1U, 2U, 15U, 16U, 17U, 100U, 3000U}) {
    for (const int num_values : {1, 3, 1 << 20}) {
      const std::vector<float> values = with_ties(engine, size, num_values);
      const std::vector<Entry> wanted = sorted(values);
      EXPECT_EQ(largest_one(values), wanted[0]);
      for (const size_t k :
           {size_t{0}, size_t{1}, size_t{2}, size_t{20}, size / 2, size - 1, size, size + 5}) {
        const std::vector<Entry> first(wanted.begin(),
                                       wanted.begin() + static_cast<std::ptrdiff_t>(std::min(k, size)));
        EXPECT_EQ(largest(values, k), first) << "the " << k << " largest of " << size;
        if (k == 0 || k > size) continue;
        EXPECT_EQ(kth_largest(values, k), wanted[k - 1]);
      }
    }
  }
}

// Ascending values are the worst case of a reservoir: everything enters it.
TEST(Selection, LargestOfAscendingValues) {
  std::vector<float> values;
  for (int i = 0; i < 5000; ++i) values.push_back(static_cast<float>(i));
  EXPECT_THAT(largest(values, 3), ElementsAre(Entry{4999, 4999}, Entry{4998, 4998}, Entry{4997, 4997}));
}

TEST(Selection, MinusInfinityIsAValue) {
  EXPECT_EQ(largest_one(std::vector<float>(40, -kInfinity)), (Entry{-kInfinity, 0}));
  EXPECT_THAT(largest(std::vector<float>{-kInfinity, 1, -kInfinity}, 2),
              ElementsAre(Entry{1, 1}, Entry{-kInfinity, 0}));
}

TEST(Selection, LastOfShareByHand) {
  const std::vector<float> weights = {0.125f, 0.5f, 0.25f, 0.125f};  // sums are exact
  EXPECT_EQ(last_of_share(weights, 1, 0).idx, 1) << "never empty";
  EXPECT_EQ(last_of_share(weights, 1, 0.5).idx, 1) << "a half reaches a half";
  EXPECT_EQ(last_of_share(weights, 1, 0.51).idx, 2);
  EXPECT_EQ(last_of_share(weights, 1, 0.75).idx, 2);
  EXPECT_EQ(last_of_share(weights, 1, 0.8).idx, 0) << "of equal weights the first";
  EXPECT_EQ(last_of_share(weights, 1, 0.9).idx, 3);
  EXPECT_EQ(last_of_share(weights, 1, 1).idx, 3);
  EXPECT_EQ(last_of_share(std::vector<float>{0, 0, 1, 0}, 1, 1).idx, 2) << "zero weights reach nothing";
}

TEST(Selection, LastOfShareIsThatOfASort) {
  std::mt19937_64 engine(2);
  for (int round = 0; round < 400; ++round) {
    std::vector<float> weights = with_ties(engine, std::uniform_int_distribution<size_t>(1, 400)(engine), 30);
    weights[0] += 1;  // something is positive; all are multiples of an eighth, so that sums are exact
    double total = 0;
    for (const float weight : weights) total += static_cast<double>(weight);
    const double share = std::uniform_int_distribution<int>(0, 64)(engine) / 64.0;
    Entry wanted;
    double mass = 0;
    for (const Entry& entry : sorted(weights)) {
      wanted = entry;
      mass += static_cast<double>(entry.value);
      if (mass >= share * total) break;
    }
    EXPECT_EQ(last_of_share(weights, total, share), wanted) << round;
  }
}

}  // namespace
}  // namespace lockstep::runtime
