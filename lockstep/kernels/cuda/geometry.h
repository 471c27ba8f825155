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

// Attention: tokens of one split; a decode row of more is cut and its parts merged in order. A row has at
// most kMostSplits, which are wider then (split_tokens() in elements.cuh, by the row's own tokens): what a
// batch keeps of them is bounded, and all there is from kMostSplits * kSplitTokens tokens on.
inline constexpr int64_t kSplitTokens = 128;
inline constexpr int64_t kMostSplits = 32;
constexpr int num_splits(int64_t max_tokens) {
  const int64_t needed = ceil_div(max_tokens, kSplitTokens);
  const int64_t splits = needed < kMostSplits ? needed : kMostSplits;
  // A power of two, so that growing contexts seldom change the shape of a launch; splits without tokens end
  // at once.
  return static_cast<int>(std::bit_ceil(static_cast<uint64_t>(splits < 1 ? 1 : splits)));
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
// Shared memory of one block. What every kernel may have unasked is 48 KB: asking for more would be a setting
// of the kernel that ranks on other threads share.
constexpr int64_t attention_shared_bytes(int64_t key) {
  return kHeadTile * (key + kBlockTokens + 3) * 4 + kBlockTokens * 8;
}
inline constexpr int kMaxKey = 1408;
static_assert(attention_shared_bytes(kMaxKey) <= 48 * 1024);

// Routing of few rows to few experts is placed by one block.
inline constexpr int kFewEntries = 256, kFewExperts = 512;
constexpr bool places_in_one_block(int64_t entries, int64_t experts) {
  return entries <= kFewEntries && experts > 0 && experts < kFewExperts;
}

// Experts on tensor cores: 16-byte pieces of 8 values, 32 values of depth a step.
constexpr bool experts_fit_tensor_cores(int64_t hidden, int64_t inter) {
  return hidden % 32 == 0 && inter % 32 == 0 && hidden > 0 && inter > 0;
}
// Rows of an expert that one pass over its weights serves: 8, 16 or 32, by the average.
constexpr int expert_rows_a_pass(int64_t slots, int64_t experts) {
  const int64_t mean = experts == 0 ? 0 : ceil_div(slots, experts);
  return mean <= 4 ? 8 : mean <= 12 ? 16 : 32;
}

// From here on on average, rows of an expert are multiplied in blocks of 128.
constexpr bool experts_take_tiles(int64_t slots, int64_t experts) {
  return experts > 0 && slots / experts >= 48;
}
constexpr int expert_tiles_at_once(int64_t slots, int64_t experts) {
  const int64_t tiles = experts == 0 ? 1 : ceil_div(2 * slots, experts * 128);
  return tiles < 1 ? 1 : tiles > 32 ? 32 : static_cast<int>(tiles);
}
// Passes of one expert that run side by side, for prompts of many rows.
constexpr int expert_passes_at_once(int64_t slots, int64_t experts) {
  const int64_t passes = experts == 0 ? 1 : ceil_div(ceil_div(slots, experts), 32);
  return passes < 1 ? 1 : passes > 8 ? 8 : static_cast<int>(passes);
}

}  // namespace lockstep::kernels::cuda
