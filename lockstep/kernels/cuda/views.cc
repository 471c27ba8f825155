#include "lockstep/kernels/cuda/views.h"

#include <algorithm>
#include <utility>

namespace lockstep::kernels::cuda {
namespace {

int32_t cache_row(const PagedSequence& sequence, int page_size, int32_t token) {
  return sequence.page_table[static_cast<size_t>(token / page_size)] * page_size + token % page_size;
}

int32_t narrow(int64_t row) {
  LOCKSTEP_CHECK_LE(row, int64_t{INT32_MAX});
  return static_cast<int32_t>(row);
}

}  // namespace

Num num_of(const TensorView& view) { return view.dtype == DType::kBF16 ? Num::kBF16 : Num::kF32; }

Mat mat(const TensorView& view) {
  return {.data = view.data,
          .rows = view.rows(),
          .cols = view.cols(),
          .stride = view.stride[0],
          .num = num_of(view)};
}

Sources sources_of(std::span<const TensorView> views) {
  LOCKSTEP_CHECK_LE(views.size(), static_cast<size_t>(kMaxSources));
  Sources sources;
  for (const TensorView& view : views) {
    sources.data[sources.count] = view.as<float>();
    sources.stride[sources.count++] = view.stride[0];
  }
  return sources;
}

bool is_aligned16(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

Mat rows_of_heads(const TensorView& cube) {
  LOCKSTEP_CHECK(cube.shape[1] <= 1 || cube.stride[1] == cube.shape[2], "heads {} apart, {} wide",
                 cube.stride[1], cube.shape[2]);
  return {.data = cube.data,
          .rows = cube.shape[0],
          .cols = cube.shape[1] * cube.shape[2],
          .stride = cube.stride[0]};
}

const TensorView& numbers_of(const WeightView& weight) {
  LOCKSTEP_CHECK(!weight.is_coded(), "{} codes of {} on a device", weight.rows() * weight.cols(),
                 name_of(weight.scheme.element));
  return weight.plain;
}

std::vector<const void*> pointers_of(std::span<const WeightView> weights) {
  std::vector<const void*> pointers;
  const TensorView first = weights.empty() ? TensorView() : numbers_of(weights.front());
  for (const WeightView& each : weights) {
    const TensorView& weight = numbers_of(each);
    LOCKSTEP_CHECK_EQ(weight.stride[0], first.stride[0]);  // one number for all in the kernels
    LOCKSTEP_CHECK_EQ(static_cast<int>(weight.dtype), static_cast<int>(first.dtype));
    pointers.push_back(weight.data);
  }
  return pointers;
}

namespace {

std::pair<uintptr_t, uintptr_t> extent(const TensorView& view) {
  const auto begin = reinterpret_cast<uintptr_t>(view.data);
  int64_t last = 0;
  for (size_t dim = 0; dim < view.num_dims; ++dim)
    last += std::max<int64_t>(view.shape[dim] - 1, 0) * view.stride[dim];
  return {begin, begin + static_cast<uintptr_t>(last + 1) * size_of(view.dtype)};
}

}  // namespace

bool overlap(const TensorView& a, const TensorView& b) {
  const auto [a_begin, a_end] = extent(a);
  const auto [b_begin, b_end] = extent(b);
  return a_begin < b_end && b_begin < a_end;
}

Gate gate_of(const Gating& gating) { return {gating.limit, gating.alpha, gating.up_shift}; }

ExpertBiases biases_of(const GroupedFfnArgs& args) {
  ExpertBiases biases;
  const auto pointers = [&](std::span<const TensorView> views) {
    std::vector<const void*> found;
    for (const TensorView& bias : views) {
      if (!bias.empty()) biases.num = num_of(bias);
      found.push_back(bias.empty() ? nullptr : bias.data);
    }
    return found;
  };
  biases.gate = pointers(args.gate_bias);
  biases.up = pointers(args.up_bias);
  biases.down = pointers(args.down_bias);
  return biases;
}

Route route_of(const RouteArgs& args, const uint8_t* valid) {
  return {.logits = mat(args.logits),
          .bias = args.bias.empty() ? nullptr : args.bias.as<float>(),
          .valid = valid,
          .top_k = args.top_k,
          .num_groups = args.num_groups,
          .top_groups = args.top_groups,
          .sigmoid = args.scoring == Scoring::kSigmoid,
          .normalised = args.weights == RouteArgs::Weights::kNormalised,
          .groups_by_best = args.group_score == RouteArgs::GroupScore::kBest,
          .scale = args.scale,
          .expert_idx = args.expert_idx.as<int32_t>(),
          .idx_stride = args.expert_idx.stride[0],
          .weight = mat(args.weight)};
}

Heads heads_of(const TensorView& cube) {
  return {.data = cube.as<float>(),
          .rows = cube.shape[0],
          .row_stride = cube.stride[0],
          .head_stride = cube.stride[1],
          .heads = static_cast<int>(cube.shape[1]),
          .width = static_cast<int>(cube.shape[2])};
}

std::vector<StateSequence> state_sequences(std::span<const PagedSequence> sequences) {
  std::vector<StateSequence> found;
  for (const PagedSequence& sequence : sequences)
    if (sequence.num_rows > 0)
      found.push_back({sequence.first_row, sequence.num_rows, sequence.slot, sequence.starts() ? 1 : 0});
  return found;
}

MoveList moves_of(std::span<const RowPiece> pieces) {
  MoveList list;
  for (const RowPiece& piece : pieces) list.moves.count += piece.num_rows;
  if (pieces.size() == 1 && pieces[0].source == 0) {
    list.moves.first = pieces[0].src_row;
    list.moves.first_out = pieces[0].dst_row;
    return list;
  }
  for (const RowPiece& piece : pieces)
    for (int64_t row = 0; row < piece.num_rows; ++row)
      list.listed.push_back({piece.source, narrow(piece.src_row + row), narrow(piece.dst_row + row)});
  return list;
}

std::vector<RowMove> store_moves(std::span<const PagedSequence> sequences, int page_size) {
  std::vector<RowMove> moves;
  for (const PagedSequence& sequence : sequences)
    for (int32_t row = 0; row < sequence.num_rows; ++row)
      moves.push_back({0, sequence.first_row + row,
                       cache_row(sequence, page_size, sequence.context - sequence.num_rows + row)});
  return moves;
}

std::vector<RowMove> load_moves(const PagedSequence& sequence, int page_size) {
  std::vector<RowMove> moves;
  for (int32_t token = 0; token < sequence.context; ++token)
    moves.push_back({0, cache_row(sequence, page_size, token), token});
  return moves;
}

namespace {

// Where the sequence's pages begin in `tables`, behind which they are added.
int32_t add_table(const PagedSequence& sequence, int page_size, std::vector<int32_t>& tables) {
  const auto table = static_cast<int32_t>(tables.size());
  const auto pages = (static_cast<size_t>(sequence.context) + static_cast<size_t>(page_size) - 1) /
                     static_cast<size_t>(page_size);
  tables.insert(tables.end(), sequence.page_table.begin(),
                sequence.page_table.begin() + static_cast<std::ptrdiff_t>(pages));
  return table;
}

}  // namespace

QueryRows query_rows(std::span<const PagedSequence> sequences, int page_size) {
  QueryRows found;
  for (const PagedSequence& sequence : sequences) {
    const int32_t table = add_table(sequence, page_size, found.tables);
    auto& rows = sequence.num_rows == 1 ? found.single : found.chunked;
    for (int32_t row = 0; row < sequence.num_rows; ++row)
      rows.push_back({sequence.first_row + row, sequence.context - sequence.num_rows + row + 1, table});
    if (sequence.num_rows == 1)
      found.max_single_tokens = std::max(found.max_single_tokens, int64_t{sequence.context});
  }
  return found;
}

namespace {

// Which tokens a step writes, by the page table: a sequence may have several entries.
class FreshTokens {
 public:
  explicit FreshTokens(std::span<const PagedSequence> written) {
    for (const PagedSequence& sequence : written)
      if (sequence.num_rows > 0) first_.push_back({table_of(sequence), sequence.context - sequence.num_rows});
    std::sort(first_.begin(), first_.end());
  }
  int32_t first_of(const PagedSequence& sequence) const {
    const int32_t own = sequence.context - sequence.num_rows;
    const First from{table_of(sequence), 0};
    const auto found = std::lower_bound(first_.begin(), first_.end(), from);
    return found == first_.end() || found->first != from.first ? own : std::min(own, found->second);
  }
  bool one_each() const {
    return std::adjacent_find(first_.begin(), first_.end(), [](const First& a, const First& b) {
             return a.first == b.first;
           }) == first_.end();
  }

 private:
  using First = std::pair<uintptr_t, int32_t>;
  static uintptr_t table_of(const PagedSequence& sequence) {
    return reinterpret_cast<uintptr_t>(sequence.page_table.data());
  }
  std::vector<First> first_;  // in ascending order: of a table the earliest token comes first
};

}  // namespace

bool one_row_a_sequence(std::span<const PagedSequence> sequences) {
  return std::all_of(sequences.begin(), sequences.end(),
                     [](const PagedSequence& sequence) { return sequence.num_rows == 1; }) &&
         FreshTokens(sequences).one_each();
}

// The longest first: they take most time.
QueryTiles query_tiles(std::span<const PagedSequence> sequences, std::span<const PagedSequence> written,
                       int page_size, int rows_of_tile) {
  QueryTiles found;
  const FreshTokens fresh(written);
  for (const PagedSequence& sequence : sequences) {
    const int32_t table = add_table(sequence, page_size, found.tables);
    const int32_t before = sequence.context - sequence.num_rows;
    if (sequence.num_rows == 1) {
      found.single.push_back({sequence.first_row, 1, sequence.context, table, fresh.first_of(sequence)});
      found.max_single_tokens = std::max(found.max_single_tokens, int64_t{sequence.context});
      continue;
    }
    for (int32_t row = 0; row < sequence.num_rows; row += rows_of_tile)
      found.chunked.push_back({sequence.first_row + row, std::min(rows_of_tile, sequence.num_rows - row),
                               before + row + 1, table, fresh.first_of(sequence)});
  }
  std::stable_sort(found.chunked.begin(), found.chunked.end(),
                   [](const AttentionTile& a, const AttentionTile& b) { return a.tokens > b.tokens; });
  return found;
}

AttentionRows attention_rows_of(const AttentionRowsArgs& args) {
  return {.q = mat(args.q),
          .k = mat(args.k),
          .v = mat(args.v),
          .head_dim = args.head_dim,
          .query_stride = args.query_stride,
          .num_heads = static_cast<int>(args.q.cols() / args.query_stride),
          .num_kv_heads = static_cast<int>(args.k.cols() / args.head_dim),
          .q_norm = args.q_norm.empty() ? nullptr : args.q_norm.data,
          .k_norm = args.k_norm.empty() ? nullptr : args.k_norm.data,
          .norm_num = num_of(args.q_norm),
          .eps = args.eps,
          .dim = args.dim,
          .cos = args.cos.as<float>(),
          .sin = args.sin.as<float>(),
          .table_stride = args.cos.stride[0],
          .keys = mat(args.keys),
          .values = mat(args.values)};
}

}  // namespace lockstep::kernels::cuda
