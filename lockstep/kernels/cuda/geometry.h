#pragma once
// How CUDA kernels are cut into blocks, as pure functions of the shapes: tested without a GPU. Which kernel
// multiplies experts, and whether attention's tokens are split, follows from how many rows come together;
// docs/gpu.md says so.
#include <bit>
#include <cstdint>

namespace lockstep::kernels::cuda {

inline constexpr int kThreads = 256;
inline constexpr int kWarp = 32;

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Rows of at most this many values are normed by a warp each, longer ones by a block.
inline constexpr int64_t kWarpRow = 512;
constexpr int64_t norm_blocks(int64_t rows, int64_t cols) {
  return cols <= kWarpRow ? ceil_div(rows, kThreads / kWarp) : rows;
}

// Attention: a decode row's tokens are cut so that there are blocks enough for all multiprocessors, into
// splits of whole kSplitTokens that are merged in order. `blocks` is how many there are without splits.
inline constexpr int64_t kSplitTokens = 64;
inline constexpr int64_t kMostSplits = 32;
inline constexpr int64_t kEnoughBlocks = 256;
constexpr int num_splits(int64_t max_tokens, int64_t blocks) {
  const int64_t most = ceil_div(max_tokens, kSplitTokens);
  int64_t splits = ceil_div(kEnoughBlocks, blocks < 1 ? 1 : blocks);
  splits = splits < most ? splits : most;
  splits = splits < kMostSplits ? splits : kMostSplits;
  // A power of two, so that growing contexts seldom change the shape of a launch; splits without tokens end
  // at once.
  return static_cast<int>(std::bit_ceil(static_cast<uint64_t>(splits < 1 ? 1 : splits)));
}
// Splits that merge within a cluster of blocks: fewer, of tokens few enough that it pays; 0: it does not.
inline constexpr int kMostClusterSplits = 8;
inline constexpr int64_t kMostClusterTokens = 256;
constexpr int cluster_splits(int64_t max_tokens, int64_t blocks) {
  const int splits = num_splits(max_tokens, blocks);
  if (splits <= kMostClusterSplits) return splits;
  return max_tokens <= kMostClusterTokens * kMostClusterSplits ? kMostClusterSplits : 0;
}
constexpr int64_t widest_split(int64_t tokens, int64_t splits) {
  const int64_t whole = ceil_div(ceil_div(tokens, splits), kSplitTokens);
  return (whole < 1 ? 1 : whole) * kSplitTokens;
}
// A part is a row of values, its highest score and its sum, for every query head.
constexpr int64_t attention_scratch_floats(int64_t rows, int64_t heads, int64_t value, int splits) {
  return splits <= 1 ? 0 : rows * heads * splits * (value + 2);
}
// Query heads that one block carries: those of a key/value head, in tiles of at most this many.
inline constexpr int kHeadTile = 8;
constexpr int64_t head_tiles_of_group(int64_t group) { return ceil_div(group, kHeadTile); }
inline constexpr int kMaxValue = 512;  // widest value that the kernel keeps in registers
inline constexpr int kBlockTokens = 32;
// On tensor cores a warp takes 16 pairs of a row and a head; chunks of prompts have so many warps a block.
inline constexpr int kChunkWarps = 8;
constexpr int rows_of_tile(int group) { return kChunkWarps * 16 / group; }
constexpr bool attention_fits_tiles(int64_t width, int heads, int group, int first_in_group, int window) {
  return (width == 64 || width == 128) && group <= 16 && first_in_group == 0 && heads % group == 0 &&
         window == 0;
}
// Pages that the copy engine brings into blocks of 128 tokens.
constexpr bool pages_fit_boxes(int page_size) {
  return page_size % 8 == 0 && page_size <= 128 && 128 % page_size == 0;
}
// Rows of q, k and v of prompts: so many that each is read once by whole blocks, their heads turned whole.
inline constexpr int64_t kPromptRows = 512;
constexpr bool fits_prompt_rows(int64_t rows, int head_dim, int dim) {
  return rows >= kPromptRows && head_dim == 128 && dim == 128;
}
// Shared memory of one block. What every kernel may have unasked is 48 KB: asking for more would be a setting
// of the kernel that ranks on other threads share.
constexpr int64_t attention_shared_bytes(int64_t key) {
  return kHeadTile * (key + kBlockTokens + 3) * 4 + kBlockTokens * 8;
}
inline constexpr int kMaxKey = 1408;
static_assert(attention_shared_bytes(kMaxKey) <= 48 * 1024);

// Routing of few rows is placed, and their rows copied, by one kernel: a block an entry.
inline constexpr int kFewEntries = 2048, kFewExperts = 1024;
constexpr bool places_entry_by_entry(int64_t entries, int64_t experts) {
  return entries <= kFewEntries && experts > 0 && experts < kFewExperts;
}

// From so many rows on, a block pulls a whole one.
inline constexpr int64_t kManyPulled = 512;

// The router's product and the routing of few rows are one kernel, which keeps a row of x in shared memory.
inline constexpr int64_t kMostRowsOfRouter = 8, kMostRouterDepth = 8192, kMostRoutedByProduct = 512;
constexpr bool router_fits_one_kernel(int64_t rows, int64_t depth, int64_t experts, int top_k) {
  return rows <= kMostRowsOfRouter && depth > 0 && depth <= kMostRouterDepth && depth % 8 == 0 &&
         experts <= kMostRoutedByProduct && top_k > 0 && top_k <= kWarp;
}

// Products of few rows, whose weights are streamed: tiles of 16 rows of weights, whose depth is shared out
// among warps in chunks; a warp keeps its part of x.
inline constexpr int kStreamWarps = 8, kStreamTileRows = 16, kStreamChunk = 64, kStreamStages = 8;
inline constexpr int kStreamKept = 32;  // steps of 32 values, times tiles of 8 rows, times parts of x
inline constexpr int kMostStreamShared = 224 * 1024;
// A few rows of x that are kept in shared memory, whole.
inline constexpr int kFewRowsPad = 32, kMostFewRows = 40 * 1024;
constexpr int64_t few_rows_bytes(int64_t rows, int64_t depth) {
  return rows * (ceil_div(depth, kStreamChunk) * kStreamChunk + kFewRowsPad) * 2;
}
// The fewest warps that share out the depth so that each has at most `most_steps` steps; all of them beyond.
// Many rows have tiles enough for the wider slices.
inline constexpr int kFewSteps = 8, kMoreSteps = 16;
constexpr int stream_slices(int64_t depth, int most_steps) {
  int slices = 1;
  while (slices < kStreamWarps && ceil_div(ceil_div(depth, kStreamChunk), slices) * 2 > most_steps)
    slices *= 2;
  return slices;
}
constexpr int stream_steps(int64_t depth, int slices) {
  return static_cast<int>(2 * ceil_div(ceil_div(depth, kStreamChunk), slices));
}
// Tiles of 8 rows, times parts of x, that a warp can keep; 0: too deep.
constexpr int stream_tiles(int64_t depth) {
  const int steps = stream_steps(depth, kStreamWarps);
  return steps <= 8 ? 4 : steps <= 16 ? 2 : steps <= 32 ? 1 : 0;
}
constexpr int expert_slices(int64_t depth, int64_t slots, int rows_a_pass) {
  return stream_slices(depth, slots >= 64 && rows_a_pass <= 16 ? kMoreSteps : kFewSteps);
}
// Up to 16 rows, or as many passes of 16 as there are tiles of few outputs for.
inline constexpr int64_t kMostPasses = 8, kMostTilesOfPasses = 256;
constexpr bool streams(int64_t depth, int64_t rows, int64_t outs, int parts) {
  const int64_t passes = ceil_div(rows, 16);
  const bool few = passes <= 1 ||
                   (passes <= kMostPasses && passes * ceil_div(outs, kStreamTileRows) <= kMostTilesOfPasses);
  return few && depth > 0 && depth % 8 == 0 && (rows <= 8 ? 1 : 2) * parts <= stream_tiles(depth);
}

// Experts of so few rows that a warp holds their routing: 32 entries, one a row and expert. The second kernel
// keeps what the first has left of all entries in shared memory beside the rings of weights.
inline constexpr int kMostRoutedEntries = 32, kRoutedPassBytes = 2048, kRoutedPad = 32,
                     kMostRoutedShared = 224 * 1024;
constexpr int64_t routed_down_shared_bytes(int64_t entries, int64_t inter) {
  return int64_t{kStreamWarps} * kStreamStages * kStreamTileRows * kStreamChunk * 2 +
         int64_t{2} * kMostRoutedEntries * kStreamTileRows * 4 + kRoutedPassBytes +
         entries * (inter + kRoutedPad) * 2;
}
constexpr bool experts_fit_routed(int64_t rows, int64_t top_k, int64_t hidden, int64_t inter) {
  const int64_t entries = rows * top_k;
  return entries > 0 && entries <= kMostRoutedEntries && hidden % 8 == 0 && inter % 8 == 0 && hidden > 0 &&
         inter > 0 && few_rows_bytes(rows, hidden) <= kMostFewRows &&
         routed_down_shared_bytes(entries, inter) <= kMostRoutedShared;
}

// So many experts the kernels have room to count.
inline constexpr int kMostExperts = 4096;
// Experts on tensor cores: 16-byte pieces of 8 values.
constexpr bool experts_fit_tensor_cores(int64_t experts, int64_t hidden, int64_t inter) {
  return hidden % 8 == 0 && inter % 8 == 0 && hidden > 0 && inter > 0 && experts <= kMostExperts;
}
// Rows of an expert that one pass over its weights serves: 8, 16 or 32, by the average and what can be kept.
constexpr int expert_rows_a_pass(int64_t slots, int64_t experts, int64_t hidden, int64_t inter) {
  const int64_t mean = experts == 0 ? 0 : ceil_div(slots, experts);
  const int wanted = mean <= 4 ? 1 : mean <= 12 ? 2 : 4, kept = stream_tiles(hidden < inter ? inter : hidden);
  return 8 * (wanted < kept ? wanted : kept);
}

// From here on on average, rows of an expert are multiplied in blocks of 128; so are those too deep or too
// many experts for streaming.
constexpr bool experts_take_tiles(int64_t slots, int64_t experts, int64_t hidden, int64_t inter) {
  return experts > 0 && (slots / experts >= 48 || experts >= kFewExperts ||
                         stream_tiles(hidden < inter ? inter : hidden) == 0);
}
}  // namespace lockstep::kernels::cuda
