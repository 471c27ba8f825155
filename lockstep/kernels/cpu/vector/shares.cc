#include "lockstep/kernels/cpu/vector/shares.h"

#include "lockstep/kernels/cpu/vector/vector_ops.h"

namespace lockstep::kernels::cpu {
namespace {

constexpr int64_t kRowsOfTile = 96;         // with 4 KB a row they stay in the second cache
constexpr int64_t kTileWeights = 1 << 16;   // 128 KB of bf16
constexpr int64_t kOutStep = 16;            // outputs of a cache line
constexpr int64_t kTileProducts = 1 << 18;  // some ten microseconds of work
constexpr int64_t kWorthSharing = 1 << 15;  // products below which a thread is done before others wake up

int64_t rounded_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

TensorView bias_of(std::span<const TensorView> biases, int64_t expert) {
  return biases.empty() ? TensorView{} : biases[static_cast<size_t>(expert)];
}

// Tiles of every expert's product with so many outputs.
void cut_experts(const GroupedFfnArgs& args, std::span<const WeightView> weights, int num_threads,
                 std::vector<ExpertTile>& tiles) {
  tiles.clear();
  const auto* start = args.expert_start.as<int32_t>();
  for (int64_t expert = 0; expert < std::ssize(weights); ++expert) {
    const int64_t begin = start[expert], count = start[expert + 1] - begin;
    if (count == 0) continue;  // an expert without rows reads none of its weights
    const WeightView& weight = weights[static_cast<size_t>(expert)];
    const ProductCut cut = cut_product(count, weight.num_rows, weight.num_cols, num_threads);
    for (int64_t tile = 0; tile < cut.count(); ++tile) {
      const Range rows = cut.rows(tile);
      tiles.push_back(
          {.expert = expert, .slots = {begin + rows.begin, begin + rows.end}, .outs = cut.outs(tile)});
    }
  }
}

void gate_and_up(const GroupedFfnArgs& args, const ExpertTile& tile, ThreadScratch& scratch) {
  const auto expert = static_cast<size_t>(tile.expert);
  const int64_t inter = args.gate[expert].num_rows;
  const TensorView x = args.x.row_range(tile.slots.begin, tile.slots.size());
  const TensorView both = args.scratch.row_range(tile.slots.begin, tile.slots.size());
  const TensorView gate = both.col_range(0, inter), up = both.col_range(inter, inter);
  const Range all{0, x.rows()};
  run_linear({.x = x, .w = args.gate[expert], .out = gate, .bias = bias_of(args.gate_bias, tile.expert)}, all,
             tile.outs, scratch);
  run_linear({.x = x, .w = args.up[expert], .out = up, .bias = bias_of(args.up_bias, tile.expert)}, all,
             tile.outs, scratch);
  const TensorView gated = gate.col_range(tile.outs.begin, tile.outs.size());
  vector_silu_mul({.gate = gated,
                   .up = up.col_range(tile.outs.begin, tile.outs.size()),
                   .out = gated,
                   .gating = args.gating});
}

void down(const GroupedFfnArgs& args, const ExpertTile& tile, ThreadScratch& scratch) {
  const auto expert = static_cast<size_t>(tile.expert);
  const int64_t inter = args.gate[expert].num_rows;
  run_linear({.x = args.scratch.row_range(tile.slots.begin, tile.slots.size()).col_range(0, inter),
              .w = args.down[expert],
              .out = args.y.row_range(tile.slots.begin, tile.slots.size()),
              .bias = bias_of(args.down_bias, tile.expert)},
             {0, tile.slots.size()}, tile.outs, scratch);
}

}  // namespace

ProductCut cut_product(int64_t rows, int64_t outs, int64_t inner, int num_threads) {
  ProductCut cut{.outs_each = std::max<int64_t>(1, outs), .num_rows = rows, .num_outs = outs};
  const int64_t products = rows * outs * inner;
  if (num_threads == 1 && rows <= kRowsOfTile) return cut;
  if (products < kWorthSharing) return cut;
  cut.row_tiles = (rows + kRowsOfTile - 1) / kRowsOfTile;
  const int64_t rows_each = (rows + cut.row_tiles - 1) / cut.row_tiles;
  const int64_t filling = rounded_up(kTileProducts / std::max<int64_t>(1, rows_each * inner), kOutStep);
  const int64_t a_thread = rounded_up((outs + num_threads - 1) / num_threads, kOutStep);
  const int64_t most = rounded_up(kTileWeights / std::max<int64_t>(1, inner), kOutStep);
  cut.outs_each = std::min({std::max(filling, kOutStep), std::max(most, kOutStep), a_thread});
  cut.out_tiles = std::max<int64_t>(1, (outs + cut.outs_each - 1) / cut.outs_each);
  return cut;
}

void run_linear(const LinearArgs& args, Range rows, Range outs, ThreadScratch& scratch) {
  LinearArgs part{.x = args.x.row_range(rows.begin, rows.size()),
                  .w = args.w.row_range(outs.begin, outs.size()),
                  .out = args.out.row_range(rows.begin, rows.size()).col_range(outs.begin, outs.size()),
                  .inputs = args.inputs};
  if (!args.bias.empty()) part.bias = args.bias.row_range(outs.begin, outs.size());
  if (part.w.is_coded()) {
    vector_linear_coded(part, scratch.decoded);
  } else {
    vector_linear(part);
  }
  add_bias(part);
}

void grouped_ffn_on(Crew& crew, const GroupedFfnArgs& args, std::vector<ExpertTile>& tiles) {
  check_expert_start(args);
  const auto run = [&](std::span<const WeightView> weights, auto&& tile_of) {
    cut_experts(args, weights, crew.threads.size(), tiles);
    crew.for_each(std::ssize(tiles), [&](int64_t at, ThreadScratch& scratch) {
      tile_of(args, tiles[static_cast<size_t>(at)], scratch);
    });
  };
  run(args.gate, gate_and_up);
  run(args.down, down);
}

}  // namespace lockstep::kernels::cpu
