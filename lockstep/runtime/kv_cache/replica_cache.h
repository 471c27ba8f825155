#pragma once
// What one replica's cache holds: which pages are free, a sequence's own, or in the tree of prefixes where
// sequences share them, and where copies of recurrent states lie. For the scheduler; bookkeeping only.
//
// A sequence's table begins with pages of the tree, which nobody writes to, and goes on with pages of its
// own. An own page moves into the tree as soon as it is full. Pages that are out of use stay in the tree
// until room is needed.
#include <cstdint>
#include <vector>

#include "lockstep/runtime/kv_cache/page_pool.h"
#include "lockstep/runtime/kv_cache/prefix_tree.h"
#include "lockstep/runtime/kv_cache/snapshot_pool.h"

namespace lockstep::runtime {

enum class PrefixCache : uint8_t { kOff, kOn };
// kKept: layers keep something once a sequence, so that pages alone do not hold a beginning.
enum class SequenceState : uint8_t { kNone, kKept };

struct ReplicaCacheShape {
  int32_t num_pages = 1, page_size = 16;
  PrefixCache prefix_cache = PrefixCache::kOff;
  SequenceState sequence_state = SequenceState::kNone;
  int32_t first_snapshot = 0, num_snapshots = 0;  // slots
};

// The beginning of a sequence that can be taken from the cache.
struct PrefixHit {
  std::vector<int32_t> pages;
  int32_t snapshot = SnapshotPool::kNone;  // the state after the last of them
  // Pages that the tree has beyond: useless for want of a snapshot.
  int32_t num_matching = 0;

  int32_t num_pages() const { return static_cast<int32_t>(pages.size()); }
};

// The pages of a running sequence.
struct PageTable {
  std::vector<int32_t> pages;
  int32_t num_shared = 0;  // of these at the beginning, pages of the tree
  // Another one as soon as a page in it has changed or gone; pages that come behind leave it. No two tables
  // of a cache ever have the same; 0: the table has not begun.
  uint64_t version = 0;
};

class ReplicaCache {
 public:
  using Owner = PagePool::Owner;

  explicit ReplicaCache(const ReplicaCacheShape& shape);

  bool shares() const { return shape_.prefix_cache == PrefixCache::kOn; }
  bool keeps_states() const { return shape_.sequence_state == SequenceState::kKept; }

  // At most `most` pages.
  PrefixHit find(const TreePath& path, int32_t most) const;
  // How many pages find() would give, quickly and not for certain.
  int32_t num_matching(std::span<const uint64_t> keys) const { return tree_.num_matching(keys); }
  // Begins an empty table with the hit.
  void take(const PrefixHit& hit, PageTable& table);

  // Pages that can be had: free, or in the tree and out of use. With a hit: once that is taken.
  int32_t num_available() const { return pool_.num_free() + tree_.num_unused(); }
  int32_t num_available_beside(const PrefixHit& hit) const;
  // Lengthens the table to `num_pages` pages, or leaves everything as it was when so many are not available.
  [[nodiscard]] bool grow(PageTable& table, int32_t num_pages, Owner owner);
  // Leaves the table its first `num_pages` pages, or all that it has; those behind are its own.
  void shrink(PageTable& table, int32_t num_pages, Owner owner);
  // The first `num_full` pages of the table are full. Where the tree has one already, the table takes that
  // one instead of its own.
  void share(const TreePath& path, int32_t num_full, PageTable& table, Owner owner);
  // kForget: what it holds may be wrong, so the tree keeps of it only what others use.
  enum class Pages : uint8_t { kKeep, kForget };
  void release(PageTable& table, Owner owner, Pages pages = Pages::kKeep);

  SnapshotPool& snapshots() { return snapshots_; }
  const SnapshotPool& snapshots() const { return snapshots_; }

  int32_t num_pages() const { return pool_.num_pages(); }
  int32_t num_unused() const { return tree_.num_unused(); }  // cached, and out of use
  int32_t num_used() const { return pool_.num_used() - tree_.num_unused(); }
  Owner owner_of(int32_t page) const { return pool_.owner_of(page); }
  int32_t num_users(int32_t page) const { return tree_.num_users(page); }
  // Forgets what is out of use.
  void clear();

  // Every page is free, somebody's or in the tree; and every snapshot has a page there. A pass over all.
  void check() const;

 private:
  bool make_room(int32_t num_pages);
  void evict_one();
  void free_evicted(int32_t page);

  ReplicaCacheShape shape_;
  PagePool pool_;
  PrefixTree tree_;
  SnapshotPool snapshots_;
  uint64_t last_version_ = 0;
};

}  // namespace lockstep::runtime
