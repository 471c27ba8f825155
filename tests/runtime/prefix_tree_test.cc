#include "lockstep/runtime/kv_cache/prefix_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "lockstep/base/check.h"

namespace lockstep::runtime {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// A sequence with its keys.
struct Tokens {
  Tokens(std::vector<int32_t> of, int32_t page_size, std::string with_salt = "")
      : tokens(std::move(of)), salt(std::move(with_salt)) {
    extend_page_keys(salt, tokens, page_size, keys);
  }
  TreePath path() const { return {.salt = salt, .tokens = tokens, .keys = keys}; }
  std::vector<int32_t> tokens;
  std::string salt;
  std::vector<uint64_t> keys;
};

// Puts all full pages of a sequence into the tree as the pages given, and leaves them.
void put(PrefixTree& tree, const Tokens& of, std::vector<int32_t> pages) {
  int32_t parent = PrefixTree::kNone;
  for (size_t i = 0; i < pages.size(); ++i)
    pages[i] = parent = tree.insert(of.path(), static_cast<int32_t>(i), parent, pages[i]);
  for (size_t i = pages.size(); i-- > 0;) tree.leave(pages[i]);
}

TEST(PageKeys, CoverFullPagesAndAllBefore) {
  const Tokens a({1, 2, 3, 4, 5}, 2), b({1, 2, 3, 9}, 2), c({3, 4, 1, 2}, 2), salted({1, 2, 3, 4}, 2, "x");
  EXPECT_EQ(a.keys.size(), 2U);
  EXPECT_EQ(a.keys[0], b.keys[0]);
  EXPECT_NE(a.keys[1], b.keys[1]);
  EXPECT_NE(a.keys[1], c.keys[0]) << "the same tokens elsewhere are another page";
  EXPECT_NE(a.keys[0], salted.keys[0]);
  std::vector<uint64_t> grown(a.keys.begin(), a.keys.begin() + 1);
  extend_page_keys("", a.tokens, 2, grown);
  EXPECT_EQ(grown, a.keys);
}

TEST(PrefixTree, FindsTheLongestBeginningOfFullPages) {
  PrefixTree tree(8, 2);
  put(tree, Tokens({1, 2, 3, 4, 5, 6, 7}, 2), {4, 2, 6});
  EXPECT_THAT(tree.match(Tokens({1, 2, 3, 4, 5, 6, 7, 8}, 2).path(), 9), ElementsAre(4, 2, 6));
  EXPECT_THAT(tree.match(Tokens({1, 2, 3, 4, 5, 6}, 2).path(), 2), ElementsAre(4, 2)) << "at most two";
  EXPECT_THAT(tree.match(Tokens({1, 2, 3, 9, 5, 6}, 2).path(), 9), ElementsAre(4));
  EXPECT_THAT(tree.match(Tokens({3, 4, 5, 6}, 2).path(), 9), IsEmpty());
  EXPECT_THAT(tree.match(Tokens({1}, 2).path(), 9), IsEmpty()) << "no full page";
  EXPECT_EQ(tree.num_matching(Tokens({1, 2, 3, 4, 9, 9}, 2).keys), 2);
  EXPECT_EQ(tree.num_matching({}), 0);
}

TEST(PrefixTree, SaltsShareNothing) {
  PrefixTree tree(8, 2);
  put(tree, Tokens({1, 2, 3, 4}, 2, "alice"), {0, 1});
  put(tree, Tokens({1, 2, 3, 4}, 2, "bob"), {2, 3});
  put(tree, Tokens({1, 2, 3, 4}, 2), {4, 5});
  EXPECT_THAT(tree.match(Tokens({1, 2, 3, 4}, 2, "alice").path(), 9), ElementsAre(0, 1));
  EXPECT_THAT(tree.match(Tokens({1, 2, 3, 4}, 2, "bob").path(), 9), ElementsAre(2, 3));
  EXPECT_THAT(tree.match(Tokens({1, 2, 3, 4}, 2).path(), 9), ElementsAre(4, 5));
  EXPECT_THAT(tree.match(Tokens({1, 2, 3, 4}, 2, "carol").path(), 9), IsEmpty());
}

// What an attacker could make of the hash: a key of one content with the tokens or the salt of another.
TEST(PrefixTree, AKeyOfOtherContentIsNoHit) {
  PrefixTree tree(8, 2);
  const Tokens there({1, 2, 3, 4}, 2, "alice");
  put(tree, there, {0, 1});
  Tokens forged({1, 2, 8, 9}, 2, "alice");
  forged.keys = there.keys;
  EXPECT_THAT(tree.match(forged.path(), 9), ElementsAre(0));
  Tokens stolen({1, 2, 3, 4}, 2, "bob");
  stolen.keys = there.keys;
  EXPECT_THAT(tree.match(stolen.path(), 9), IsEmpty());
  EXPECT_EQ(tree.insert(stolen.path(), 0, PrefixTree::kNone, 5), PrefixTree::kNone);
  EXPECT_EQ(tree.num_pages(), 2);
  tree.check();
}

TEST(PrefixTree, InsertingWhatIsThereGivesThePageThatIsThere) {
  PrefixTree tree(8, 2);
  const Tokens a({1, 2, 3, 4}, 2);
  EXPECT_EQ(tree.insert(a.path(), 0, PrefixTree::kNone, 3), 3);
  EXPECT_EQ(tree.insert(a.path(), 0, PrefixTree::kNone, 5), 3);
  EXPECT_EQ(tree.num_users(3), 2);
  EXPECT_FALSE(tree.holds(5));
  EXPECT_EQ(tree.num_pages(), 1);
}

TEST(PrefixTree, EvictsLeavesThatWereUsedLongestAgo) {
  PrefixTree tree(8, 1);
  put(tree, Tokens({1, 2, 3}, 1), {0, 1, 2});
  put(tree, Tokens({1, 2, 4}, 1), {5, 6, 3});  // its first two are there already
  put(tree, Tokens({9}, 1), {4});
  EXPECT_EQ(tree.num_unused(), 5);
  tree.use(0), tree.use(1), tree.use(2);  // the first sequence again
  EXPECT_EQ(tree.evict(), 3);
  EXPECT_EQ(tree.evict(), 4);
  EXPECT_EQ(tree.evict(), PrefixTree::kNone) << "the others are in use";
  tree.leave(2), tree.leave(1), tree.leave(0);
  tree.check();
  EXPECT_FALSE(tree.remove(0)) << "a page hangs under it";
  EXPECT_EQ(tree.evict(), 2);
  EXPECT_EQ(tree.evict(), 1);
  EXPECT_TRUE(tree.remove(0));
  EXPECT_EQ(tree.num_pages(), 0);
  tree.check();
}

TEST(PrefixTree, ThingsThatOnlyABugCanDo) {
  PrefixTree tree(4, 1);
  const Tokens a({1, 2}, 1);
  EXPECT_THROW(tree.use(0), Fatal);
  EXPECT_THROW(tree.leave(0), Fatal);
  EXPECT_EQ(tree.insert(a.path(), 0, PrefixTree::kNone, 0), 0);
  EXPECT_THROW((void)tree.insert(a.path(), 1, 0, 0), Fatal) << "the page is in the tree";
  EXPECT_THROW((void)tree.insert(a.path(), 1, PrefixTree::kNone, 1), Fatal) << "no parent";
  tree.leave(0);
  EXPECT_THROW((void)tree.insert(a.path(), 1, 0, 1), Fatal) << "nobody uses the parent";
}

// Against a map from beginnings to pages: what a tree of prefixes means, without a tree.
TEST(PrefixTree, RandomUseAgainstAMap) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    const auto below = [&](int n) { return static_cast<int32_t>(random() % static_cast<uint64_t>(n)); };
    constexpr int32_t kPages = 24;
    PrefixTree tree(kPages, 2);
    std::map<std::vector<int32_t>, int32_t> pages_of;  // beginning -> page
    std::vector<int32_t> free;
    for (int32_t page = 0; page < kPages; ++page) free.push_back(page);
    const auto evict = [&] {
      const int32_t page = tree.evict();
      if (page == PrefixTree::kNone) return;
      free.push_back(page);
      std::erase_if(pages_of, [&](const auto& entry) { return entry.second == page; });
    };
    for (int round = 0; round < 300; ++round) {
      std::vector<int32_t> tokens(static_cast<size_t>(below(13)));
      for (int32_t& token : tokens) token = below(2);
      const Tokens sequence(tokens, 2);
      std::vector<int32_t> wanted;
      while (true) {
        const std::vector<int32_t> beginning(
            tokens.begin(), tokens.begin() + std::min(std::ssize(tokens), 2 * (std::ssize(wanted) + 1)));
        const auto found = pages_of.find(beginning);
        if (std::ssize(beginning) < 2 * (std::ssize(wanted) + 1) || found == pages_of.end()) break;
        wanted.push_back(found->second);
      }
      ASSERT_EQ(tree.match(sequence.path(), 100), wanted);
      ASSERT_EQ(tree.num_matching(sequence.keys), std::ssize(wanted));
      for (const int32_t page : wanted) tree.use(page);
      while (wanted.size() < sequence.keys.size()) {
        if (free.empty()) evict();
        if (free.empty()) break;
        const int32_t parent = wanted.empty() ? PrefixTree::kNone : wanted.back();
        const int32_t page = free.back();
        free.pop_back();
        ASSERT_EQ(tree.insert(sequence.path(), static_cast<int32_t>(wanted.size()), parent, page), page);
        wanted.push_back(page);
        pages_of[{tokens.begin(), tokens.begin() + 2 * std::ssize(wanted)}] = page;
      }
      for (size_t i = wanted.size(); i-- > 0;) tree.leave(wanted[i]);
      if (below(6) == 0) evict();
      tree.check();
      ASSERT_EQ(tree.num_pages() + std::ssize(free), kPages);
    }
  }
}

}  // namespace
}  // namespace lockstep::runtime
