#include "lockstep/serving/tokenizer/bpe.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <utility>

#include "lockstep/base/json.h"
#include "lockstep/serving/tokenizer/byte_alphabet.h"
#include "lockstep/serving/tokenizer/decoder.h"
#include "lockstep/serving/tokenizer/json_fields.h"
#include "lockstep/serving/tokenizer/utf8.h"

namespace lockstep::serving::tokenizing {
namespace {

// A pair of neighbours that could be joined: its rank, then the position of its left symbol, so that the
// smallest is next. Stale when the pair at that position has another rank by now.
using Candidate = uint64_t;
Candidate candidate_of(int32_t rank, size_t position) {
  return Candidate{static_cast<uint32_t>(rank)} << 32 | position;
}
int32_t rank_of(Candidate candidate) { return static_cast<int32_t>(candidate >> 32); }
size_t position_of(Candidate candidate) { return candidate & 0xFFFFFFFF; }

// A spelling that is one character.
std::optional<char32_t> single_character(std::string_view spelling) {
  if (spelling.empty() || spelling.size() > 4) return std::nullopt;
  const CodePoint first = code_point_at(spelling, 0);
  if (static_cast<size_t>(first.num_bytes) != spelling.size()) return std::nullopt;
  return first.value;
}

char32_t first_character(std::string_view spelling) { return code_point_at(spelling, 0).value; }
char32_t last_character(std::string_view spelling) {
  return code_point_at(spelling, boundary_at_or_before(spelling, spelling.size() - 1)).value;
}

}  // namespace

Result<Bpe> Bpe::build(const Vocabulary& vocabulary, const std::vector<MergeEntry>& merges,
                       const Options& options) {
  Bpe bpe(merges.size(), options);
  if (Status set = bpe.set_unknown(vocabulary); !set) return set.error();
  bpe.add_atoms(vocabulary);
  for (size_t rank = 0; rank < merges.size(); ++rank)
    if (Status added = bpe.add_merge(vocabulary, merges[rank], rank); !added) return added.error();
  if (options.alphabet == Alphabet::kCharacters && options.cuts == Options::Cuts::kWhereNoMergeCrosses)
    bpe.find_crossings(vocabulary, merges);
  return bpe;
}

Status Bpe::set_unknown(const Vocabulary& vocabulary) {
  if (options_.unk_token.empty()) return Done{};
  const auto id = vocabulary.find_spelling(options_.unk_token);
  if (!id)
    return invalid_argument("model.unk_token", "model.unk_token is {}, which is not in model.vocab",
                            excerpt(options_.unk_token));
  unk_id_ = *id;
  return Done{};
}

// What pieces are made of before anything merges.
void Bpe::add_atoms(const Vocabulary& vocabulary) {
  std::fill(std::begin(id_of_ascii_), std::end(id_of_ascii_), -1);
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelling;
    if (options_.alphabet == Alphabet::kBytes) {
      spell(std::string(1, static_cast<char>(byte)), spelling);
    } else {
      spelling = byte_token(static_cast<uint8_t>(byte));
    }
    id_of_byte_[byte] = vocabulary.find_spelling(spelling).value_or(-1);
  }
  if (options_.alphabet == Alphabet::kBytes) return;
  vocabulary.for_each_spelling([&](const std::string& spelling, int32_t id) {
    const auto character = single_character(spelling);
    if (!character) return;
    if (*character < 128) {
      id_of_ascii_[*character] = id;
    } else {
      id_of_character_.emplace(*character, id);
    }
  });
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

bool Bpe::is_fallback(const Vocabulary& vocabulary, const std::string& spelling) const {
  return (options_.byte_fallback && byte_of_token(spelling)) ||
         (unk_id_ >= 0 && vocabulary.find_spelling(spelling) == unk_id_);
}

// A token that merges made begins with its first character's symbol, so whatever merges over the boundary
// between two characters is a merge whose left part ends with the one and whose right part begins with the
// other. Tokens that stand for something else than their characters would break that: then nothing is cut.
void Bpe::find_crossings(const Vocabulary& vocabulary, const std::vector<MergeEntry>& merges) {
  std::set<std::pair<int32_t, int32_t>> pairs;
  for (const MergeEntry& merge : merges) {
    if (merge.left.empty() || merge.right.empty() || is_fallback(vocabulary, merge.left) ||
        is_fallback(vocabulary, merge.right))
      return;
    pairs.emplace(id_of_character(last_character(merge.left)), id_of_character(first_character(merge.right)));
  }
  crossings_ = MergeTable(pairs.size());
  for (const auto& [left, right] : pairs)
    if (left >= 0 && right >= 0) crossings_.set(left, right, {.rank = 0, .joined = 0});
  may_cut_ = true;
}

int32_t Bpe::id_of_character(char32_t character) const {
  if (character < 128) return id_of_ascii_[character];
  const auto found = id_of_character_.find(character);
  return found == id_of_character_.end() ? -1 : found->second;
}

// A run of unknown characters is one token with fuse_unk. As in the library that defines the format, an
// unknown that waits for more of its run stays behind byte tokens that come meanwhile.
void Bpe::append_fallback(std::string_view character, bool& has_unknown, std::vector<int32_t>& ids) const {
  const auto id_of = [&](char c) { return id_of_byte_[static_cast<unsigned char>(c)]; };
  const bool has_bytes = options_.byte_fallback && std::all_of(character.begin(), character.end(),
                                                               [&](char c) { return id_of(c) >= 0; });
  if (has_bytes) {
    for (const char c : character) ids.push_back(id_of(c));
  } else if (unk_id_ >= 0) {
    if (has_unknown && !options_.fuse_unk) ids.push_back(unk_id_);
    has_unknown = true;
  }
}

void Bpe::append_characters(std::string_view piece, std::vector<int32_t>& ids) const {
  bool has_unknown = false;
  for (size_t i = 0; i < piece.size();) {
    const CodePoint character = code_point_at(piece, i);
    const auto num_bytes = static_cast<size_t>(character.num_bytes);
    const int32_t id = id_of_character(character.value);
    if (id < 0) {
      append_fallback(piece.substr(i, num_bytes), has_unknown, ids);
    } else {
      if (std::exchange(has_unknown, false)) ids.push_back(unk_id_);
      ids.push_back(id);
    }
    i += num_bytes;
  }
  if (has_unknown) ids.push_back(unk_id_);
}

void Bpe::encode_cut(std::string_view piece, const Vocabulary& vocabulary, AddedIds added_ids,
                     Workspace& workspace, std::vector<int32_t>& ids) const {
  bool has_unknown = false;
  int32_t previous = -1;  // the character before, unless it has no entry
  size_t begin = 0;       // of the known characters that are not encoded yet
  const auto encode_until = [&](size_t end) {
    if (begin < end)
      encode_remembered(piece.substr(begin, end - begin), vocabulary, added_ids, workspace, ids);
    begin = end;
  };
  for (size_t i = 0; i < piece.size();) {
    const CodePoint character = code_point_at(piece, i);
    const auto num_bytes = static_cast<size_t>(character.num_bytes);
    const int32_t id = id_of_character(character.value);
    if (id < 0) {
      encode_until(i);
      append_fallback(piece.substr(i, num_bytes), has_unknown, ids);
      begin = i + num_bytes;
    } else {
      if (std::exchange(has_unknown, false)) ids.push_back(unk_id_);
      if (previous >= 0 && crossings_.find(previous, id).rank < 0) encode_until(i);
    }
    previous = id;
    i += num_bytes;
  }
  encode_until(piece.size());
  if (has_unknown) ids.push_back(unk_id_);
}

void Bpe::encode_bytes(std::string_view piece, std::vector<int32_t>& ids) const {
  bool is_after_unknown = false;
  for (const char c : piece) {
    const int32_t id = id_of_byte_[static_cast<unsigned char>(c)];
    const bool is_unknown = id < 0;
    const bool is_left_out = is_unknown && (unk_id_ < 0 || (options_.fuse_unk && is_after_unknown));
    is_after_unknown = is_unknown;
    if (!is_left_out) ids.push_back(is_unknown ? unk_id_ : id);
  }
}

void Bpe::merge_from(size_t begin, const Vocabulary& vocabulary, AddedIds added_ids, Workspace& workspace,
                     std::vector<int32_t>& ids) const {
  std::vector<Symbol>& symbols = workspace.symbols;
  std::vector<Candidate>& heap = workspace.heap;
  symbols.clear();
  for (size_t i = begin; i < ids.size(); ++i) {
    const auto index = static_cast<int32_t>(i - begin);
    symbols.push_back({ids[i], index - 1, i + 1 < ids.size() ? index + 1 : -1});
  }
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
  ids.resize(begin);
  for (const Symbol& symbol : symbols)
    if (symbol.id >= 0) ids.push_back(symbol.id);
}

std::optional<int32_t> Bpe::whole_entry(std::string_view spelling, const Vocabulary& vocabulary,
                                        AddedIds added_ids) const {
  if (!options_.ignore_merges) return std::nullopt;
  const auto id = vocabulary.find_spelling(spelling);
  return id && added_ids == AddedIds::kAvoided && vocabulary.is_added(*id) ? std::nullopt : id;
}

std::optional<int32_t> Bpe::whole_spelling(std::string_view bytes, const Vocabulary& vocabulary,
                                           AddedIds added_ids, Workspace& workspace) const {
  if (!options_.ignore_merges) return std::nullopt;
  workspace.spelling.clear();
  spell(bytes, workspace.spelling);
  return whole_entry(workspace.spelling, vocabulary, added_ids);
}

void Bpe::encode_remembered(std::string_view piece, const Vocabulary& vocabulary, AddedIds added_ids,
                            Workspace& workspace, std::vector<int32_t>& ids) const {
  const bool is_short = piece.size() <= PieceCache::kMaxBytes;
  PieceCache::Key key;
  if (is_short) {
    key = PieceCache::key_of(piece, static_cast<uint8_t>(added_ids));
    if (workspace.cache.append(key, ids)) return;
  }
  const size_t begin = ids.size();
  if (options_.alphabet == Alphabet::kCharacters) {
    append_characters(piece, ids);
    merge_from(begin, vocabulary, added_ids, workspace, ids);
  } else if (const auto id = whole_spelling(piece, vocabulary, added_ids, workspace)) {
    ids.push_back(*id);
  } else {
    encode_bytes(piece, ids);
    merge_from(begin, vocabulary, added_ids, workspace, ids);
  }
  if (is_short) workspace.cache.put(key, std::span(ids).subspan(begin));
}

void Bpe::encode(std::string_view piece, const Vocabulary& vocabulary, AddedIds added_ids,
                 Workspace& workspace, std::vector<int32_t>& ids) const {
  LOCKSTEP_CHECK_LT(piece.size(), size_t{1} << 31);
  if (piece.empty()) return;
  if (options_.alphabet == Alphabet::kCharacters)
    if (const auto id = whole_entry(piece, vocabulary, added_ids)) return ids.push_back(*id);
  if (may_cut_) {
    encode_cut(piece, vocabulary, added_ids, workspace, ids);
  } else {
    encode_remembered(piece, vocabulary, added_ids, workspace, ids);
  }
}

}  // namespace lockstep::serving::tokenizing
