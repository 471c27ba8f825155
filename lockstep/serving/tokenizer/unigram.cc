#include "lockstep/serving/tokenizer/unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "lockstep/serving/tokenizer/decoder.h"
#include "lockstep/serving/tokenizer/utf8.h"

namespace lockstep::serving::tokenizing {
namespace {

constexpr double kUnknownPenalty = 10.0;  // below the worst score; SentencePiece's

ByteTrie trie_of(const std::vector<VocabEntry>& entries) {
  std::vector<ByteTrie::Entry> strings;
  strings.reserve(entries.size());
  for (const VocabEntry& entry : entries) strings.push_back({entry.spelling, static_cast<int32_t>(entry.id)});
  return ByteTrie(std::move(strings));
}

}  // namespace

Result<Unigram> Unigram::build(const Vocabulary& vocabulary, const std::vector<VocabEntry>& entries,
                               const Options& options) {
  if (options.unk_id < -1 || options.unk_id >= static_cast<int64_t>(entries.size()))
    return invalid_argument("model.unk_id",
                            "model.unk_id is {}: it must be below {}, the size of model.vocab",
                            options.unk_id, entries.size());
  for (const VocabEntry& entry : entries)
    if (!std::isfinite(entry.score))
      return invalid_argument("model.vocab", "model.vocab[{}] has the score {}: it must be finite", entry.id,
                              entry.score);
  return Unigram(entries, vocabulary, options);
}

Unigram::Unigram(const std::vector<VocabEntry>& entries, const Vocabulary& vocabulary, const Options& options)
    : options_(options), trie_(trie_of(entries)) {
  double least = std::numeric_limits<double>::infinity();
  for (const VocabEntry& entry : entries) {
    scores_.push_back(entry.score);
    least = std::min(least, entry.score);
  }
  unk_score_ = least - kUnknownPenalty;
  for (int byte = 0; byte < 256; ++byte)
    id_of_byte_[byte] = vocabulary.find_spelling(byte_token(static_cast<uint8_t>(byte))).value_or(-1);
}

// paths[i]: the best way to read the first i bytes.
void Unigram::find_paths(std::string_view piece, const Vocabulary& vocabulary, AddedIds added_ids,
                         std::vector<BestPath>& paths) const {
  paths.assign(piece.size() + 1, BestPath{});
  const auto offer = [&](size_t begin, size_t end, double score, int32_t id) {
    BestPath& path = paths[end];
    const double sum = score + paths[begin].score;
    if (path.begin < 0 || sum > path.score) path = {sum, static_cast<int64_t>(begin), id};
  };
  for (size_t begin = 0; begin < piece.size();) {
    const auto num_bytes = static_cast<size_t>(code_point_at(piece, begin).num_bytes);
    bool is_known = false;  // the character at `begin` is a token
    int32_t node = ByteTrie::kRoot;
    for (size_t end = begin; end < piece.size();) {
      node = trie_.child(node, static_cast<unsigned char>(piece[end++]));
      if (node < 0) break;
      const int32_t id = trie_.value(node);
      if (id < 0 || (added_ids == AddedIds::kAvoided && vocabulary.is_added(id))) continue;
      offer(begin, end, scores_[static_cast<size_t>(id)], id);
      is_known = is_known || end - begin == num_bytes;
    }
    if (!is_known) offer(begin, begin + num_bytes, unk_score_, static_cast<int32_t>(options_.unk_id));
    begin += num_bytes;
  }
}

void Unigram::append_unknown(std::string_view run, const Vocabulary& vocabulary,
                             std::vector<int32_t>& ids) const {
  const auto id_of = [&](char c) { return id_of_byte_[static_cast<unsigned char>(c)]; };
  // Unknown characters may join to something that has a token.
  if (const auto id = vocabulary.find_spelling(run); id && !vocabulary.is_added(*id))
    return ids.push_back(*id);
  if (options_.byte_fallback && std::all_of(run.begin(), run.end(), [&](char c) { return id_of(c) >= 0; })) {
    for (const char c : run) ids.push_back(id_of(c));
  } else if (options_.unk_id >= 0) {
    ids.push_back(static_cast<int32_t>(options_.unk_id));
  }
}

void Unigram::encode_new(std::string_view piece, const Vocabulary& vocabulary, AddedIds added_ids,
                         Workspace& workspace, std::vector<int32_t>& ids) const {
  std::vector<BestPath>& paths = workspace.paths;
  find_paths(piece, vocabulary, added_ids, paths);
  std::vector<size_t> ends;
  for (size_t end = piece.size(); end > 0; end = static_cast<size_t>(paths[end].begin)) ends.push_back(end);
  size_t unknown_begin = piece.size();  // of a run of unknowns that is not written yet
  const auto is_unknown = [&](size_t end) { return paths[end].id == options_.unk_id; };
  for (size_t i = ends.size(); i-- > 0;) {
    const size_t end = ends[i];
    if (!is_unknown(end)) {
      ids.push_back(paths[end].id);
      continue;
    }
    unknown_begin = std::min(unknown_begin, static_cast<size_t>(paths[end].begin));
    if (i > 0 && is_unknown(ends[i - 1])) continue;
    append_unknown(piece.substr(unknown_begin, end - unknown_begin), vocabulary, ids);
    unknown_begin = piece.size();
  }
}

void Unigram::encode(std::string_view piece, const Vocabulary& vocabulary, AddedIds added_ids,
                     Workspace& workspace, std::vector<int32_t>& ids) const {
  if (piece.empty()) return;
  if (piece.size() > PieceCache::kMaxBytes) return encode_new(piece, vocabulary, added_ids, workspace, ids);
  const PieceCache::Key key = PieceCache::key_of(piece, static_cast<uint8_t>(added_ids));
  if (workspace.cache.append(key, ids)) return;
  const size_t begin = ids.size();
  encode_new(piece, vocabulary, added_ids, workspace, ids);
  workspace.cache.put(key, std::span(ids).subspan(begin));
}

}  // namespace lockstep::serving::tokenizing
