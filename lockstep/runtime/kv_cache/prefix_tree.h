#pragma once
// The pages of one replica whose content is final, as a tree: a page hangs under the page with the tokens
// before its own, so that equal beginnings of sequences are the same pages. Counts who uses a page, and knows
// which unused one was used longest ago. It decides nothing and owns no bytes. One thread. Part of
// ReplicaCache.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace lockstep::runtime {

// A sequence as the tree sees it. Sequences of different salts share nothing.
struct TreePath {
  std::string_view salt;
  std::span<const int32_t> tokens;
  std::span<const uint64_t> keys;  // of its full pages, as extend_page_keys() makes them
};

// The key of a full page: a hash of the salt, of its tokens and of all tokens before. Adds those that are
// missing. A key finds a page; what the page holds is compared all the same.
void extend_page_keys(std::string_view salt, std::span<const int32_t> tokens, int32_t page_size,
                      std::vector<uint64_t>& keys);

class PrefixTree {
 public:
  static constexpr int32_t kNone = -1;

  PrefixTree(int32_t num_pages, int32_t page_size);

  // The tree's pages that hold the first full pages of a sequence, at most `most` of them.
  std::vector<int32_t> match(const TreePath& path, int32_t most) const;
  // How many those are by their keys, which takes few looks and may err.
  int32_t num_matching(std::span<const uint64_t> keys) const;

  // `page` holds full page `page_idx` of the path, whose page before it is `parent` (kNone for the first).
  // Returns the page that the tree has for it, once more in use: `page` itself, or one that was there before;
  // kNone where a page of other content has the same key.
  int32_t insert(const TreePath& path, int32_t page_idx, int32_t parent, int32_t page);

  void use(int32_t page);
  // A sequence's pages are left from the last to the first.
  void leave(int32_t page);
  // Takes the page that has been out of use longest out of the tree; kNone where all are in use.
  int32_t evict();
  // Takes this one out, where it is out of use and no page hangs under it.
  bool remove(int32_t page);

  bool holds(int32_t page) const { return node(page).num_users >= 0; }
  int32_t num_users(int32_t page) const { return node(page).num_users; }
  int32_t num_pages() const { return static_cast<int32_t>(page_of_key_.size()); }
  int32_t num_unused() const { return num_unused_; }
  // Everything that must hold, for tests: a pass over all pages.
  void check() const;

 private:
  struct Node {
    uint64_t key = 0;
    int32_t parent = kNone;
    int32_t num_users = -1;  // -1: not in the tree
    int32_t num_children = 0;
    int32_t older = kNone, newer = kNone;  // among the unused
  };
  Node& node(int32_t page) { return nodes_[static_cast<size_t>(page)]; }
  const Node& node(int32_t page) const { return nodes_[static_cast<size_t>(page)]; }
  std::span<int32_t> tokens_of(int32_t page);
  std::span<const int32_t> tokens_of(int32_t page) const;
  std::string_view salt_of(int32_t page) const;
  bool is(int32_t page, const TreePath& path, int32_t page_idx, int32_t parent) const;
  void link_newest(int32_t page);
  void unlink(int32_t page);

  int32_t page_size_;
  std::vector<Node> nodes_;      // [pages]
  std::vector<int32_t> tokens_;  // [pages * page_size]
  std::unordered_map<uint64_t, int32_t> page_of_key_;
  std::unordered_map<int32_t, std::string> salts_;  // of first pages that have one
  int32_t oldest_ = kNone, newest_ = kNone;         // unused
  int32_t num_unused_ = 0;
};

}  // namespace lockstep::runtime
