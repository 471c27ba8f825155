#include "lockstep/runtime/kv_cache/page_pool.h"

#include <gtest/gtest.h>

#include <set>

#include "lockstep/base/check.h"

namespace lockstep::runtime {
namespace {

TEST(PagePool, PagesForTokens) {
  EXPECT_EQ(num_pages_for(0, 16), 0);
  EXPECT_EQ(num_pages_for(1, 16), 1);
  EXPECT_EQ(num_pages_for(16, 16), 1);
  EXPECT_EQ(num_pages_for(17, 16), 2);
  EXPECT_EQ(num_pages_for(5, 1), 5);
}

// contract: cache.own-or-shared
TEST(PagePool, APageHasOneOwner) {
  PagePool pool(6);
  std::vector<int32_t> a, b;
  ASSERT_TRUE(pool.grow(a, 2, 7));
  ASSERT_TRUE(pool.grow(b, 3, 8));
  ASSERT_TRUE(pool.grow(a, 3, 7));
  std::set<int32_t> pages(a.begin(), a.end());
  pages.insert(b.begin(), b.end());
  EXPECT_EQ(pages.size(), 6U);
  for (const int32_t page : a) EXPECT_EQ(pool.owner_of(page), 7U);
  for (const int32_t page : b) EXPECT_EQ(pool.owner_of(page), 8U);
  EXPECT_EQ(pool.num_used(), 6);
  EXPECT_EQ(pool.num_free(), 0);
}

TEST(PagePool, GrowsInWholeOrNotAtAll) {
  PagePool pool(4);
  std::vector<int32_t> a, b;
  ASSERT_TRUE(pool.grow(a, 3, 1));
  EXPECT_FALSE(pool.grow(b, 2, 2));
  EXPECT_TRUE(b.empty());
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_TRUE(pool.grow(a, 2, 1)) << "a table that is long enough stays";
  EXPECT_EQ(a.size(), 3U);
  EXPECT_TRUE(pool.grow(b, 1, 2));
}

TEST(PagePool, ReleasedPagesAreGivenOutAgain) {
  PagePool pool(3);
  std::vector<int32_t> a, b;
  ASSERT_TRUE(pool.grow(a, 3, 1));
  const std::set<int32_t> before(a.begin(), a.end());
  pool.release(a, 1);
  EXPECT_TRUE(a.empty());
  EXPECT_EQ(pool.num_used(), 0);
  ASSERT_TRUE(pool.grow(b, 3, 2));
  EXPECT_EQ(std::set<int32_t>(b.begin(), b.end()), before);
}

// contract: cache.own-or-shared
TEST(PagePool, ReleasingWhatOneDoesNotOwnIsABug) {
  PagePool pool(4);
  std::vector<int32_t> a;
  ASSERT_TRUE(pool.grow(a, 2, 1));
  std::vector<int32_t> foreign = a, twice = {a[0], a[0]}, outside = {4};
  EXPECT_THROW(pool.release(foreign, 2), Fatal);
  EXPECT_EQ(pool.num_used(), 2) << "nothing was freed";
  EXPECT_THROW(pool.release(outside, 1), Fatal);
  EXPECT_THROW(pool.release(twice, 1), Fatal);
  EXPECT_THROW((void)pool.grow(a, 3, 0), Fatal) << "0 owns nothing";
}

}  // namespace
}  // namespace lockstep::runtime
