#pragma once
// Unigram: the tokens into which a piece falls with the largest sum of scores, of equals the way that was
// found first. Work grows with the length of the piece times that of the longest token. Immutable.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/serving/tokenizer/bpe.h"
#include "lockstep/serving/tokenizer/byte_trie.h"
#include "lockstep/serving/tokenizer/vocabulary.h"
#include "lockstep/serving/tokenizer/workspace.h"

namespace lockstep::serving::tokenizing {

class Unigram {
 public:
  struct Options {
    int64_t unk_id = -1;         // -1: characters without a token are left out
    bool byte_fallback = false;  // they become their bytes' tokens <0x..>
  };
  // The entries' ids are their places in the file's list.
  static Result<Unigram> build(const Vocabulary& vocabulary, const std::vector<VocabEntry>& entries,
                               const Options& options);

  // Appends the ids of `piece`, valid UTF-8.
  void encode(std::string_view piece, const Vocabulary& vocabulary, AddedIds added_ids, Workspace& workspace,
              std::vector<int32_t>& ids) const;

 private:
  Unigram(const std::vector<VocabEntry>& entries, const Vocabulary& vocabulary, const Options& options);
  void find_paths(std::string_view piece, const Vocabulary& vocabulary, AddedIds added_ids,
                  std::vector<BestPath>& paths) const;
  void append_unknown(std::string_view run, const Vocabulary& vocabulary, std::vector<int32_t>& ids) const;
  void encode_new(std::string_view piece, const Vocabulary& vocabulary, AddedIds added_ids,
                  Workspace& workspace, std::vector<int32_t>& ids) const;

  Options options_;
  ByteTrie trie_;
  std::vector<double> scores_;  // by id
  double unk_score_ = 0;
  int32_t id_of_byte_[256] = {};
};

}  // namespace lockstep::serving::tokenizing
