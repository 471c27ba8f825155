#include "lockstep/serving/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <utility>

#include "lockstep/base/hash.h"
#include "lockstep/base/json.h"
#include "lockstep/serving/tokenizer/byte_alphabet.h"
#include "lockstep/serving/tokenizer/json_fields.h"

namespace lockstep::serving::tokenizing {
namespace {

// A token of the piece, linked to its neighbours. A symbol that was joined to the one before it has id -1.
struct Symbol {
  int32_t id = 0;
  int32_t previous = -1;
  int32_t next = -1;
};

// A pair of neighbours that could be joined: its rank, then the position of its left symbol, so that the
// smallest is next. Stale when the pair at that position has another rank by now.
using Candidate = uint64_t;
Candidate candidate_of(int32_t rank, size_t position) {
  return Candidate{static_cast<uint32_t>(rank)} << 32 | position;
}
int32_t rank_of(Candidate candidate) { return static_cast<int32_t>(candidate >> 32); }
size_t position_of(Candidate candidate) { return candidate & 0xFFFFFFFF; }

}  // namespace

MergeTable::MergeTable(size_t num_merges) : slots_(std::bit_ceil(2 * num_merges + 2)) {}

size_t MergeTable::slot_of(uint64_t key) const {
  size_t slot = mix64(key) & (slots_.size() - 1);
  while (slots_[slot].key != key && slots_[slot].key != kEmpty) slot = (slot + 1) & (slots_.size() - 1);
  return slot;
}

void MergeTable::set(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  slots_[slot_of(key)] = {key, merge};
}

MergeTable::Merge MergeTable::find(int32_t left, int32_t right) const {
  const uint64_t key = uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  return slots_[slot_of(key)].merge;
}

struct Bpe::Scratch {
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::string spelling;
};

Bpe::Workspace::Workspace() : scratch_(std::make_unique<Scratch>()) {}
Bpe::Workspace::~Workspace() = default;

Result<Bpe> Bpe::build(const Vocabulary& vocabulary, const std::vector<MergeEntry>& merges,
                       const Options& options) {
  Bpe bpe(merges.size());
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelling;
    spell(std::string(1, static_cast<char>(byte)), spelling);
    bpe.id_of_byte_[byte] = vocabulary.find_spelling(spelling).value_or(-1);
  }
  if (!options.unk_token.empty()) {
    const auto id = vocabulary.find_spelling(options.unk_token);
    if (!id)
      return invalid_argument("model.unk_token", "model.unk_token is {}, which is not in model.vocab",
                              excerpt(options.unk_token));
    bpe.unk_id_ = *id;
  }
  bpe.fuse_unk_ = options.fuse_unk;
  bpe.ignore_merges_ = options.ignore_merges;
  for (size_t rank = 0; rank < merges.size(); ++rank)
    if (Status added = bpe.add_merge(vocabulary, merges[rank], rank); !added) return added.error();
  return bpe;
}

Status Bpe::add_merge(const Vocabulary& vocabulary, const MergeEntry& entry, size_t rank) {
  int32_t ids[3] = {};
  const std::string joined = entry.left + entry.right;
  const std::string* const spellings[3] = {&entry.left, &entry.right, &joined};
  for (size_t i = 0; i < 3; ++i) {
    const auto id = vocabulary.find_spelling(*spellings[i]);
    if (!id)
      return invalid_argument("model.merges",
                              "model.merges[{}] names the token {}, which is not in model.vocab", rank,
                              excerpt(*spellings[i]));
    ids[i] = *id;
  }
  merges_.set(ids[0], ids[1], {static_cast<int32_t>(rank), ids[2]});
  return Done{};
}

void Bpe::append_symbols(std::string_view piece, Scratch& scratch) const {
  scratch.symbols.clear();
  bool is_after_unknown = false;
  for (const char c : piece) {
    const int32_t id = id_of_byte_[static_cast<unsigned char>(c)];
    const bool is_unknown = id < 0;
    const bool is_left_out = is_unknown && (unk_id_ < 0 || (fuse_unk_ && is_after_unknown));
    is_after_unknown = is_unknown;
    if (is_left_out) continue;
    const auto index = static_cast<int32_t>(scratch.symbols.size());
    scratch.symbols.push_back({is_unknown ? unk_id_ : id, index - 1, index + 1});
  }
  if (!scratch.symbols.empty()) scratch.symbols.back().next = -1;
}

void Bpe::merge_all(const Vocabulary& vocabulary, AddedIds added_ids, Scratch& scratch) const {
  std::vector<Symbol>& symbols = scratch.symbols;
  std::vector<Candidate>& heap = scratch.heap;
  const auto merge_at = [&](size_t left) {
    const Symbol& symbol = symbols[left];
    if (symbol.id < 0 || symbol.next < 0) return MergeTable::Merge();
    const auto merge = merges_.find(symbol.id, symbols[static_cast<size_t>(symbol.next)].id);
    const bool is_avoided = added_ids == AddedIds::kAvoided && vocabulary.is_added(merge.joined);
    return is_avoided ? MergeTable::Merge() : merge;
  };
  heap.clear();
  for (size_t i = 0; i < symbols.size(); ++i)
    if (const auto merge = merge_at(i); merge.rank >= 0) heap.push_back(candidate_of(merge.rank, i));
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto add_candidate = [&](int32_t left) {
    if (left < 0) return;
    const auto merge = merge_at(static_cast<size_t>(left));
    if (merge.rank < 0) return;
    heap.push_back(candidate_of(merge.rank, static_cast<size_t>(left)));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const Candidate candidate = heap.back();
    heap.pop_back();
    const size_t at = position_of(candidate);
    const auto merge = merge_at(at);
    if (merge.rank != rank_of(candidate)) continue;
    Symbol& left = symbols[at];
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    left.id = merge.joined;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = static_cast<int32_t>(at);
    add_candidate(left.previous);
    add_candidate(static_cast<int32_t>(at));
  }
}

void Bpe::encode(std::string_view piece, const Vocabulary& vocabulary, AddedIds added_ids,
                 Workspace& workspace, std::vector<int32_t>& ids) const {
  LOCKSTEP_CHECK_LT(piece.size(), size_t{1} << 31);
  Scratch& scratch = *workspace.scratch_;
  if (ignore_merges_) {
    scratch.spelling.clear();
    spell(piece, scratch.spelling);
    const auto id = vocabulary.find_spelling(scratch.spelling);
    if (id && !(added_ids == AddedIds::kAvoided && vocabulary.is_added(*id))) return ids.push_back(*id);
  }
  append_symbols(piece, scratch);
  merge_all(vocabulary, added_ids, scratch);
  for (const Symbol& symbol : scratch.symbols)
    if (symbol.id >= 0) ids.push_back(symbol.id);
}

}  // namespace lockstep::serving::tokenizing
