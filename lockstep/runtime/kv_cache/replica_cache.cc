#include "lockstep/runtime/kv_cache/replica_cache.h"

#include <algorithm>
#include <ranges>

#include "lockstep/base/check.h"

namespace lockstep::runtime {

ReplicaCache::ReplicaCache(const ReplicaCacheShape& shape)
    : shape_(shape),
      pool_(shape.num_pages),
      tree_(shape.prefix_cache == PrefixCache::kOn ? shape.num_pages : 0, shape.page_size),
      snapshots_(shape.first_snapshot, shape.num_snapshots) {}

PrefixHit ReplicaCache::find(const TreePath& path, int32_t most) const {
  PrefixHit hit;
  if (!shares()) return hit;
  hit.pages = tree_.match(path, most);
  hit.num_matching = hit.num_pages();
  if (!keeps_states()) return hit;
  while (!hit.pages.empty() && snapshots_.at(hit.pages.back()) == SnapshotPool::kNone) hit.pages.pop_back();
  if (!hit.pages.empty()) hit.snapshot = snapshots_.at(hit.pages.back());
  return hit;
}

void ReplicaCache::take(const PrefixHit& hit, PageTable& table) {
  LOCKSTEP_CHECK_EQ(table.pages.size(), size_t{0});
  for (const int32_t page : hit.pages) tree_.use(page);
  if (hit.snapshot != SnapshotPool::kNone) snapshots_.touch(hit.pages.back());
  table = {.pages = hit.pages, .num_shared = hit.num_pages(), .version = ++last_version_};
}

int32_t ReplicaCache::num_available_beside(const PrefixHit& hit) const {
  const auto unused =
      std::ranges::count_if(hit.pages, [this](int32_t page) { return tree_.num_users(page) == 0; });
  return num_available() - static_cast<int32_t>(unused);
}

bool ReplicaCache::make_room(int32_t num_pages) {
  if (num_pages > num_available()) return false;
  while (pool_.num_free() < num_pages) evict_one();
  return true;
}

void ReplicaCache::evict_one() {
  const int32_t page = tree_.evict();
  LOCKSTEP_CHECK_GE(page, 0);
  free_evicted(page);
}

void ReplicaCache::free_evicted(int32_t page) {
  snapshots_.drop(page);
  pool_.hand_over(page, PagePool::kTree, 0);
}

bool ReplicaCache::grow(PageTable& table, int32_t num_pages, Owner owner) {
  return make_room(num_pages - static_cast<int32_t>(table.pages.size())) &&
         pool_.grow(table.pages, num_pages, owner);
}

void ReplicaCache::shrink(PageTable& table, int32_t num_pages, Owner owner) {
  LOCKSTEP_CHECK_LE(table.num_shared, num_pages);
  if (num_pages >= std::ssize(table.pages)) return;
  std::vector<int32_t> behind(table.pages.begin() + num_pages, table.pages.end());
  pool_.release(behind, owner);
  table.pages.resize(static_cast<size_t>(num_pages));
  table.version = ++last_version_;
}

void ReplicaCache::share(const TreePath& path, int32_t num_full, PageTable& table, Owner owner) {
  if (!shares()) return;
  while (table.num_shared < num_full) {
    const auto at = static_cast<size_t>(table.num_shared);
    const int32_t own = table.pages[at];
    const int32_t parent = at == 0 ? PrefixTree::kNone : table.pages[at - 1];
    const int32_t shared = tree_.insert(path, table.num_shared, parent, own);
    if (shared == PrefixTree::kNone) return;
    pool_.hand_over(own, owner, shared == own ? PagePool::kTree : Owner{0});
    table.pages[at] = shared;
    if (shared != own) table.version = ++last_version_;
    ++table.num_shared;
  }
}

void ReplicaCache::release(PageTable& table, Owner owner, Pages pages) {
  std::vector<int32_t> own(table.pages.begin() + table.num_shared, table.pages.end());
  pool_.release(own, owner);
  table.pages.resize(static_cast<size_t>(table.num_shared));
  for (const int32_t page : table.pages | std::views::reverse) {
    tree_.leave(page);
    if (pages == Pages::kForget && tree_.remove(page)) free_evicted(page);
  }
  table = {};
}

void ReplicaCache::clear() {
  while (tree_.num_unused() > 0) evict_one();
}

void ReplicaCache::check() const {
  tree_.check();
  int32_t in_tree = 0, free = 0, kept = 0;
  for (int32_t page = 0; page < num_pages(); ++page) {
    const Owner owner = pool_.owner_of(page);
    free += owner == 0 ? 1 : 0;
    in_tree += owner == PagePool::kTree ? 1 : 0;
    if (shares()) LOCKSTEP_CHECK_EQ(tree_.holds(page), owner == PagePool::kTree);
    if (snapshots_.at(page) == SnapshotPool::kNone) continue;
    ++kept;
    LOCKSTEP_CHECK(owner == PagePool::kTree, "page {} has snapshot {} and is not in the tree", page,
                   snapshots_.at(page));
  }
  LOCKSTEP_CHECK_EQ(free, pool_.num_free());
  LOCKSTEP_CHECK_EQ(in_tree, tree_.num_pages());
  LOCKSTEP_CHECK_EQ(kept, snapshots_.num_kept());
}

}  // namespace lockstep::runtime
