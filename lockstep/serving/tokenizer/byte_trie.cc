#include "lockstep/serving/tokenizer/byte_trie.h"

#include <algorithm>
#include <utility>

namespace lockstep::serving::tokenizing {

ByteTrie::ByteTrie(std::vector<Entry> entries) : nodes_(1) {
  std::erase_if(entries, [](const Entry& entry) { return entry.bytes.empty(); });
  std::stable_sort(entries.begin(), entries.end(),
                   [](const Entry& a, const Entry& b) { return a.bytes < b.bytes; });
  std::vector<Range> level = {{0, entries.size(), kRoot}};
  for (size_t depth = 0; !level.empty(); ++depth) {
    std::vector<Range> next;
    for (const Range& range : level) add_children(entries, range, depth, next);
    level = std::move(next);
  }
  std::fill(std::begin(root_child_), std::end(root_child_), -1);
  for (int i = 0; i < nodes_[0].num_children; ++i) {
    const int32_t node = nodes_[0].first_child + i;
    root_child_[nodes_[static_cast<size_t>(node)].label] = node;
  }
}

void ByteTrie::add_children(std::span<const Entry> sorted, Range range, size_t depth,
                            std::vector<Range>& next) {
  while (range.begin < range.end && sorted[range.begin].bytes.size() == depth) {
    int32_t& value = nodes_[static_cast<size_t>(range.node)].value;
    if (value < 0) value = sorted[range.begin].value;
    ++range.begin;
  }
  nodes_[static_cast<size_t>(range.node)].first_child = static_cast<int32_t>(nodes_.size());
  while (range.begin < range.end) {
    const auto label = static_cast<unsigned char>(sorted[range.begin].bytes[depth]);
    size_t end = range.begin + 1;
    while (end < range.end && static_cast<unsigned char>(sorted[end].bytes[depth]) == label) ++end;
    next.push_back({range.begin, end, static_cast<int32_t>(nodes_.size())});
    nodes_.push_back({.label = label});
    ++nodes_[static_cast<size_t>(range.node)].num_children;
    range.begin = end;
  }
}

int32_t ByteTrie::child(int32_t node, unsigned char label) const {
  if (node == kRoot) return root_child_[label];
  const Node& parent = nodes_[static_cast<size_t>(node)];
  const Node* const begin = nodes_.data() + parent.first_child;
  const Node* const end = begin + parent.num_children;
  const Node* const found = std::lower_bound(
      begin, end, label, [](const Node& child, unsigned char wanted) { return child.label < wanted; });
  return found != end && found->label == label ? static_cast<int32_t>(found - nodes_.data()) : -1;
}

}  // namespace lockstep::serving::tokenizing
