#pragma once
// A trie of byte strings, laid out level by level: the children of a node stand together, by label. Built
// once; walking it allocates nothing.
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep::serving::tokenizing {

class ByteTrie {
 public:
  struct Entry {
    std::string_view bytes;
    int32_t value = 0;
  };
  // Of equal strings the first counts. Empty ones are left out.
  explicit ByteTrie(std::vector<Entry> entries);

  static constexpr int32_t kRoot = 0;

  // -1: no string goes on with this byte.
  int32_t child(int32_t node, unsigned char label) const;
  // -1: no string ends here.
  int32_t value(int32_t node) const { return nodes_[static_cast<size_t>(node)].value; }

 private:
  struct Node {
    int32_t first_child = 0;
    int16_t num_children = 0;
    unsigned char label = 0;  // of the edge to this node
    int32_t value = -1;
  };
  struct Range {
    size_t begin, end;  // of the sorted entries below a node
    int32_t node;
  };
  void add_children(std::span<const Entry> sorted, Range range, size_t depth, std::vector<Range>& next);

  std::vector<Node> nodes_;
  int32_t root_child_[256];
};

}  // namespace lockstep::serving::tokenizing
