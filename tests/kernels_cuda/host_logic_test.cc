// What the CUDA backend decides on the host: how work is cut, where uploads go, how rows are listed. No GPU
// needed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "lockstep/kernels/cuda/cuda_kernels.h"
#include "lockstep/kernels/cuda/dense.h"
#include "lockstep/kernels/cuda/geometry.h"
#include "lockstep/kernels/cuda/uploads.h"
#include "lockstep/kernels/cuda/views.h"

namespace lockstep::kernels::cuda {
namespace {

TEST(Geometry, BlocksCoverAllRows) {
  EXPECT_EQ(ceil_div(0, 8), 0);
  EXPECT_EQ(ceil_div(1, 8), 1);
  EXPECT_EQ(ceil_div(8, 8), 1);
  EXPECT_EQ(ceil_div(9, 8), 2);
  EXPECT_EQ(norm_blocks(9, 128), 2);  // eight warps a block, a warp a row
  EXPECT_EQ(norm_blocks(9, 512), 2);
  EXPECT_EQ(norm_blocks(9, 513), 9);
}

TEST(Geometry, SplitsMakeBlocksEnoughAndNoMore) {
  EXPECT_EQ(num_splits(0, 4), 1);
  EXPECT_EQ(num_splits(64, 4), 1);
  EXPECT_EQ(num_splits(65, 4), 2);
  EXPECT_EQ(num_splits(512, 4), 8);   // all that there are tokens for
  EXPECT_EQ(num_splits(512, 64), 4);  // 256 blocks
  EXPECT_EQ(num_splits(512, 256), 1);
  EXPECT_EQ(num_splits(131072, 1), 32);   // no more: they are wider
  EXPECT_EQ(num_splits(131072, 100), 4);  // a power of two
  EXPECT_EQ(num_splits(100, 0), 2);
  EXPECT_EQ(attention_scratch_floats(3, 4, 128, 1), 0);
  EXPECT_EQ(attention_scratch_floats(3, 4, 128, 2), 3 * 4 * 2 * 130);
  EXPECT_EQ(head_tiles_of_group(1), 1);
  EXPECT_EQ(head_tiles_of_group(8), 1);
  EXPECT_EQ(head_tiles_of_group(128), 16);
}

// Splits that a cluster of blocks merges: as many as there would be, at most eight, and none where these
// would be long.
TEST(Geometry, SplitsOfAClusterOfBlocks) {
  EXPECT_EQ(cluster_splits(1, 4), 1);
  EXPECT_EQ(cluster_splits(512, 4), 8);
  EXPECT_EQ(cluster_splits(513, 4), 8);  // 16 without
  EXPECT_EQ(cluster_splits(2048, 4), 8);
  EXPECT_EQ(cluster_splits(2049, 4), 0);
  EXPECT_EQ(cluster_splits(131072, 256), 1);
  EXPECT_EQ(cluster_splits(131072, 64), 4);
  EXPECT_EQ(widest_split(513, 8), 128);
  EXPECT_EQ(widest_split(512, 8), 64);
  EXPECT_EQ(widest_split(1, 1), 64);
}

TEST(Geometry, FewRowsThroughRouterAndExperts) {
  EXPECT_TRUE(router_fits_one_kernel(1, 2048, 128, 8));
  EXPECT_FALSE(router_fits_one_kernel(9, 2048, 128, 8));
  EXPECT_FALSE(router_fits_one_kernel(1, 2052, 128, 8));  // no whole pieces
  EXPECT_FALSE(router_fits_one_kernel(1, 2048, 513, 8));
  EXPECT_FALSE(router_fits_one_kernel(1, 2048, 128, 33));  // more than a warp has lanes
  EXPECT_TRUE(experts_fit_routed(1, 8, 2048, 768));
  EXPECT_TRUE(experts_fit_routed(4, 8, 2048, 768));
  EXPECT_FALSE(experts_fit_routed(5, 8, 2048, 768));  // 40 entries
  EXPECT_FALSE(experts_fit_routed(0, 8, 2048, 768));
  EXPECT_FALSE(experts_fit_routed(4, 8, 2048, 2048));  // more than shared memory holds beside the rings
  EXPECT_LE(routed_down_shared_bytes(32, 768), kMostRoutedShared);
}

TEST(Geometry, ExpertsOnTensorCoresNeedWholeSteps) {
  EXPECT_TRUE(experts_fit_tensor_cores(128, 2048, 768));
  EXPECT_FALSE(experts_fit_tensor_cores(128, 2048, 20));
  EXPECT_FALSE(experts_fit_tensor_cores(128, 44, 64));
  EXPECT_FALSE(experts_fit_tensor_cores(128, 2048, 0));
  EXPECT_FALSE(experts_fit_tensor_cores(4097, 2048, 768));
  EXPECT_EQ(expert_rows_a_pass(8, 128, 2048, 768), 8);
  EXPECT_EQ(expert_rows_a_pass(1024, 128, 2048, 768), 16);
  EXPECT_EQ(expert_rows_a_pass(2560, 128, 2048, 768), 32);
  EXPECT_EQ(expert_rows_a_pass(2560, 128, 7168, 2048), 8);  // what a warp keeps of deep rows
  EXPECT_TRUE(experts_take_tiles(65536, 128, 2048, 768));
  EXPECT_FALSE(experts_take_tiles(1024, 128, 2048, 768));
  EXPECT_TRUE(experts_take_tiles(8, 128, 16384, 768));  // too deep to be streamed
  EXPECT_TRUE(places_entry_by_entry(2048, 128));
  EXPECT_FALSE(places_entry_by_entry(2056, 128));
  EXPECT_FALSE(places_entry_by_entry(8, 1024));
}

// Every warp's slice has room in what it keeps, and slices have chunks where there are enough.
TEST(Geometry, StreamsTakeWhatAWarpCanKeep) {
  for (int64_t depth = 8; depth <= 20000; depth += 8) {
    const int slices = stream_slices(depth, kFewSteps), tiles = stream_tiles(depth);
    EXPECT_LE(slices, kStreamWarps);
    EXPECT_LE(tiles * stream_steps(depth, slices), kStreamKept) << depth;
    EXPECT_LE(std::min(tiles, 2) * stream_steps(depth, stream_slices(depth, kMoreSteps)), kStreamKept)
        << depth;
    EXPECT_EQ(tiles == 0, depth > 8 * 32 * 32) << depth;
  }
  EXPECT_EQ(stream_slices(2048, kFewSteps), 8);
  EXPECT_EQ(stream_slices(2048, kMoreSteps), 4);
  EXPECT_EQ(stream_slices(768, kFewSteps), 4);
  EXPECT_EQ(stream_slices(64, kFewSteps), 1);
  EXPECT_EQ(expert_slices(768, 8, 8), 4);
  EXPECT_EQ(expert_slices(768, 1024, 16), 2);
  EXPECT_EQ(expert_slices(768, 4096, 32), 4);
  EXPECT_TRUE(streams(2048, 16, 5120, 2));
  EXPECT_TRUE(streams(4096, 16, 2048, 1));
  EXPECT_FALSE(streams(4096, 16, 2048, 2));
  EXPECT_TRUE(streams(7168, 8, 2048, 1));
  EXPECT_FALSE(streams(7168, 9, 2048, 1));
  EXPECT_TRUE(streams(2048, 128, 128, 2));    // a router's passes
  EXPECT_FALSE(streams(2048, 128, 4096, 1));  // too many tiles of passes
  EXPECT_FALSE(streams(2048, 129, 128, 1));
  EXPECT_FALSE(streams(2044, 1, 16, 1));
}

TEST(UploadSlots, ContentThatIsStillThereIsFound) {
  UploadSlots slots(4096);
  std::vector<std::byte> stored(4096);
  const auto put = [&](std::string_view content) {
    const auto slot = slots.find_or_take(content, stored.data());
    if (slot.is_new) std::memcpy(stored.data() + slot.offset, content.data(), content.size());
    return slot;
  };
  const auto first = put("positions"), second = put("page tables");
  EXPECT_TRUE(first.is_new);
  EXPECT_TRUE(second.is_new);
  EXPECT_EQ(second.offset - first.offset, UploadSlots::kAlignment);
  EXPECT_FALSE(put("positions").is_new);
  EXPECT_EQ(put("positions").offset, first.offset);
  EXPECT_TRUE(put("position").is_new);  // a prefix is other content
  slots.forget(4096);
  EXPECT_TRUE(put("positions").is_new);
}

TEST(UploadSlots, RoomIsCountedInWholeSlots) {
  UploadSlots slots(512);
  EXPECT_EQ(UploadSlots::padded(1), 256u);
  EXPECT_EQ(UploadSlots::padded(256), 256u);
  EXPECT_TRUE(slots.has_room(512));
  EXPECT_FALSE(slots.has_room(513));
  std::vector<std::byte> stored(512);
  slots.find_or_take("a", stored.data());
  EXPECT_FALSE(slots.has_room(512));
  const std::string long_text(257, 'x');
  EXPECT_THROW(slots.find_or_take(long_text, stored.data()), Fatal);
}

TEST(Moves, OnePieceNeedsNoList) {
  const std::vector<RowPiece> one = {{.src_row = 3, .dst_row = 5, .num_rows = 7}};
  const MoveList list = moves_of(one);
  EXPECT_TRUE(list.listed.empty());
  EXPECT_EQ(list.moves.count, 7);
  EXPECT_EQ(list.moves.first, 3);
  EXPECT_EQ(list.moves.first_out, 5);
  EXPECT_EQ(moves_of({}).moves.count, 0);
}

TEST(Moves, SeveralPiecesAreListedRowByRow) {
  const std::vector<RowPiece> two = {{.source = 1, .src_row = 4, .dst_row = 0, .num_rows = 2},
                                     {.source = 0, .src_row = 0, .dst_row = 2, .num_rows = 1}};
  const MoveList list = moves_of(two);
  ASSERT_EQ(list.listed.size(), 3u);
  EXPECT_EQ(list.listed[1].source, 1);
  EXPECT_EQ(list.listed[1].src, 5);
  EXPECT_EQ(list.listed[1].dst, 1);
  EXPECT_EQ(list.listed[2].dst, 2);
}

TEST(Moves, TokensLieInTheirPages) {
  const std::vector<int32_t> table = {7, 2};
  const PagedSequence sequence{.page_table = table, .first_row = 10, .num_rows = 2, .context = 5};
  const auto stored = store_moves({&sequence, 1}, 4);
  ASSERT_EQ(stored.size(), 2u);
  EXPECT_EQ(stored[0].src, 10);
  EXPECT_EQ(stored[0].dst, 7 * 4 + 3);
  EXPECT_EQ(stored[1].dst, 2 * 4);
  const auto loaded = load_moves(sequence, 4);
  ASSERT_EQ(loaded.size(), 5u);
  EXPECT_EQ(loaded[4].src, 8);
  EXPECT_EQ(loaded[4].dst, 4);
}

TEST(Moves, QueriesOfOneRowAreApartFromChunks) {
  const std::vector<int32_t> long_table = {0, 1, 2}, short_table = {3};
  const std::vector<PagedSequence> sequences = {
      {.page_table = long_table, .first_row = 0, .num_rows = 2, .context = 10},
      {.page_table = short_table, .first_row = 2, .num_rows = 1, .context = 4}};
  const QueryRows rows = query_rows(sequences, 4);
  ASSERT_EQ(rows.chunked.size(), 2u);
  ASSERT_EQ(rows.single.size(), 1u);
  EXPECT_EQ(rows.chunked[0].tokens, 9);
  EXPECT_EQ(rows.chunked[1].tokens, 10);
  EXPECT_EQ(rows.single[0].row, 2);
  EXPECT_EQ(rows.single[0].table, 3);
  EXPECT_EQ(rows.tables, (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(rows.max_single_tokens, 4);
}

TEST(Moves, ChunksAreCutIntoTilesTheLongestFirst) {
  const std::vector<int32_t> table = {4, 5, 6}, other = {9};
  const std::vector<PagedSequence> sequences = {
      {.page_table = table, .first_row = 3, .num_rows = 5, .context = 11},
      {.page_table = other, .first_row = 0, .num_rows = 1, .context = 2}};
  const QueryTiles tiles = query_tiles(sequences, sequences, 4, 2);
  ASSERT_EQ(tiles.chunked.size(), 3u);
  EXPECT_EQ(tiles.chunked[0].row, 7);
  EXPECT_EQ(tiles.chunked[0].rows, 1);
  EXPECT_EQ(tiles.chunked[0].tokens, 11);
  EXPECT_EQ(tiles.chunked[2].row, 3);
  EXPECT_EQ(tiles.chunked[2].rows, 2);
  EXPECT_EQ(tiles.chunked[2].tokens, 7);
  ASSERT_EQ(tiles.single.size(), 1u);
  EXPECT_EQ(tiles.single[0].table, 3);
  EXPECT_EQ(tiles.single[0].fresh, 1);
  for (const AttentionTile& tile : tiles.chunked) EXPECT_EQ(tile.fresh, 6);
  EXPECT_EQ(tiles.max_single_tokens, 2);
  EXPECT_EQ(rows_of_tile(8), 16);
  EXPECT_EQ(rows_of_tile(3), 42);
  EXPECT_TRUE(attention_fits_tiles(128, 32, 8, 0, 0));
  EXPECT_FALSE(attention_fits_tiles(128, 5, 2, 1, 0));
  EXPECT_FALSE(attention_fits_tiles(80, 32, 8, 0, 0));
}

// What one step writes of a sequence starts where its first entry's rows do, whichever entry is looked at and
// in whatever order they stand: a token that is drafted, and one whose keys another rank's rows give.
TEST(Moves, TokensOfOneStepAreFreshForAllRowsOfTheirSequence) {
  const std::vector<int32_t> table = {4, 5, 6}, other = {9, 1};
  const auto entry = [](const std::vector<int32_t>& pages, int32_t row, int32_t count, int32_t context) {
    return PagedSequence{.page_table = pages, .first_row = row, .num_rows = count, .context = context};
  };
  const std::vector<PagedSequence> drafts = {entry(table, 2, 1, 10), entry(other, 3, 1, 5),
                                             entry(table, 0, 1, 8), entry(table, 1, 1, 9)};
  const QueryTiles tiles = query_tiles(drafts, drafts, 4, 1);
  ASSERT_EQ(tiles.single.size(), 4u);
  EXPECT_EQ(tiles.single[0].fresh, 7);
  EXPECT_EQ(tiles.single[1].fresh, 4);
  EXPECT_EQ(tiles.single[2].fresh, 7);
  EXPECT_EQ(tiles.single[3].fresh, 7);
  EXPECT_FALSE(one_row_a_sequence(drafts));
  EXPECT_TRUE(one_row_a_sequence(std::span(drafts).first(2)));
  EXPECT_TRUE(one_row_a_sequence({}));
  const std::vector<PagedSequence> chunk = {entry(table, 0, 6, 12)}, last_row = {entry(table, 0, 1, 12)};
  EXPECT_FALSE(one_row_a_sequence(chunk));
  const QueryTiles of_a_chunk = query_tiles(last_row, chunk, 4, 1);
  ASSERT_EQ(of_a_chunk.single.size(), 1u);
  EXPECT_EQ(of_a_chunk.single[0].fresh, 6);
  EXPECT_EQ(of_a_chunk.single[0].tokens, 12);
}

TEST(Views, MoreSourcesThanAKernelTakesAreABug) {
  float value = 0;
  const std::vector<TensorView> many(kMaxSources + 1, view_of(&value, {1, 1}));
  EXPECT_THROW(sources_of(many), Fatal);
  EXPECT_EQ(sources_of(std::span(many).first(kMaxSources)).count, kMaxSources);
}

TEST(Views, AlignmentIsAPowerOfTwoUpTo256) {
  alignas(512) std::byte memory[1024];
  EXPECT_EQ(alignment_of(memory), 256u);
  EXPECT_EQ(alignment_of(memory + 48), 16u);
  EXPECT_EQ(alignment_of(memory + 2), 2u);
}

// On a machine without a GPU the answer is an error that names the flag, not a crash.
TEST(Device, WithoutAGpuTheFlagIsRefused) {
  const auto facts = device_facts();
  if (facts.ok()) {
    ASSERT_FALSE(facts->memory_bytes.empty());
    EXPECT_GT(facts->memory_bytes[0], 1e9);
  } else {
    EXPECT_EQ(facts.error().field, "--device");
    EXPECT_EQ(check_ranks(1).error().field, "--device");
    EXPECT_THROW(make_kernels({.device = Device::kCuda}, 0), Fatal);
  }
}

}  // namespace
}  // namespace lockstep::kernels::cuda
