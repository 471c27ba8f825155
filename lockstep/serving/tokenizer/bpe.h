#pragma once
// Byte-pair encoding of one piece of text: starts from its bytes (byte-level) or characters
// (SentencePiece-style) and joins, again and again, the neighbours whose merge comes first in the file, the
// leftmost of equals. Work grows as n log n in the length of the piece. Immutable.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lockstep/base/check.h"
#include "lockstep/serving/tokenizer/merge_table.h"
#include "lockstep/serving/tokenizer/vocabulary.h"
#include "lockstep/serving/tokenizer/workspace.h"

namespace lockstep::serving::tokenizing {

// One line of model.merges.
struct MergeEntry {
  std::string left;
  std::string right;
};

// Whether a piece may become an added token by merging. It cannot where added tokens must stay ordinary text.
enum class AddedIds : unsigned char { kAllowed, kAvoided };

enum class Alphabet : unsigned char {
  kBytes,       // pieces are bytes, spelled in the byte-level alphabet
  kCharacters,  // pieces are UTF-8, entries are spelled as they are
};

class Bpe {
 public:
  struct Options {
    Alphabet alphabet = Alphabet::kBytes;
    bool ignore_merges = false;  // a piece that is itself an entry becomes it at once
    bool byte_fallback = false;  // characters only: one without an entry becomes its bytes' tokens <0x..>
    std::string unk_token;       // for what has no entry; empty: it is left out
    bool fuse_unk = false;       // one unk_token for a run of those
    // A long text without pieces is cut where no merge can cross. kNever is the reference for that.
    enum class Cuts : unsigned char { kWhereNoMergeCrosses, kNever } cuts = Cuts::kWhereNoMergeCrosses;
  };

  static Result<Bpe> build(const Vocabulary& vocabulary, const std::vector<MergeEntry>& merges,
                           const Options& options);

  // Appends the ids of `piece`: raw bytes of any kind, or valid UTF-8 where the alphabet is characters.
  void encode(std::string_view piece, const Vocabulary& vocabulary, AddedIds added_ids, Workspace& workspace,
              std::vector<int32_t>& ids) const;

 private:
  Bpe(size_t num_merges, Options options)
      : options_(std::move(options)), merges_(num_merges), crossings_(0) {}
  Status set_unknown(const Vocabulary& vocabulary);
  Status add_merge(const Vocabulary& vocabulary, const MergeEntry& entry, size_t rank);
  void add_atoms(const Vocabulary& vocabulary);
  void find_crossings(const Vocabulary& vocabulary, const std::vector<MergeEntry>& merges);
  bool is_fallback(const Vocabulary& vocabulary, const std::string& spelling) const;
  int32_t id_of_character(char32_t character) const;

  void append_fallback(std::string_view character, bool& has_unknown, std::vector<int32_t>& ids) const;
  void append_characters(std::string_view piece, std::vector<int32_t>& ids) const;
  void encode_cut(std::string_view piece, const Vocabulary& vocabulary, AddedIds added_ids,
                  Workspace& workspace, std::vector<int32_t>& ids) const;
  void encode_bytes(std::string_view piece, std::vector<int32_t>& ids) const;
  // The entry that a piece is as a whole, where merges are ignored then.
  std::optional<int32_t> whole_entry(std::string_view spelling, const Vocabulary& vocabulary,
                                     AddedIds added_ids) const;
  std::optional<int32_t> whole_spelling(std::string_view bytes, const Vocabulary& vocabulary,
                                        AddedIds added_ids, Workspace& workspace) const;
  // Encodes a piece of known characters or of bytes, by the cache where it is short.
  void encode_remembered(std::string_view piece, const Vocabulary& vocabulary, AddedIds added_ids,
                         Workspace& workspace, std::vector<int32_t>& ids) const;
  // Joins the ids from `begin` on.
  void merge_from(size_t begin, const Vocabulary& vocabulary, AddedIds added_ids, Workspace& workspace,
                  std::vector<int32_t>& ids) const;

  Options options_;
  MergeTable merges_;
  int32_t id_of_byte_[256] = {};  // the byte's symbol or its token <0x..>; -1: the vocabulary lacks it
  int32_t id_of_ascii_[128] = {};
  std::unordered_map<char32_t, int32_t> id_of_character_;
  int32_t unk_id_ = -1;
  bool may_cut_ = false;
  MergeTable crossings_;  // pairs of characters that some merge joins
};

}  // namespace lockstep::serving::tokenizing
