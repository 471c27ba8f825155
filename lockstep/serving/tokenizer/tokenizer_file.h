#pragma once
// tokenizer.json as text: the long lists (model.vocab, model.merges) as plain vectors, everything else as a
// small document. A document of the whole file would take seconds, for its objects are searched one key after
// another.
#include <string_view>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/base/json.h"
#include "lockstep/serving/tokenizer/bpe.h"
#include "lockstep/serving/tokenizer/vocabulary.h"

namespace lockstep::serving::tokenizing {

struct TokenizerFile {
  Json head;                      // null stands where the two lists were
  std::vector<VocabEntry> vocab;  // of Unigram, an array of tokens and scores: the id is the position
  std::vector<MergeEntry> merges;
  bool has_vocab = false;
  bool has_merges = false;
  bool has_scores = false;  // the vocabulary is such an array
};

// Both spellings of a merge are read: "left right" and ["left", "right"].
Result<TokenizerFile> read_tokenizer_file(std::string_view json);

// The added_tokens of the head; `searched` is their content still.
Result<std::vector<AddedToken>> read_added_tokens(const Json& head);

}  // namespace lockstep::serving::tokenizing
