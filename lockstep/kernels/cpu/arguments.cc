#include "lockstep/kernels/cpu/arguments.h"

#include <vector>

namespace lockstep::kernels::cpu {
namespace {

void check_dims(const TensorView& view, int num_dims) {
  LOCKSTEP_CHECK_EQ(static_cast<int>(view.num_dims), num_dims);
  for (size_t i = 0; i < view.num_dims; ++i) LOCKSTEP_CHECK_GE(view.shape[i], 0);
  if (view.num_elements() == 0) return;
  LOCKSTEP_CHECK(view.data != nullptr, "{} elements without memory", view.num_elements());
  LOCKSTEP_CHECK_EQ(view.stride[view.num_dims - size_t{1}], 1);
}

// Rows may lie apart but not on each other.
void check_matrix(const TensorView& view) {
  check_dims(view, 2);
  if (view.shape[0] > 1) LOCKSTEP_CHECK_GE(view.stride[0], view.shape[1]);
}

void check_f32_matrix(const TensorView& view) {
  check_matrix(view);
  LOCKSTEP_CHECK(view.dtype == DType::kF32, "an activation is f32, this one is {}", name_of(view.dtype));
}

// f32, or what a device chose for them.
void check_expert_outputs(const TensorView& view) {
  check_matrix(view);
  LOCKSTEP_CHECK(view.dtype == DType::kF32 || view.dtype == DType::kBF16,
                 "outputs of experts are f32 or bf16, these are {}", name_of(view.dtype));
}

void check_f32_cube(const TensorView& view) {
  check_dims(view, 3);
  LOCKSTEP_CHECK(view.dtype == DType::kF32, "an activation is f32, this one is {}", name_of(view.dtype));
  if (view.shape[1] > 1) LOCKSTEP_CHECK_GE(view.stride[1], view.shape[2]);
}

void check_weight_dtype(const TensorView& view) {
  LOCKSTEP_CHECK(view.dtype == DType::kF32 || view.dtype == DType::kBF16,
                 "a weight is f32 or bf16, this one is {}", name_of(view.dtype));
}

void check_plain(const TensorView& view) {
  check_matrix(view);
  check_weight_dtype(view);
}

void check_weight(const WeightView& weight) {
  if (!weight.is_coded()) {
    check_plain(weight.plain);
    LOCKSTEP_CHECK_EQ(weight.plain.shape[0], weight.num_rows);
    LOCKSTEP_CHECK_EQ(weight.plain.shape[1], weight.num_cols);
    return;
  }
  for (const int64_t number : {weight.num_rows, weight.num_cols, weight.first_row, weight.first_col})
    LOCKSTEP_CHECK_GE(number, 0);
  LOCKSTEP_CHECK(weight.scheme.block_rows >= 1 && weight.scheme.block_cols >= 1, "blocks of {} x {}",
                 weight.scheme.block_rows, weight.scheme.block_cols);
  LOCKSTEP_CHECK(
      (weight.first_col + weight.num_cols) * bits_of(weight.scheme.element) <= weight.row_bytes * 8,
      "columns {} + {} of {} in rows of {} bytes", weight.first_col, weight.num_cols,
      name_of(weight.scheme.element), weight.row_bytes);
  LOCKSTEP_CHECK(weight.scheme.scale == QuantScheme::Scale::kNone || weight.scales != nullptr,
                 "{} columns without scales", weight.num_cols);
}

void check_same_shape(const TensorView& a, const TensorView& b) {
  LOCKSTEP_CHECK_EQ(a.shape[0], b.shape[0]);
  LOCKSTEP_CHECK_EQ(a.shape[1], b.shape[1]);
}

void check_product(const TensorView& x, const WeightView& w, int64_t inner, int64_t outs,
                   const TensorView& out) {
  check_f32_matrix(x);
  check_weight(w);
  check_f32_matrix(out);
  LOCKSTEP_CHECK_EQ(x.shape[1], inner);
  LOCKSTEP_CHECK_EQ(out.shape[0], x.shape[0]);
  LOCKSTEP_CHECK_EQ(out.shape[1], outs);
}

void check_sequence(const PagedSequence& sequence, int page_size, int64_t cache_rows) {
  LOCKSTEP_CHECK_GE(sequence.num_rows, 0);
  LOCKSTEP_CHECK_LE(sequence.num_rows, sequence.context);
  const int64_t num_pages = (int64_t{sequence.context} + page_size - 1) / page_size;
  LOCKSTEP_CHECK_LE(num_pages, static_cast<int64_t>(sequence.page_table.size()));
  for (size_t i = 0; i < static_cast<size_t>(num_pages); ++i) {
    const int64_t page = sequence.page_table[i];
    LOCKSTEP_CHECK(page >= 0 && (page + 1) * page_size <= cache_rows,
                   "page {} of {} tokens in a cache of {} rows", page, page_size, cache_rows);
  }
}

void check_sequences(std::span<const PagedSequence> sequences, int page_size, int64_t cache_rows,
                     int64_t batch_rows) {
  LOCKSTEP_CHECK_GE(page_size, 1);
  for (const PagedSequence& sequence : sequences) {
    check_sequence(sequence, page_size, cache_rows);
    LOCKSTEP_CHECK_GE(sequence.first_row, 0);
    LOCKSTEP_CHECK_LE(int64_t{sequence.first_row} + sequence.num_rows, batch_rows);
  }
}

void check_f32_state(const TensorView& view, int num_dims) {
  check_dims(view, num_dims);
  LOCKSTEP_CHECK(view.dtype == DType::kF32, "a state is f32, this one is {}", name_of(view.dtype));
}

// Sequences that keep their state in one of `slots` slots, two of them never in the same.
void check_slots(std::span<const PagedSequence> sequences, int64_t slots, int64_t batch_rows) {
  std::vector<uint8_t> taken(static_cast<size_t>(slots), 0);
  for (const PagedSequence& sequence : sequences) {
    LOCKSTEP_CHECK_GE(sequence.num_rows, 0);
    LOCKSTEP_CHECK_LE(sequence.num_rows, sequence.context);
    LOCKSTEP_CHECK_GE(sequence.first_row, 0);
    LOCKSTEP_CHECK_LE(int64_t{sequence.first_row} + sequence.num_rows, batch_rows);
    LOCKSTEP_CHECK_GE(sequence.slot, 0);
    LOCKSTEP_CHECK_LT(int64_t{sequence.slot}, slots);
    LOCKSTEP_CHECK(taken[static_cast<size_t>(sequence.slot)]++ == 0, "slot {} is taken twice", sequence.slot);
  }
}

void check_head_vector(const TensorView& view, int64_t heads) {
  check_dims(view, 1);
  check_weight_dtype(view);
  LOCKSTEP_CHECK_EQ(view.shape[0], heads);
}

void check_piece(const RowPiece& piece, const TensorView& from, const TensorView& to) {
  LOCKSTEP_CHECK_EQ(from.shape[1], to.shape[1]);
  LOCKSTEP_CHECK(piece.src_row >= 0 && piece.num_rows >= 0 && piece.src_row + piece.num_rows <= from.shape[0],
                 "rows {} + {} of {}", piece.src_row, piece.num_rows, from.shape[0]);
  LOCKSTEP_CHECK(piece.dst_row >= 0 && piece.dst_row + piece.num_rows <= to.shape[0], "rows {} + {} into {}",
                 piece.dst_row, piece.num_rows, to.shape[0]);
}

}  // namespace

void check(const EmbedArgs& args) {
  check_weight(args.table);
  check_f32_matrix(args.out);
  LOCKSTEP_CHECK_EQ(args.out.shape[0], static_cast<int64_t>(args.token_ids.size()));
  LOCKSTEP_CHECK_EQ(args.out.shape[1], args.table.num_cols);
}

void check(const RmsNormArgs& args) {
  check_f32_matrix(args.x);
  check_f32_matrix(args.out);
  check_same_shape(args.x, args.out);
  check_dims(args.weight, 1);
  check_weight_dtype(args.weight);
  LOCKSTEP_CHECK_EQ(args.weight.shape[0], args.x.shape[1]);
}

void check(const AddArgs& args) {
  check_f32_matrix(args.x);
  check_f32_matrix(args.y);
  check_same_shape(args.x, args.y);
}

void check(const LinearArgs& args) {
  check_product(args.x, args.w, args.w.num_cols, args.w.num_rows, args.out);
  if (args.bias.empty()) return;
  check_dims(args.bias, 1);
  check_weight_dtype(args.bias);
  LOCKSTEP_CHECK_EQ(args.bias.shape[0], args.w.num_rows);
}

void check(const MatmulArgs& args) {
  check_product(args.x, args.w, args.w.num_rows, args.w.num_cols, args.out);
}

void check(const SiluMulArgs& args) {
  check_f32_matrix(args.gate);
  check_f32_matrix(args.up);
  check_f32_matrix(args.out);
  check_same_shape(args.gate, args.up);
  check_same_shape(args.gate, args.out);
  LOCKSTEP_CHECK(args.gating.limit > 0, "a limit of {}", args.gating.limit);
}

void check(const SigmoidMulArgs& args) {
  check_f32_matrix(args.x);
  check_f32_matrix(args.gate);
  LOCKSTEP_CHECK_EQ(args.gate.shape[0], args.x.shape[0]);
  if (args.gate.shape[1] != 1) LOCKSTEP_CHECK_EQ(args.gate.shape[1], args.x.shape[1]);
}

void check(const RopeArgs& args) {
  check_f32_matrix(args.x);
  check_f32_matrix(args.cos);
  check_f32_matrix(args.sin);
  check_same_shape(args.cos, args.sin);
  LOCKSTEP_CHECK_EQ(args.x.shape[0], static_cast<int64_t>(args.positions.size()));
  LOCKSTEP_CHECK(args.dim >= 0 && args.dim % 2 == 0, "dim is {}", args.dim);
  LOCKSTEP_CHECK_EQ(args.cos.shape[1], int64_t{args.dim} / 2);
  LOCKSTEP_CHECK_GE(args.num_heads, 0);
  LOCKSTEP_CHECK_GE(args.offset, 0);
  if (args.num_heads > 0) {
    const int64_t end_of_last = (int64_t{args.num_heads} - 1) * args.head_stride + args.offset + args.dim;
    LOCKSTEP_CHECK_LE(end_of_last, args.x.shape[1]);
  }
  if (args.num_heads > 1) LOCKSTEP_CHECK_GE(args.head_stride, args.dim);
  for (const int32_t position : args.positions) {
    LOCKSTEP_CHECK_GE(position, 0);
    LOCKSTEP_CHECK_LT(int64_t{position}, args.cos.shape[0]);
  }
}

void check(const RouteArgs& args) {
  check_f32_matrix(args.logits);
  const int64_t rows = args.logits.shape[0];
  const int64_t num_experts = args.logits.shape[1];
  LOCKSTEP_CHECK_EQ(rows, static_cast<int64_t>(args.valid.size()));
  if (!args.bias.empty()) {
    check_dims(args.bias, 1);
    LOCKSTEP_CHECK(args.bias.dtype == DType::kF32, "the bias is f32, this one is {}",
                   name_of(args.bias.dtype));
    LOCKSTEP_CHECK_EQ(args.bias.shape[0], num_experts);
  }
  LOCKSTEP_CHECK_GE(args.num_groups, 1);
  LOCKSTEP_CHECK(num_experts % args.num_groups == 0, "{} experts in {} groups", num_experts, args.num_groups);
  LOCKSTEP_CHECK(args.top_groups >= 1 && args.top_groups <= args.num_groups, "top_groups {} of {}",
                 args.top_groups, args.num_groups);
  LOCKSTEP_CHECK_GE(args.top_k, 0);
  LOCKSTEP_CHECK_LE(int64_t{args.top_k}, num_experts / args.num_groups * args.top_groups);
  check_matrix(args.expert_idx);
  LOCKSTEP_CHECK(args.expert_idx.dtype == DType::kI32, "expert_idx is {}", name_of(args.expert_idx.dtype));
  check_f32_matrix(args.weight);
  check_same_shape(args.expert_idx, args.weight);
  LOCKSTEP_CHECK_EQ(args.weight.shape[0], rows);
  LOCKSTEP_CHECK_EQ(args.weight.shape[1], int64_t{args.top_k});
}

namespace {

void check_vector(const TensorView& view, int64_t size) {
  if (view.empty()) return;
  check_dims(view, 1);
  check_weight_dtype(view);
  LOCKSTEP_CHECK_EQ(view.shape[0], size);
}

void check_biases(const GroupedFfnArgs& args) {
  LOCKSTEP_CHECK_EQ(args.gate_bias.size(), args.up_bias.size());
  LOCKSTEP_CHECK_EQ(args.gate_bias.size(), args.down_bias.size());
  if (args.gate_bias.empty()) return;
  LOCKSTEP_CHECK_EQ(args.gate_bias.size(), args.gate.size());
  for (size_t e = 0; e < args.gate.size(); ++e) {
    check_vector(args.gate_bias[e], args.gate[e].rows());
    check_vector(args.up_bias[e], args.up[e].rows());
    check_vector(args.down_bias[e], args.down[e].rows());
  }
}

}  // namespace

void check(const GroupedFfnArgs& args) {
  check_f32_matrix(args.x);
  check_f32_matrix(args.scratch);
  check_expert_outputs(args.y);
  check_same_shape(args.x, args.y);
  LOCKSTEP_CHECK_EQ(args.scratch.shape[0], args.x.shape[0]);
  LOCKSTEP_CHECK_EQ(args.gate.size(), args.up.size());
  LOCKSTEP_CHECK_EQ(args.gate.size(), args.down.size());
  check_dims(args.expert_start, 1);
  LOCKSTEP_CHECK_EQ(static_cast<int64_t>(args.gate.size()) + 1, args.expert_start.shape[0]);
  for (size_t e = 0; e < args.gate.size(); ++e) {
    check_weight(args.gate[e]);
    check_weight(args.up[e]);
    check_weight(args.down[e]);
    LOCKSTEP_CHECK_EQ(args.up[e].num_rows, args.gate[e].num_rows);
    LOCKSTEP_CHECK_EQ(args.up[e].num_cols, args.gate[e].num_cols);
    LOCKSTEP_CHECK_EQ(args.scratch.shape[1], 2 * args.gate[e].num_rows);
    LOCKSTEP_CHECK_EQ(args.down[e].num_cols, args.gate[e].num_rows);
    LOCKSTEP_CHECK_EQ(args.gate[e].num_cols, args.x.shape[1]);
    LOCKSTEP_CHECK_EQ(args.down[e].num_rows, args.x.shape[1]);
  }
  check_biases(args);
}

void check(const CacheWriteArgs& args) {
  check_f32_matrix(args.x);
  check_plain(args.cache);
  LOCKSTEP_CHECK_EQ(args.x.shape[1], args.cache.shape[1]);
  check_sequences(args.sequences, args.page_size, args.cache.shape[0], args.x.shape[0]);
}

void check(const CacheReadArgs& args) {
  check_plain(args.cache);
  check_f32_matrix(args.out);
  LOCKSTEP_CHECK_GE(args.page_size, 1);
  check_sequence(args.sequence, args.page_size, args.cache.shape[0]);
  LOCKSTEP_CHECK_EQ(args.out.shape[0], int64_t{args.sequence.context});
  LOCKSTEP_CHECK_EQ(args.out.shape[1], args.cache.shape[1]);
}

void check(const MlaAbsorbedArgs& args) {
  check_f32_cube(args.q);
  check_f32_cube(args.out);
  check_plain(args.cache);
  LOCKSTEP_CHECK_EQ(args.q.shape[2], args.cache.shape[1]);
  LOCKSTEP_CHECK_LE(int64_t{args.latent}, args.cache.shape[1]);
  LOCKSTEP_CHECK_EQ(args.out.shape[2], int64_t{args.latent});
  check_same_shape(args.q, args.out);
  check_sequences(args.sequences, args.page_size, args.cache.shape[0], args.q.shape[0]);
}

void check(const MlaExpandedArgs& args) {
  check_f32_cube(args.q);
  check_f32_cube(args.kv);
  check_f32_cube(args.out);
  check_f32_matrix(args.k_rope);
  check_same_shape(args.q, args.out);
  LOCKSTEP_CHECK_LE(args.q.shape[0], args.kv.shape[0]);
  LOCKSTEP_CHECK_EQ(args.q.shape[1], args.kv.shape[1]);
  LOCKSTEP_CHECK_EQ(args.k_rope.shape[0], args.kv.shape[0]);
  LOCKSTEP_CHECK_EQ(args.q.shape[2], args.nope + args.k_rope.shape[1]);
  LOCKSTEP_CHECK_EQ(args.kv.shape[2], args.nope + args.out.shape[2]);
}

void check(const GqaArgs& args) {
  check_f32_cube(args.q);
  check_f32_cube(args.out);
  check_plain(args.k);
  check_plain(args.v);
  check_same_shape(args.q, args.out);
  check_same_shape(args.k, args.v);
  const int64_t heads = args.q.shape[1], head_dim = args.q.shape[2];
  LOCKSTEP_CHECK_EQ(args.out.shape[2], head_dim);
  LOCKSTEP_CHECK_GE(args.window, 0);
  LOCKSTEP_CHECK(args.first_in_group >= 0 && args.first_in_group < args.group,
                 "a first head at {} of a group of {}", args.first_in_group, args.group);
  const int64_t kv_heads = heads == 0 ? 0 : (args.first_in_group + heads - 1) / args.group + 1;
  LOCKSTEP_CHECK_EQ(args.k.shape[1], kv_heads * head_dim);
  check_vector(args.sinks, heads);
  check_sequences(args.sequences, args.page_size, args.k.shape[0], args.q.shape[0]);
}

void check(const CausalConvArgs& args) {
  check_f32_matrix(args.x);
  check_f32_matrix(args.weight);
  check_f32_matrix(args.out);
  check_f32_state(args.state, 3);
  check_same_shape(args.x, args.out);
  LOCKSTEP_CHECK_GE(args.weight.shape[0], 1);
  LOCKSTEP_CHECK_EQ(args.weight.shape[1], args.x.shape[1]);
  LOCKSTEP_CHECK_EQ(args.state.shape[1], args.weight.shape[0] - 1);
  LOCKSTEP_CHECK_EQ(args.state.shape[2], args.x.shape[1]);
  check_slots(args.sequences, args.state.shape[0], args.x.shape[0]);
}

void check(const L2NormArgs& args) { check_f32_cube(args.x); }

void check(const DeltaGatesArgs& args) {
  for (const TensorView* rows : {&args.a, &args.b, &args.decay, &args.beta}) {
    check_f32_matrix(*rows);
    check_same_shape(*rows, args.a);
  }
  check_head_vector(args.a_log, args.a.shape[1]);
  check_head_vector(args.dt_bias, args.a.shape[1]);
}

void check(const GatedDeltaArgs& args) {
  for (const TensorView* cube : {&args.q, &args.k, &args.v, &args.out}) check_f32_cube(*cube);
  check_f32_matrix(args.decay);
  check_f32_matrix(args.beta);
  check_f32_state(args.state, 4);
  check_same_shape(args.q, args.k);
  check_same_shape(args.v, args.out);
  check_same_shape(args.v, args.decay);
  check_same_shape(args.v, args.beta);
  LOCKSTEP_CHECK_EQ(args.q.shape[0], args.v.shape[0]);
  const int64_t heads = args.v.shape[1], key_dim = args.q.shape[2], value_dim = args.v.shape[2];
  LOCKSTEP_CHECK_EQ(args.k.shape[2], key_dim);
  LOCKSTEP_CHECK_EQ(args.out.shape[2], value_dim);
  LOCKSTEP_CHECK_EQ(args.state.shape[1], heads);
  LOCKSTEP_CHECK_EQ(args.state.shape[2], key_dim);
  LOCKSTEP_CHECK_EQ(args.state.shape[3], value_dim);
  LOCKSTEP_CHECK(args.first_in_group >= 0 && args.first_in_group < args.group,
                 "a first head at {} of a group of {}", args.first_in_group, args.group);
  LOCKSTEP_CHECK_EQ(args.q.shape[1], heads == 0 ? 0 : (args.first_in_group + heads - 1) / args.group + 1);
  check_slots(args.sequences, args.state.shape[0], args.v.shape[0]);
}

void check(const CopyRowsArgs& args) {
  check_f32_matrix(args.out);
  for (const TensorView& source : args.sources) check_f32_matrix(source);
  for (const RowPiece& piece : args.pieces) {
    LOCKSTEP_CHECK(piece.source >= 0 && static_cast<size_t>(piece.source) < args.sources.size(),
                   "source {} of {}", piece.source, args.sources.size());
    check_piece(piece, args.sources[static_cast<size_t>(piece.source)], args.out);
  }
}

void check(const SumRowsArgs& args) {
  check_f32_matrix(args.out);
  LOCKSTEP_CHECK_GE(args.addends.size(), size_t{1});
  for (const TensorView& addend : args.addends) {
    check_f32_matrix(addend);
    for (const RowPiece& piece : args.pieces) check_piece(piece, addend, args.out);
  }
}

void check(const SumAddNormArgs& args) {
  LOCKSTEP_CHECK_GE(args.addends.size(), size_t{1});
  check(RmsNormArgs{.x = args.residual, .weight = args.weight, .eps = args.eps, .out = args.out});
  for (const TensorView& addend : args.addends) {
    check_f32_matrix(addend);
    check_same_shape(addend, args.residual);
  }
}

void check(const PlaceSlotsArgs& args) {
  check_dims(args.expert_start, 1);
  LOCKSTEP_CHECK_GE(args.expert_start.shape[0], int64_t{1});
  check_f32_matrix(args.out);
  int64_t needed = 0;
  for (const PlaceSlotsArgs::Source& source : args.sources) {
    check_f32_matrix(source.x);
    LOCKSTEP_CHECK_EQ(source.x.shape[1], args.out.shape[1]);
    LOCKSTEP_CHECK_EQ(source.x.shape[0], source.expert_idx.shape[0]);
    check_same_shape(source.expert_idx, source.slot_of);
    needed += source.expert_idx.num_elements();
  }
  LOCKSTEP_CHECK_LE(needed, args.out.shape[0]);
}

void check(const PullWeightedArgs& args) {
  check_f32_matrix(args.weight);
  check_f32_matrix(args.out);
  LOCKSTEP_CHECK_EQ(args.weight.shape[0], args.out.shape[0]);
  for (const PullWeightedArgs::Source& source : args.sources) {
    check_expert_outputs(source.y);
    LOCKSTEP_CHECK(source.y.dtype == args.sources[0].y.dtype, "outputs of experts as {} and {}",
                   name_of(source.y.dtype), name_of(args.sources[0].y.dtype));
    LOCKSTEP_CHECK_EQ(source.y.shape[1], args.out.shape[1]);
    check_same_shape(source.slot_of, args.weight);
  }
}

void check(const AttentionRowsArgs& args) {
  LOCKSTEP_CHECK_GE(args.head_dim, 1);
  LOCKSTEP_CHECK_GE(args.query_stride, args.head_dim);
  LOCKSTEP_CHECK_LE(args.dim, args.head_dim);
  const auto check_heads = [&](const TensorView& x, int stride, std::span<const int32_t> positions) {
    LOCKSTEP_CHECK_EQ(x.shape[1] % stride, int64_t{0});
    check(RopeArgs{.x = x,
                   .num_heads = static_cast<int>(x.shape[1] / stride),
                   .head_stride = stride,
                   .dim = args.dim,
                   .positions = positions,
                   .cos = args.cos,
                   .sin = args.sin});
  };
  check_heads(args.q, args.query_stride, args.q_positions);
  check_heads(args.k, args.head_dim, args.k_positions);
  for (const TensorView& norm : {args.q_norm, args.k_norm})
    if (!norm.empty()) check_head_vector(norm, args.head_dim);
  check(CacheWriteArgs{
      .x = args.k, .sequences = args.sequences, .page_size = args.page_size, .cache = args.keys});
  check(CacheWriteArgs{
      .x = args.v, .sequences = args.sequences, .page_size = args.page_size, .cache = args.values});
}

void check(const PullAddArgs& args) {
  check(args.pull);
  for (const TensorView& other : {args.plus, args.onto}) {
    if (other.empty()) continue;
    check_f32_matrix(other);
    check_same_shape(other, args.pull.out);
  }
}

void check(const PullAddNormArgs& args) {
  check(PullAddArgs{.pull = args.pull, .plus = args.plus});
  check(SumAddNormArgs{.addends = {&args.pull.out, 1},
                       .residual = args.residual,
                       .weight = args.weight,
                       .eps = args.eps,
                       .out = args.out});
}

void check(const AttendArgs& args) {
  check(args.rows);
  check(args.gqa);
  LOCKSTEP_CHECK(args.gqa.q.data == args.rows.q.data,
                 "attention of other queries than the {} rows that are turned", args.rows.q.shape[0]);
}

void check(const LinearRouteArgs& args) {
  check(args.product);
  check(args.route);
  LOCKSTEP_CHECK(args.product.out.data == args.route.logits.data,
                 "{} rows of logits, and other ones are routed", args.product.out.shape[0]);
}

void check(const RoutedFfnArgs& args) {
  check(args.place);
  check(args.ffn);
  check(args.pull);
  LOCKSTEP_CHECK_EQ(args.place.sources.size(), size_t{1});
  LOCKSTEP_CHECK_EQ(args.pull.pull.sources.size(), size_t{1});
  LOCKSTEP_CHECK(
      args.place.out.data == args.ffn.x.data && args.ffn.y.data == args.pull.pull.sources[0].y.data,
      "{} slots, and other ones are computed or pulled", args.place.out.shape[0]);
}

void check(const LargestArgs& args) {
  check_f32_matrix(args.x);
  LOCKSTEP_CHECK_GE(args.num_valid, 1);
  LOCKSTEP_CHECK_LE(args.num_valid, args.x.shape[1]);
  check_dims(args.value, 1);
  check_dims(args.idx, 1);
  LOCKSTEP_CHECK(args.value.dtype == DType::kF32 && args.idx.dtype == DType::kI32,
                 "values of {}, places of {}", name_of(args.value.dtype), name_of(args.idx.dtype));
  LOCKSTEP_CHECK_EQ(args.value.shape[0], args.x.shape[0]);
  LOCKSTEP_CHECK_EQ(args.idx.shape[0], args.x.shape[0]);
}

}  // namespace lockstep::kernels::cpu
