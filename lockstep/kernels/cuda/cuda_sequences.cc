// Attention, its cache, and layers that keep a state.
#include <algorithm>
#include <utility>

#include "lockstep/kernels/cuda/cuda_ops.h"

namespace lockstep::kernels::cuda {

// Rows of `out` that no sequence has are zero. Whether there are none.
bool CudaKernels::zero_padding(const Mat& out, std::span<const PagedSequence> sequences) {
  int64_t covered = 0;
  for (const PagedSequence& sequence : sequences) covered += sequence.num_rows;
  recorder_.note(covered);
  if (covered < out.rows && !recorder_.skips_launches()) zero_rows(out, stream());
  return covered >= out.rows;
}

void CudaKernels::attend(Attention args, const QueryRows& rows) {
  const int64_t blocks = static_cast<int64_t>(rows.single.size()) *
                         ceil_div(args.first_in_group + args.num_heads, args.group) *
                         head_tiles_of_group(args.group);
  attend_rows(args, rows.single, rows.tables, num_splits(rows.max_single_tokens, blocks));
  attend_rows(args, rows.chunked, rows.tables, 1);
}

void CudaKernels::attend_rows(Attention args, std::span<const AttentionRow> rows,
                              std::span<const int32_t> tables, int splits) {
  if (rows.empty()) return;
  LOCKSTEP_CHECK_LE(args.value, kMaxValue);
  LOCKSTEP_CHECK_LE(args.key, kMaxKey);
  uploads_.make_room({rows.size_bytes(), tables.size_bytes()});
  args.rows = uploads_.put(rows);
  args.num_rows = static_cast<int>(rows.size());
  args.tables = tables.empty() ? nullptr : uploads_.put(tables);
  args.num_splits = splits;
  args.partial = partial_.view({attention_scratch_floats(args.num_rows, args.num_heads, args.value, splits)})
                     .as<float>();
  recorder_.note(args.rows, args.num_rows, args.tables, args.num_splits, args.partial);
  if (!recorder_.skips_launches()) attention(args, stream());
}

// On tensor cores, whose queries are rounded.
bool CudaKernels::fits_tiles(const GqaArgs& args) const {
  const auto whole_pairs = [](const TensorView& cube) {
    return reinterpret_cast<uintptr_t>(cube.data) % 8 == 0 && cube.stride[0] % 2 == 0 &&
           cube.stride[1] % 2 == 0;
  };
  const auto whole_pieces = [](const TensorView& cache) {
    return cache.dtype == DType::kBF16 && is_aligned16(cache.data) && cache.stride[0] % 8 == 0;
  };
  return inputs_ == ProductInputs::kRounded && args.sinks.empty() &&
         attention_fits_tiles(args.out.shape[2], static_cast<int>(args.q.shape[1]), args.group,
                              args.first_in_group, args.window) &&
         whole_pairs(args.q) && whole_pairs(args.out) && whole_pieces(args.k) && whole_pieces(args.v);
}

void* CudaKernels::rounded_for_attention(const GqaArgs& args, bool covers_all) {
  const int64_t rows = args.out.shape[0], cols = rows_of_heads(args.out).cols;
  if (!covers_all || (rows > 1 && args.out.stride[0] != cols)) return nullptr;
  return rounded_.view(DType::kBF16, {rows, cols}).data;
}

void CudaKernels::attention_left_rounded(const GqaArgs& args, int64_t alone) {
  rounded_from_ = {view_of(args.out.data, DType::kF32, {args.out.shape[0], rows_of_heads(args.out).cols}),
                   ProductInputs::kRounded, gpu_.num_host_writes(), alone};
}

void CudaKernels::gqa(const GqaArgs& args) { attend_cached(args, args.sequences); }

void CudaKernels::attend_in_turn(const AttendArgs& args) {
  attention_rows(args.rows);
  attend_cached(args.gqa, args.rows.sequences);
}

void CudaKernels::attend_cached(const GqaArgs& args, std::span<const PagedSequence> written) {
  cpu::check(args);
  gpu_.use();
  rounded_from_ = slots_from_ = {};
  const RoundedFrom queries = std::exchange(queries_from_, {});
  recorder_.note(args.q, args.k, args.v, args.page_size, args.window, args.scale, args.sinks, args.out);
  const bool covers_all = zero_padding(rows_of_heads(args.out), args.sequences);
  Attention attention = attention_of(args);
  if (fits_tiles(args)) {
    attention.rounded = rounded_for_attention(args, covers_all);
    const bool alone = attention.rounded != nullptr && args.out_readers == Readers::kNextRounds;
    attend_tiles(attention, query_tiles(args.sequences, written, args.page_size, rows_of_tile(args.group)),
                 args, queries, alone);
    if (attention.rounded != nullptr && !recorder_.skips_launches())
      attention_left_rounded(args, alone ? args.out.shape[0] : 0);
  } else {
    restore_queries(queries, args);
    attend(attention, query_rows(args.sequences, args.page_size));
  }
  end("gqa");
}

// Single rows of all sequences, one of each, whose heads are turned whole.
bool CudaKernels::fits_attend(const AttendArgs& args) const {
  const AttentionRowsArgs& rows = args.rows;
  const GqaArgs& gqa = args.gqa;
  const auto fours = [](const TensorView& x) { return is_aligned16(x.data) && x.stride[0] % 4 == 0; };
  return !rows.sequences.empty() && one_row_a_sequence(rows.sequences) && fits_tiles(gqa) &&
         gqa.sequences.size() == rows.sequences.size() &&
         gqa.sequences[0].first_row == rows.sequences[0].first_row && rows.q.rows() == rows.k.rows() &&
         rows.head_dim == gqa.out.shape[2] && rows.dim == rows.head_dim && rows.keys.data == gqa.k.data &&
         rows.values.data == gqa.v.data && rows.q_norm.dtype == rows.k_norm.dtype &&
         rows.q_norm.empty() == rows.k_norm.empty() && fours(rows.q) && rows.query_stride % 4 == 0 &&
         fours(rows.k) && fours(rows.v) && rows.v.cols() == rows.k.cols();
}

void CudaKernels::attend(const AttendArgs& args) {
  cpu::check(args);
  if (!fits_attend(args)) return attend_in_turn(args);
  const GqaArgs& gqa = args.gqa;
  const QueryTiles tiles = query_tiles(gqa.sequences, args.rows.sequences, gqa.page_size, 1);
  const int64_t kv_heads = gqa.q.shape[1] / gqa.group;
  const int splits =
      cluster_splits(tiles.max_single_tokens, static_cast<int64_t>(tiles.single.size()) * kv_heads);
  if (splits == 0) return attend_in_turn(args);
  gpu_.use();
  const std::span<const int32_t> positions = args.rows.q_positions;
  uploads_.make_room({positions.size_bytes(), tiles.single.size() * sizeof(AttentionTile),
                      tiles.tables.size() * sizeof(int32_t)});
  Attention attention = attention_of(gqa);
  attention.tiles = uploads_.put(std::span<const AttentionTile>(tiles.single));
  attention.tables = uploads_.put(std::span<const int32_t>(tiles.tables));
  attention.num_rows = static_cast<int>(tiles.single.size());
  attention.num_splits = splits;
  attention.split_width = static_cast<int>(widest_split(tiles.max_single_tokens, splits));
  AttentionRows rows = attention_rows_of(args.rows);
  rows.q_positions = rows.k_positions = uploads_.put(positions);
  const bool launches =
      begins(args, attention.tiles, attention.tables, attention.num_rows, splits, attention.split_width,
             rows.q_positions, gqa.q, gqa.k, gqa.v, gqa.page_size, gqa.scale, gqa.out, args.rows.k,
             args.rows.v, args.rows.q_norm, args.rows.k_norm, args.rows.eps, args.rows.cos, args.rows.sin);
  attention.rounded = rounded_for_attention(gqa, zero_padding(rows_of_heads(gqa.out), gqa.sequences));
  if (!launches) return;
  cuda::attend_rows(attention, rows, stream());
  if (attention.rounded != nullptr) attention_left_rounded(gqa, 0);
  end("attend");
}

const TensorMap& CudaKernels::map_of_cache(const TensorView& cache, int page_size) {
  return maps_.of({.data = cache.data,
                   .rows = cache.rows(),
                   .cols = cache.cols(),
                   .stride = cache.stride[0],
                   .box_rows = page_size});
}

// Maps of chunks' queries, which are rounded unless attention_rows() has left them so, and of the caches.
ChunkMaps CudaKernels::chunk_maps(const GqaArgs& args, const RoundedFrom& queries) {
  const int64_t rows = args.q.shape[0], heads = args.q.shape[1], width = args.q.shape[2];
  void* rounded = queries_.view(DType::kBF16, {rows, heads * width}).data;
  if (!is_still(queries, args.q)) heads_to_bf16(heads_of(args.q), rounded, stream());
  return {.queries = make_tensor_map(MappedHeads{.data = rounded,
                                                 .rows = rows,
                                                 .heads = heads,
                                                 .width = width,
                                                 .box_rows = rows_of_tile(args.group),
                                                 .box_heads = args.group}),
          .keys = map_of_cache(args.k, args.page_size),
          .values = map_of_cache(args.v, args.page_size)};
}

// Where attention reads queries whole after all.
void CudaKernels::restore_queries(const RoundedFrom& queries, const GqaArgs& args) {
  if (queries.alone == 0 || !is_still(queries, args.q)) return;
  Heads heads = heads_of(args.q);
  heads.rows = queries.alone;
  heads_from_bf16(queries_.view({0}).data, heads, stream());
}

void CudaKernels::attend_tiles(Attention args, const QueryTiles& tiles, const GqaArgs& of,
                               const RoundedFrom& queries, bool alone) {
  const bool boxes = args.value == 128 && pages_fit_boxes(of.page_size) && args.scale > 0;
  if (!boxes) restore_queries(queries, of);
  for (const bool chunked : {false, true}) {
    const std::span<const AttentionTile> some = chunked ? tiles.chunked : tiles.single;
    if (some.empty()) continue;
    uploads_.make_room({some.size_bytes(), tiles.tables.size() * sizeof(int32_t)});
    args.tiles = uploads_.put(some);
    args.tables = uploads_.put(std::span<const int32_t>(tiles.tables));
    args.num_rows = static_cast<int>(some.size());
    args.chunked = chunked;
    args.num_splits = chunked ? 1
                              : num_splits(tiles.max_single_tokens,
                                           static_cast<int64_t>(some.size()) * (args.num_heads / args.group));
    args.partial =
        partial_.view({attention_scratch_floats(args.num_rows, args.num_heads, args.value, args.num_splits)})
            .as<float>();
    recorder_.note(args.tiles, args.num_rows, args.tables, args.num_splits, args.partial);
    if (recorder_.skips_launches()) continue;
    if (chunked && boxes) {
      if (alone) args.out = nullptr;
      attention_chunks(args, chunk_maps(of, queries), stream());
    } else {
      attention_tiles(args, stream());
    }
  }
}

void CudaKernels::mla_absorbed(const MlaAbsorbedArgs& args) {
  cpu::check(args);
  gpu_.use();
  rounded_from_ = slots_from_ = queries_from_ = {};
  recorder_.note(args.q, args.cache, args.page_size, args.scale, args.out);
  zero_padding(rows_of_heads(args.out), args.sequences);
  attend(attention_of(args), query_rows(args.sequences, args.page_size));
  end("mla_absorbed");
}

void CudaKernels::mla_expanded(const MlaExpandedArgs& args) {
  cpu::check(args);
  gpu_.use();
  rounded_from_ = slots_from_ = queries_from_ = {};
  recorder_.note(args.q, args.kv, args.k_rope, args.scale, args.out);
  QueryRows rows;
  const auto context = static_cast<int32_t>(args.kv.shape[0]), count = static_cast<int32_t>(args.q.shape[0]);
  for (int32_t row = 0; row < count; ++row) rows.chunked.push_back({row, context - count + row + 1, 0});
  attend(attention_of(args), rows);
  end("mla_expanded");
}

namespace {

// The first `width` values of every head, as gqa() is given them.
TensorView by_head(const TensorView& x, int64_t heads, int64_t width, int64_t head_stride) {
  TensorView cube = view_of(x.data, x.dtype, {x.rows(), heads, width});
  cube.stride = {x.stride[0], head_stride, 1};
  return cube;
}

// The first rows of queries, all of chunks: those of single rows behind them are read whole. 0 where it is
// not so simple.
int64_t rows_before_single(const AttentionRowsArgs& args) {
  if (args.q.rows() != args.k.rows()) return 0;
  int64_t first_single = args.q.rows(), end_of_chunks = 0;
  for (const PagedSequence& sequence : args.sequences) {
    if (sequence.num_rows == 1) first_single = std::min<int64_t>(first_single, sequence.first_row);
    if (sequence.num_rows > 1)
      end_of_chunks = std::max<int64_t>(end_of_chunks, sequence.first_row + sequence.num_rows);
  }
  return end_of_chunks <= first_single ? first_single : 0;
}

}  // namespace

// Heads that do not lie in whole warps go op by op.
void CudaKernels::attention_rows(const AttentionRowsArgs& args) {
  const bool fits = args.head_dim % kWarp == 0 && args.head_dim <= kWidestHead &&
                    args.dim % (2 * kWarp) == 0 && args.q_norm.dtype == args.k_norm.dtype &&
                    args.keys.dtype == args.values.dtype;
  if (!fits) return Kernels::attention_rows(args);
  const int32_t* q_positions = put(args, args.q_positions);
  const int32_t* k_positions = put(args, args.k_positions);
  const RowMoves moves = listed(store_moves(args.sequences, args.page_size));
  if (!begins(args, q_positions, k_positions, moves.listed, moves.count, args.q, args.k, args.v,
              args.head_dim, args.query_stride, args.q_norm, args.k_norm, args.eps, args.dim, args.cos,
              args.sin, args.keys, args.values))
    return;
  const auto whole_pairs = [](const TensorView& rows) {
    return reinterpret_cast<uintptr_t>(rows.data) % 8 == 0 && rows.stride[0] % 2 == 0;
  };
  const bool many = inputs_ == ProductInputs::kRounded && args.query_stride % 2 == 0 &&
                    fits_prompt_rows(args.q.rows(), args.head_dim, args.dim) && whole_pairs(args.q) &&
                    whole_pairs(args.k) && whole_pairs(args.v) && whole_pairs(args.cos) &&
                    whole_pairs(args.sin) && whole_pairs(args.keys) && whole_pairs(args.values);
  const int64_t num_heads = args.q.cols() / args.query_stride;
  AttentionRows rows = attention_rows_of(args);
  rows.q_positions = q_positions;
  rows.k_positions = k_positions;
  rows.moves = moves;
  if (many) {
    const int64_t alone = args.q_readers == Readers::kNextRounds ? rows_before_single(args) : 0;
    rows.q_whole_from = alone;
    rows.rounded_q = queries_.view(DType::kBF16, {args.q.rows(), num_heads * args.head_dim}).data;
    prompt_rows(rows, stream());
    queries_from_ = {by_head(args.q, num_heads, args.head_dim, args.query_stride), ProductInputs::kRounded,
                     gpu_.num_host_writes(), alone};
  } else {
    cuda::attention_rows(rows, stream());
  }
  end("attention_rows");
}

void CudaKernels::cache_write(const CacheWriteArgs& args) {
  cpu::check(args);
  const RowMoves moves = listed(store_moves(args.sequences, args.page_size));
  if (!begins(args, moves.listed, moves.count, args.x, args.cache)) return;
  store_rows(mat(args.x), moves, mat(args.cache), stream());
  end("cache_write");
}

void CudaKernels::cache_read(const CacheReadArgs& args) {
  cpu::check(args);
  const RowMoves moves = listed(load_moves(args.sequence, args.page_size));
  if (!begins(args, moves.listed, moves.count, args.cache, args.out)) return;
  load_rows(mat(args.cache), moves, mat(args.out), stream());
  end("cache_read");
}

void CudaKernels::rope(const RopeArgs& args) {
  const int32_t* positions = put(args, args.positions);
  if (!begins(args, positions, args.x, args.num_heads, args.head_stride, args.offset, args.dim, args.cos,
              args.sin))
    return;
  cuda::rope({.x = mat(args.x),
              .num_heads = args.num_heads,
              .head_stride = args.head_stride,
              .offset = args.offset,
              .dim = args.dim,
              .positions = positions,
              .cos = args.cos.as<float>(),
              .sin = args.sin.as<float>(),
              .table_stride = args.cos.stride[0],
              .half = args.pairing == RopePairing::kHalf},
             stream());
  end("rope");
}

void CudaKernels::causal_conv(const CausalConvArgs& args) {
  cpu::check(args);
  gpu_.use();
  zero_padding(mat(args.out), args.sequences);
  const auto sequences = state_sequences(args.sequences);
  const StateSequence* listed = uploads_.put_alone(std::span<const StateSequence>(sequences));
  if (!begins(args, listed, sequences.size(), args.x, args.weight, args.state, args.out)) return;
  cuda::causal_conv({.x = mat(args.x),
                     .weight = mat(args.weight),
                     .out = mat(args.out),
                     .state = args.state.as<float>(),
                     .sequences = listed,
                     .num_sequences = static_cast<int>(sequences.size())},
                    stream());
  end("causal_conv");
}

void CudaKernels::l2_norm(const L2NormArgs& args) {
  if (!begins(args, args.x, args.eps, args.scale)) return;
  cuda::l2_norm(heads_of(args.x), args.eps, args.scale, stream());
  end("l2_norm");
}

void CudaKernels::delta_gates(const DeltaGatesArgs& args) {
  if (!begins(args, args.a, args.b, args.a_log, args.dt_bias, args.decay, args.beta)) return;
  cuda::delta_gates({.a = mat(args.a),
                     .b = mat(args.b),
                     .decay = mat(args.decay),
                     .beta = mat(args.beta),
                     .a_log = args.a_log.data,
                     .dt_bias = args.dt_bias.data,
                     .a_log_num = num_of(args.a_log),
                     .dt_bias_num = num_of(args.dt_bias)},
                    stream());
  end("delta_gates");
}

void CudaKernels::gated_delta(const GatedDeltaArgs& args) {
  cpu::check(args);
  gpu_.use();
  zero_padding(rows_of_heads(args.out), args.sequences);
  const auto sequences = state_sequences(args.sequences);
  const StateSequence* listed = uploads_.put_alone(std::span<const StateSequence>(sequences));
  if (!begins(args, listed, sequences.size(), args.q, args.k, args.v, args.decay, args.beta, args.state,
              args.out))
    return;
  cuda::gated_delta({.q = heads_of(args.q),
                     .k = heads_of(args.k),
                     .v = heads_of(args.v),
                     .out = heads_of(args.out),
                     .decay = mat(args.decay),
                     .beta = mat(args.beta),
                     .group = args.group,
                     .first_in_group = args.first_in_group,
                     .state = args.state.as<float>(),
                     .sequences = listed,
                     .num_sequences = static_cast<int>(sequences.size())},
                    stream());
  end("gated_delta");
}

}  // namespace lockstep::kernels::cuda
