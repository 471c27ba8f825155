#pragma once
// Byte-pair encoding of one piece of text: starts from its bytes and joins, again and again, the neighbours
// whose merge comes first in the file, the leftmost of equals. Work grows as n log n in the length of the
// piece. Immutable.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/serving/tokenizer/vocabulary.h"

namespace lockstep::serving::tokenizing {

// One line of model.merges.
struct MergeEntry {
  std::string left;
  std::string right;
};

// (left id, right id) -> rank and joined id: an open-addressing table, for the pairs of the hot loop.
class MergeTable {
 public:
  struct Merge {
    int32_t rank = -1;  // -1: the pair does not merge
    int32_t joined = -1;
  };

  explicit MergeTable(size_t num_merges);
  // A pair that stands twice keeps its last rank.
  void set(int32_t left, int32_t right, Merge merge);
  Merge find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t key = kEmpty;
    Merge merge;
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};  // no pair of ids: both are below 2^31
  size_t slot_of(uint64_t key) const;

  std::vector<Slot> slots_;
};

// Whether a piece may become an added token by merging. It cannot where added tokens must stay ordinary text.
enum class AddedIds : unsigned char { kAllowed, kAvoided };

class Bpe {
 public:
  struct Options {
    bool ignore_merges = false;  // a piece that is itself an entry becomes it at once
    std::string unk_token;       // for a byte without an entry; empty: such bytes are left out
    bool fuse_unk = false;       // one unk_token for a run of such bytes
  };

  static Result<Bpe> build(const Vocabulary& vocabulary, const std::vector<MergeEntry>& merges,
                           const Options& options);

  // What encode() needs while it works; reused from piece to piece.
  struct Scratch;
  class Workspace {
   public:
    Workspace();
    ~Workspace();

   private:
    friend class Bpe;
    std::unique_ptr<Scratch> scratch_;
  };

  // Appends the ids of `piece`, raw bytes of any kind.
  void encode(std::string_view piece, const Vocabulary& vocabulary, AddedIds added_ids, Workspace& workspace,
              std::vector<int32_t>& ids) const;

 private:
  explicit Bpe(size_t num_merges) : merges_(num_merges) {}
  Status add_merge(const Vocabulary& vocabulary, const MergeEntry& entry, size_t rank);
  void append_symbols(std::string_view piece, Scratch& scratch) const;
  void merge_all(const Vocabulary& vocabulary, AddedIds added_ids, Scratch& scratch) const;

  MergeTable merges_;
  int32_t id_of_byte_[256] = {};  // -1: the vocabulary lacks it
  int32_t unk_id_ = -1;
  bool fuse_unk_ = false;
  bool ignore_merges_ = false;
};

}  // namespace lockstep::serving::tokenizing
