#include "lockstep/runtime/kv_cache/prefix_tree.h"

#include <algorithm>

#include "lockstep/base/check.h"
#include "lockstep/base/hash.h"

namespace lockstep::runtime {

void extend_page_keys(std::string_view salt, std::span<const int32_t> tokens, int32_t page_size,
                      std::vector<uint64_t>& keys) {
  const auto page = static_cast<size_t>(page_size);
  uint64_t before = keys.empty() ? Hasher().add(salt).value() : keys.back();
  while ((keys.size() + 1) * page <= tokens.size()) {
    Hasher hasher;
    hasher.add(before);
    for (const int32_t token : tokens.subspan(keys.size() * page, page))
      hasher.add(static_cast<uint64_t>(token));
    before = hasher.value();
    keys.push_back(before);
  }
}

PrefixTree::PrefixTree(int32_t num_pages, int32_t page_size) : page_size_(page_size) {
  LOCKSTEP_CHECK_GE(num_pages, 0);
  LOCKSTEP_CHECK_GE(page_size, 1);
  nodes_.resize(static_cast<size_t>(num_pages));
  page_of_key_.reserve(nodes_.size());  // a table that grows would make a step wait
  tokens_.resize(static_cast<size_t>(num_pages) * static_cast<size_t>(page_size));
}

std::span<int32_t> PrefixTree::tokens_of(int32_t page) {
  const auto size = static_cast<size_t>(page_size_);
  return std::span(tokens_).subspan(static_cast<size_t>(page) * size, size);
}

std::span<const int32_t> PrefixTree::tokens_of(int32_t page) const {
  const auto size = static_cast<size_t>(page_size_);
  return std::span(tokens_).subspan(static_cast<size_t>(page) * size, size);
}

std::string_view PrefixTree::salt_of(int32_t page) const {
  const auto found = salts_.find(page);
  return found == salts_.end() ? std::string_view() : std::string_view(found->second);
}

// The page before it is the right one by induction, so the page's own tokens are all that is left to compare.
bool PrefixTree::is(int32_t page, const TreePath& path, int32_t page_idx, int32_t parent) const {
  const auto size = static_cast<size_t>(page_size_);
  const auto tokens = path.tokens.subspan(static_cast<size_t>(page_idx) * size, size);
  return node(page).parent == parent && std::ranges::equal(tokens_of(page), tokens) &&
         (parent != kNone || salt_of(page) == path.salt);
}

std::vector<int32_t> PrefixTree::match(const TreePath& path, int32_t most) const {
  std::vector<int32_t> pages;
  int32_t parent = kNone;
  for (const uint64_t key : path.keys) {
    const auto page_idx = static_cast<int32_t>(pages.size());
    if (page_idx >= most) break;
    const auto found = page_of_key_.find(key);
    if (found == page_of_key_.end() || !is(found->second, path, page_idx, parent)) break;
    parent = found->second;
    pages.push_back(parent);
  }
  return pages;
}

// A page is in the tree only where all pages before it are.
int32_t PrefixTree::num_matching(std::span<const uint64_t> keys) const {
  const auto end = std::partition_point(keys.begin(), keys.end(),
                                        [this](uint64_t key) { return page_of_key_.contains(key); });
  return static_cast<int32_t>(end - keys.begin());
}

int32_t PrefixTree::insert(const TreePath& path, int32_t page_idx, int32_t parent, int32_t page) {
  LOCKSTEP_CHECK(!holds(page), "page {} is in the tree, in use {} times", page, num_users(page));
  LOCKSTEP_CHECK_EQ(parent == kNone, page_idx == 0);
  const uint64_t key = path.keys[static_cast<size_t>(page_idx)];
  const auto [at, is_new] = page_of_key_.try_emplace(key, page);
  if (!is_new) {
    if (!is(at->second, path, page_idx, parent)) return kNone;
    use(at->second);
    return at->second;
  }
  const auto size = static_cast<size_t>(page_size_);
  std::ranges::copy(path.tokens.subspan(static_cast<size_t>(page_idx) * size, size), tokens_of(page).begin());
  node(page) = {.key = key, .parent = parent, .num_users = 1};
  if (parent != kNone) {
    LOCKSTEP_CHECK_GE(num_users(parent), 1);  // by whoever brings the page
    ++node(parent).num_children;
  } else if (!path.salt.empty()) {
    salts_.emplace(page, path.salt);
  }
  return page;
}

void PrefixTree::use(int32_t page) {
  LOCKSTEP_CHECK(holds(page), "page {} is not in the tree of {} pages", page, num_pages());
  if (node(page).num_users++ == 0) unlink(page);
}

// Whoever uses a page uses all before it and leaves them later, so among the unused a page always lies before
// its parent, and the oldest has no children.
void PrefixTree::leave(int32_t page) {
  LOCKSTEP_CHECK_GE(num_users(page), 1);
  if (--node(page).num_users == 0) link_newest(page);
}

int32_t PrefixTree::evict() {
  const int32_t page = oldest_;
  if (page != kNone) LOCKSTEP_CHECK(remove(page), "page {} has {} children", page, node(page).num_children);
  return page;
}

bool PrefixTree::remove(int32_t page) {
  if (node(page).num_users != 0 || node(page).num_children > 0) return false;
  unlink(page);
  if (node(page).parent != kNone) --node(node(page).parent).num_children;
  page_of_key_.erase(node(page).key);
  salts_.erase(page);
  node(page) = {};
  return true;
}

void PrefixTree::link_newest(int32_t page) {
  node(page).older = newest_;
  node(page).newer = kNone;
  (newest_ == kNone ? oldest_ : node(newest_).newer) = page;
  newest_ = page;
  ++num_unused_;
}

void PrefixTree::unlink(int32_t page) {
  Node& gone = node(page);
  (gone.older == kNone ? oldest_ : node(gone.older).newer) = gone.newer;
  (gone.newer == kNone ? newest_ : node(gone.newer).older) = gone.older;
  gone.older = gone.newer = kNone;
  --num_unused_;
}

void PrefixTree::check() const {
  std::vector<int32_t> children(nodes_.size(), 0);
  int32_t held = 0, unused = 0;
  for (const Node& each : nodes_) {
    if (each.num_users < 0) continue;
    ++held;
    unused += each.num_users == 0 ? 1 : 0;
    if (each.parent == kNone) continue;
    LOCKSTEP_CHECK(holds(each.parent), "page {} is a parent and not in the tree of {}", each.parent, held);
    LOCKSTEP_CHECK_GE(num_users(each.parent), each.num_users);
    ++children[static_cast<size_t>(each.parent)];
  }
  LOCKSTEP_CHECK_EQ(held, num_pages());
  LOCKSTEP_CHECK_EQ(unused, num_unused_);
  for (size_t page = 0; page < nodes_.size(); ++page)
    LOCKSTEP_CHECK_EQ(children[page], nodes_[page].num_children);
  int32_t listed = 0;
  for (int32_t page = oldest_; page != kNone; page = node(page).newer) {
    ++listed;
    LOCKSTEP_CHECK_EQ(num_users(page), 0);
  }
  LOCKSTEP_CHECK_EQ(listed, num_unused_);
}

}  // namespace lockstep::runtime
