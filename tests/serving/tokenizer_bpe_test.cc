// Byte-pair encoding over characters: cutting a text where no merge can cross gives what the whole gives, and
// remembered pieces are those that were encoded.
#include "lockstep/serving/tokenizer/bpe.h"

#include "lockstep/base/hash.h"
#include "lockstep/serving/tokenizer/piece_cache.h"
#include "tests/serving/tokenizer_fixture.h"

namespace lockstep::serving::tokenizing {
namespace {

using Ids = std::vector<int32_t>;

// Vocabulary and merges drawn from a few characters, some of which are no entry of their own.
struct RandomModel {
  explicit RandomModel(uint64_t seed) : draw(seed << 32) {
    std::vector<VocabEntry> entries;
    const auto add = [&](const std::string& spelling) {
      for (const VocabEntry& entry : entries)
        if (entry.spelling == spelling) return;
      entries.push_back({.spelling = spelling, .id = static_cast<int64_t>(entries.size())});
    };
    add("<unk>");
    if (seed % 2 == 0)
      for (int byte = 0; byte < 256; ++byte) add(byte_token(static_cast<uint8_t>(byte)));
    std::vector<std::string> known = {"a", "b", "\u2581", "é", "漢"};
    for (const std::string& character : known) add(character);
    while (merges.size() < 14) {
      const MergeEntry merge{known[below(known.size())], known[below(known.size())]};
      known.push_back(merge.left + merge.right);
      add(known.back());
      merges.push_back(merge);
    }
    auto decoder = TokenDecoder::read({{"type", "Fuse"}}, "decoder");
    auto built = Vocabulary::build(entries, {}, *decoder);
    EXPECT_TRUE(built.ok()) << built.error().message;
    vocabulary = std::make_unique<Vocabulary>(std::move(*built));
  }

  Bpe bpe(Bpe::Options::Cuts cuts, uint64_t seed) const {
    auto built = Bpe::build(*vocabulary, merges,
                            {.alphabet = Alphabet::kCharacters,
                             .byte_fallback = seed % 2 == 0,
                             .unk_token = "<unk>",
                             .fuse_unk = seed % 3 != 0,
                             .cuts = cuts});
    EXPECT_TRUE(built.ok()) << built.error().message;
    return std::move(*built);
  }
  size_t below(size_t bound) { return static_cast<size_t>(mix64(++draw) % bound); }

  uint64_t draw;
  std::vector<MergeEntry> merges;
  std::unique_ptr<Vocabulary> vocabulary;
};

TEST(Bpe, CutsOnlyWhereNoMergeCrosses) {
  const std::vector<std::string> pool = {"a", "b", "\u2581", "é", "漢", "x", "ü", "ab", "\u2581a"};
  for (uint64_t seed = 0; seed < 60; ++seed) {
    RandomModel model(seed);
    const Bpe cut = model.bpe(Bpe::Options::Cuts::kWhereNoMergeCrosses, seed);
    const Bpe whole = model.bpe(Bpe::Options::Cuts::kNever, seed);
    Workspace first, second;
    for (int round = 0; round < 40; ++round) {
      std::string text;
      for (size_t i = model.below(30); i > 0; --i) text += pool[model.below(pool.size())];
      Ids cut_ids, whole_ids;
      cut.encode(text, *model.vocabulary, AddedIds::kAllowed, first, cut_ids);
      whole.encode(text, *model.vocabulary, AddedIds::kAllowed, second, whole_ids);
      ASSERT_EQ(cut_ids, whole_ids) << "seed " << seed << ": " << text;
    }
  }
}

TEST(PieceCache, KeepsWhatItWasGivenAndNothingElse) {
  PieceCache cache;
  const auto key = [](std::string_view piece, uint8_t mode) { return PieceCache::key_of(piece, mode); };
  Ids ids = {7};
  EXPECT_FALSE(cache.append(key("word", 0), ids));
  cache.put(key("word", 0), Ids{1, 2, 3});
  EXPECT_TRUE(cache.append(key("word", 0), ids));
  EXPECT_EQ(ids, (Ids{7, 1, 2, 3}));
  EXPECT_FALSE(cache.append(key("word", 1), ids));
  EXPECT_FALSE(cache.append(key(std::string_view("word\0", 5), 0), ids));
  cache.put(key("long", 0), Ids(PieceCache::kMaxIds + 1, 5));
  EXPECT_FALSE(cache.append(key("long", 0), ids));
  const std::string longest(PieceCache::kMaxBytes, 'z');
  cache.put(key(longest, 0), Ids(PieceCache::kMaxIds, 5));
  EXPECT_TRUE(cache.append(key(longest, 0), ids));
  EXPECT_EQ(ids.size(), 4 + PieceCache::kMaxIds);
}

// Four sequences of a million merges' reach: work must not grow with the square.
TEST(Bpe, EncodesALongTextOfOnePieceQuickly) {
  RandomModel model(2);
  const Bpe whole = model.bpe(Bpe::Options::Cuts::kNever, 2);
  Workspace workspace;
  std::string text;
  for (int i = 0; i < 200'000; ++i) text += model.below(2) == 0 ? "a" : "\u2581";
  Ids ids;
  whole.encode(text, *model.vocabulary, AddedIds::kAllowed, workspace, ids);
  EXPECT_GT(ids.size(), 1000u);
}

}  // namespace
}  // namespace lockstep::serving::tokenizing
