#include "lockstep/kernels/cuda/cuda_kernels.h"

#include <algorithm>
#include <type_traits>

#include "lockstep/kernels/cpu/arguments.h"
#include "lockstep/kernels/cuda/dense.h"
#include "lockstep/kernels/cuda/geometry.h"
#include "lockstep/kernels/cuda/step_recorder.h"
#include "lockstep/kernels/cuda/uploads.h"
#include "lockstep/kernels/cuda/views.h"

namespace lockstep::kernels::cuda {
namespace {

int num_gpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

class CudaKernels final : public Kernels {
 public:
  CudaKernels(int index, const DeviceChoice& choice)
      : inputs_(choice.product_inputs),
        steps_(choice.steps),
        gpu_(index),
        uploads_(gpu_),
        recorder_(gpu_, uploads_),
        dense_(gpu_),
        rounded_(gpu_),
        rest_(gpu_),
        expert_x_(gpu_),
        expert_inner_(gpu_),
        partial_(gpu_),
        counts_(gpu_),
        moves_(gpu_) {}

  std::string_view name() const override { return "cuda"; }
  const Memory& memory() override { return gpu_; }
  void step(uint64_t key, const std::function<void()>& body) override {
    rounded_from_ = {};
    if (steps_ == Steps::kRecorded) {
      recorder_.step(key, [&] {
        body();
        note_scratch();
      });
    } else {
      body();
    }
    rounded_from_ = {};
  }
  std::unique_ptr<Fence> make_fence() override { return std::make_unique<GpuFence>(gpu_); }
  void record(Fence& fence) override {
    gpu_.use();
    expect_success(cudaEventRecord(static_cast<GpuFence&>(fence).event(), gpu_.stream()), "cudaEventRecord");
  }
  void wait(const Fence& fence) override {
    gpu_.use();
    expect_success(cudaStreamWaitEvent(gpu_.stream(), static_cast<const GpuFence&>(fence).event(), 0),
                   "cudaStreamWaitEvent");
  }

  void embed(const EmbedArgs& args) override {
    const int32_t* ids = put(args, args.token_ids);
    if (!begins(args, ids, numbers_of(args.table), args.out)) return;
    cuda::embed(ids, mat(numbers_of(args.table)), mat(args.out), stream());
    end("embed");
  }
  void rms_norm(RmsNormArgs& args) override {
    args.first_non_finite_row = -1;  // the logits tell; where it began is not looked for
    if (!begins(args, args.x, args.weight, args.eps, args.out)) return;
    cuda::rms_norm(mat(args.x), args.weight.data, num_of(args.weight), args.eps, mat(args.out), stream());
    end("rms_norm");
  }
  void add(const AddArgs& args) override {
    if (!begins(args, args.x, args.y)) return;
    cuda::add(mat(args.x), mat(args.y), stream());
    end("add");
  }
  void linear(const LinearArgs& args) override {
    if (!begins(args, args.x, numbers_of(args.w), args.out, args.bias)) return;
    if (args.w.cols() == 0) {
      zero_rows(mat(args.out), stream());
    } else if (!by_library(Weight::kOutIn, args.inputs, args.x, numbers_of(args.w), args.out)) {
      plain_linear(mat(args.x), mat(numbers_of(args.w)), mat(args.out), stream());
    }
    if (rounded_from_.x.data != nullptr && overlap(args.out, rounded_from_.x)) rounded_from_ = {};
    if (!args.bias.empty()) add_bias(mat(args.out), args.bias.data, num_of(args.bias), stream());
    end("linear");
  }
  void matmul(const MatmulArgs& args) override {
    if (!begins(args, args.x, numbers_of(args.w), args.out)) return;
    if (args.w.rows() == 0) {
      zero_rows(mat(args.out), stream());
    } else if (!by_library(Weight::kInOut, LinearArgs::Inputs::kMayRound, args.x, numbers_of(args.w),
                           args.out)) {
      plain_matmul(mat(args.x), mat(numbers_of(args.w)), mat(args.out), stream());
    }
    end("matmul");
  }
  void silu_mul(const SiluMulArgs& args) override {
    const Gate gating = gate_of(args.gating);
    if (!begins(args, args.gate, args.up, gating.limit, gating.alpha, gating.up_shift, args.out)) return;
    cuda::silu_mul(mat(args.gate), mat(args.up), mat(args.out), gating, stream());
    end("silu_mul");
  }
  void sigmoid_mul(const SigmoidMulArgs& args) override {
    if (!begins(args, args.x, args.gate)) return;
    cuda::sigmoid_mul(mat(args.x), mat(args.gate), stream());
    end("sigmoid_mul");
  }
  void rope(const RopeArgs& args) override {
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
  void route(const RouteArgs& args) override {
    const uint8_t* valid = put(args, args.valid);
    if (!begins(args, valid, args.logits, args.bias, args.top_k, args.scale, args.expert_idx, args.weight))
      return;
    cuda::route({.logits = mat(args.logits),
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
                 .weight = mat(args.weight)},
                stream());
    end("route");
  }
  void grouped_ffn(const GroupedFfnArgs& args) override;
  void cache_write(const CacheWriteArgs& args) override {
    cpu::check(args);
    const RowMoves moves = listed(store_moves(args.sequences, args.page_size));
    if (!begins(args, moves.listed, moves.count, args.x, args.cache)) return;
    store_rows(mat(args.x), moves, mat(args.cache), stream());
    end("cache_write");
  }
  void cache_read(const CacheReadArgs& args) override {
    cpu::check(args);
    const RowMoves moves = listed(load_moves(args.sequence, args.page_size));
    if (!begins(args, moves.listed, moves.count, args.cache, args.out)) return;
    load_rows(mat(args.cache), moves, mat(args.out), stream());
    end("cache_read");
  }
  void mla_absorbed(const MlaAbsorbedArgs& args) override;
  void mla_expanded(const MlaExpandedArgs& args) override;
  void gqa(const GqaArgs& args) override;
  void copy_rows(const CopyRowsArgs& args) override {
    cpu::check(args);
    const RowMoves moves = on_gpu(moves_of(args.pieces));
    for (const TensorView& source : args.sources) recorder_.note(source);
    if (!begins(args, moves.listed, moves.count, moves.first, moves.first_out, args.out)) return;
    cuda::copy_rows(sources_of(args.sources), moves, mat(args.out), stream());
    end("copy_rows");
  }
  void sum_rows(const SumRowsArgs& args) override {
    cpu::check(args);
    const RowMoves moves = on_gpu(moves_of(args.pieces));
    for (const TensorView& source : args.addends) recorder_.note(source);
    if (!begins(args, moves.listed, moves.count, moves.first, moves.first_out, args.out)) return;
    cuda::sum_rows(sources_of(args.addends), moves, mat(args.out), stream());
    end("sum_rows");
  }
  void sum_add_norm(SumAddNormArgs& args) override {
    args.first_non_finite_row = -1;
    for (const TensorView& addend : args.addends) recorder_.note(addend);
    if (!begins(args, args.residual, args.weight, args.eps, args.out)) return;
    cuda::sum_add_norm(sources_of(args.addends), mat(args.residual), args.weight.data, num_of(args.weight),
                       args.eps, mat(args.out), stream());
    end("sum_add_norm");
  }
  void causal_conv(const CausalConvArgs& args) override;
  void l2_norm(const L2NormArgs& args) override {
    if (!begins(args, args.x, args.eps, args.scale)) return;
    cuda::l2_norm(heads_of(args.x), args.eps, args.scale, stream());
    end("l2_norm");
  }
  void delta_gates(const DeltaGatesArgs& args) override {
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
  void gated_delta(const GatedDeltaArgs& args) override;
  void place_slots(const PlaceSlotsArgs& args) override;
  void pull_weighted(const PullWeightedArgs& args) override;

 private:
  // Checks, and notes what the launches depend on. False: a replay launches them.
  template <class Args, class... Parts>
  bool begins(const Args& args, const Parts&... parts) {
    cpu::check(args);
    if constexpr (!std::is_same_v<Args, LinearArgs>) rounded_from_ = {};
    recorder_.note(parts...);
    if (recorder_.skips_launches()) return false;
    gpu_.use();
    return true;
  }
  // Recorded launches hold these addresses, and any larger step may have moved them since: where one has, the
  // step is recorded anew.
  void note_scratch() {
    for (Buffer* scratch : {&rounded_, &rest_, &expert_x_, &expert_inner_, &partial_, &counts_, &moves_})
      recorder_.note(static_cast<const void*>(scratch->view({0}).data));
  }
  // A host array of arguments that are in order.
  template <class Args, class T>
  const T* put(const Args& args, std::span<const T> host) {
    cpu::check(args);
    gpu_.use();
    return uploads_.put_alone(host);
  }
  static void end(std::string_view op) { expect_success(cudaGetLastError(), op); }
  cudaStream_t stream() const { return gpu_.stream(); }

  RowMoves listed(const std::vector<RowMove>& moves) {
    gpu_.use();
    return {.listed = uploads_.put_alone(std::span<const RowMove>(moves)),
            .count = static_cast<int64_t>(moves.size())};
  }
  RowMoves on_gpu(const MoveList& list) { return list.listed.empty() ? list.moves : listed(list.listed); }

  void zero_padding(const Mat& out, std::span<const PagedSequence> sequences);
  bool already_rounded(const TensorView& x, bool whole) const;
  bool by_library(Weight weight, LinearArgs::Inputs inputs, const TensorView& x, const TensorView& w,
                  const TensorView& out);
  // Rows of queries in up to two launches.
  void attend(Attention args, const QueryRows& rows);
  void attend_tiles(Attention args, const QueryTiles& tiles);
  void attend_rows(Attention args, std::span<const AttentionRow> rows, std::span<const int32_t> tables,
                   int splits);

  const ProductInputs inputs_;
  const Steps steps_;
  Gpu gpu_;
  Uploads uploads_;
  StepRecorder recorder_;
  Dense dense_;
  struct RoundedFrom {
    TensorView x;
    bool whole = false;
    uint64_t host_writes = 0;
  };
  RoundedFrom rounded_from_;        // what rounded_ and rest_ hold
  Buffer rounded_, rest_;           // [rows, in] bf16: the input of a product
  Buffer expert_x_, expert_inner_;  // [slots, hidden], [slots, inter]
  Buffer partial_;                  // attention_scratch_floats()
  Buffer counts_, moves_;           // of place_slots
};

bool CudaKernels::by_library(Weight weight, LinearArgs::Inputs inputs, const TensorView& x,
                             const TensorView& w, const TensorView& out) {
  if (w.dtype != DType::kBF16) return false;
  if (out.rows() == 0 || out.cols() == 0) return true;
  const bool whole = inputs == LinearArgs::Inputs::kWhole || inputs_ == ProductInputs::kWhole;
  void* rounded = rounded_.view(DType::kBF16, {x.rows(), x.cols()}).data;
  void* rest = whole ? rest_.view(DType::kBF16, {x.rows(), x.cols()}).data : nullptr;
  const DenseShape shape{.weight = weight,
                         .rows = x.rows(),
                         .in = x.cols(),
                         .out = out.cols(),
                         .x_stride = x.cols(),
                         .w_stride = w.stride[0],
                         .out_stride = out.stride[0],
                         .x_alignment = alignment_of(rounded),
                         .w_alignment = alignment_of(w.data),
                         .out_alignment = alignment_of(out.data)};
  if (!already_rounded(x, whole)) to_bf16(mat(x), rounded, rest, stream());
  rounded_from_ = {x, whole, gpu_.num_host_writes()};
  if (!dense_.product(shape, Onto::kNothing, rounded, w.data, out.as<float>())) return false;
  return !whole || dense_.product(shape, Onto::kSum, rest, w.data, out.as<float>());
}

// Whether the input of a product is that of the product before it: any other op may have changed it.
bool CudaKernels::already_rounded(const TensorView& x, bool whole) const {
  const TensorView& last = rounded_from_.x;
  return last.data == x.data && last.shape == x.shape && last.stride == x.stride &&
         (rounded_from_.whole || !whole) && rounded_from_.host_writes == gpu_.num_host_writes();
}

void CudaKernels::grouped_ffn(const GroupedFfnArgs& args) {
  cpu::check(args);
  gpu_.use();
  const int64_t slots = args.x.rows(), hidden = args.x.cols();
  if (slots == 0 || args.gate.empty()) return;
  const int64_t inter = args.gate[0].rows();
  const auto gate = pointers_of(args.gate), up = pointers_of(args.up), down = pointers_of(args.down);
  const ExpertBiases biases = biases_of(args);
  const size_t bytes = gate.size() * sizeof(void*);
  uploads_.make_room({bytes, bytes, bytes, bytes, bytes, bytes});
  Experts experts{.start = args.expert_start.as<int32_t>(),
                  .num_experts = static_cast<int>(gate.size()),
                  .gate = uploads_.put(std::span<const void* const>(gate)),
                  .up = uploads_.put(std::span<const void* const>(up)),
                  .down = uploads_.put(std::span<const void* const>(down)),
                  .gate_stride = args.gate[0].plain.stride[0],
                  .up_stride = args.up[0].plain.stride[0],
                  .down_stride = args.down[0].plain.stride[0],
                  .num = num_of(args.gate[0].plain),
                  .bias_num = biases.num,
                  .gating = gate_of(args.gating),
                  .hidden = static_cast<int>(hidden),
                  .inter = static_cast<int>(inter),
                  .slots = slots,
                  .y = args.y.as<float>(),
                  .y_stride = args.y.stride[0]};
  if (!biases.gate.empty()) {
    experts.gate_bias = uploads_.put(std::span<const void* const>(biases.gate));
    experts.up_bias = uploads_.put(std::span<const void* const>(biases.up));
    experts.down_bias = uploads_.put(std::span<const void* const>(biases.down));
  }
  if (!begins(args, experts.gate, experts.up, experts.down, experts.gate_bias, experts.up_bias,
              experts.down_bias, experts.gating.limit, experts.gating.alpha, experts.gating.up_shift, args.x,
              args.expert_start, args.gate[0].plain, args.up[0].plain, args.down[0].plain, args.y))
    return;
  const auto whole_pieces = [](const std::vector<const void*>& weights, int64_t stride) {
    return stride % 8 == 0 && std::all_of(weights.begin(), weights.end(), is_aligned16);
  };
  const bool tensor_cores = inputs_ == ProductInputs::kRounded && experts.num == Num::kBF16 &&
                            experts_fit_tensor_cores(hidden, inter) &&
                            whole_pieces(gate, experts.gate_stride) && whole_pieces(up, experts.up_stride) &&
                            whole_pieces(down, experts.down_stride);
  if (tensor_cores) {
    void* x = expert_x_.view(DType::kBF16, {slots, hidden}).data;
    to_bf16(mat(args.x), x, nullptr, stream());
    experts.x = x;
    experts.x_stride = hidden;
    experts.inner = expert_inner_.view(DType::kBF16, {slots, inter}).data;
    if (experts_take_tiles(slots, experts.num_experts)) {
      experts_tiles(experts, stream());
    } else {
      experts_tensor_cores(experts, stream());
    }
  } else {
    experts.x = args.x.data;
    experts.x_stride = args.x.stride[0];
    experts.inner = expert_inner_.view({slots, inter}).data;
    experts_plain(experts, stream());
  }
  end("grouped_ffn");
}

void CudaKernels::attend(Attention args, const QueryRows& rows) {
  attend_rows(args, rows.single, rows.tables, num_splits(rows.max_single_tokens));
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

void CudaKernels::gqa(const GqaArgs& args) {
  cpu::check(args);
  gpu_.use();
  rounded_from_ = {};
  recorder_.note(args.q, args.k, args.v, args.page_size, args.window, args.scale, args.sinks, args.out);
  zero_padding(rows_of_heads(args.out), args.sequences);
  const Attention attention = attention_of(args);
  const auto whole_pairs = [](const TensorView& cube) {
    return reinterpret_cast<uintptr_t>(cube.data) % 8 == 0 && cube.stride[0] % 2 == 0 &&
           cube.stride[1] % 2 == 0;
  };
  const auto whole_pieces = [](const TensorView& cache) {
    return is_aligned16(cache.data) && cache.stride[0] % 8 == 0;
  };
  if (inputs_ == ProductInputs::kRounded && attention.num == Num::kBF16 && args.sinks.empty() &&
      attention_fits_tiles(attention.value, attention.num_heads, args.group, args.first_in_group,
                           args.window) &&
      whole_pairs(args.q) && whole_pairs(args.out) && whole_pieces(args.k) && whole_pieces(args.v)) {
    attend_tiles(attention, query_tiles(args.sequences, args.page_size, rows_of_tile(args.group)));
  } else {
    attend(attention, query_rows(args.sequences, args.page_size));
  }
  end("gqa");
}

void CudaKernels::attend_tiles(Attention args, const QueryTiles& tiles) {
  for (const bool chunked : {false, true}) {
    const std::span<const AttentionTile> some = chunked ? tiles.chunked : tiles.single;
    if (some.empty()) continue;
    uploads_.make_room({some.size_bytes(), tiles.tables.size() * sizeof(int32_t)});
    args.tiles = uploads_.put(some);
    args.tables = uploads_.put(std::span<const int32_t>(tiles.tables));
    args.num_rows = static_cast<int>(some.size());
    args.chunked = chunked;
    args.num_splits = chunked ? 1 : num_splits(tiles.max_single_tokens);
    args.partial =
        partial_.view({attention_scratch_floats(args.num_rows, args.num_heads, args.value, args.num_splits)})
            .as<float>();
    recorder_.note(args.tiles, args.num_rows, args.tables, args.num_splits, args.partial);
    if (!recorder_.skips_launches()) attention_tiles(args, stream());
  }
}

void CudaKernels::mla_absorbed(const MlaAbsorbedArgs& args) {
  cpu::check(args);
  gpu_.use();
  rounded_from_ = {};
  recorder_.note(args.q, args.cache, args.page_size, args.scale, args.out);
  zero_padding(rows_of_heads(args.out), args.sequences);
  attend(attention_of(args), query_rows(args.sequences, args.page_size));
  end("mla_absorbed");
}

void CudaKernels::mla_expanded(const MlaExpandedArgs& args) {
  cpu::check(args);
  gpu_.use();
  rounded_from_ = {};
  recorder_.note(args.q, args.kv, args.k_rope, args.scale, args.out);
  QueryRows rows;
  const auto context = static_cast<int32_t>(args.kv.shape[0]), count = static_cast<int32_t>(args.q.shape[0]);
  for (int32_t row = 0; row < count; ++row) rows.chunked.push_back({row, context - count + row + 1, 0});
  attend(attention_of(args), rows);
  end("mla_expanded");
}

// Rows of `out` that no sequence has are zero.
void CudaKernels::zero_padding(const Mat& out, std::span<const PagedSequence> sequences) {
  int64_t covered = 0;
  for (const PagedSequence& sequence : sequences) covered += sequence.num_rows;
  recorder_.note(covered);
  if (covered < out.rows && !recorder_.skips_launches()) zero_rows(out, stream());
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

void CudaKernels::place_slots(const PlaceSlotsArgs& args) {
  for (const PlaceSlotsArgs::Source& source : args.sources)
    recorder_.note(source.x, source.expert_idx, source.slot_of);
  if (!begins(args, args.first_expert, args.expert_start, args.out)) return;
  LOCKSTEP_CHECK_LE(args.sources.size(), static_cast<size_t>(kMaxSources));
  const int64_t num_local = args.expert_start.rows() - 1, capacity = args.out.rows();
  Place place{.num_sources = static_cast<int>(args.sources.size()),
              .first_expert = static_cast<int>(args.first_expert),
              .num_local = static_cast<int>(num_local),
              .counts = counts_.view(DType::kI32, {num_local}).as<int32_t>(),
              .start = args.expert_start.as<int32_t>(),
              .moves = static_cast<RowMove*>(moves_.view(DType::kI32, {capacity, 3}).data),
              .capacity = capacity};
  std::vector<TensorView> rows;
  for (size_t s = 0; s < args.sources.size(); ++s) {
    const PlaceSlotsArgs::Source& source = args.sources[s];
    LOCKSTEP_CHECK(source.expert_idx.rows() <= 1 || source.expert_idx.stride[0] == source.expert_idx.cols(),
                   "expert numbers {} apart, {} a row", source.expert_idx.stride[0],
                   source.expert_idx.cols());
    place.top_k = static_cast<int>(source.expert_idx.cols());
    place.sources[s] = {.expert_idx = source.expert_idx.as<int32_t>(),
                        .slot_of = source.slot_of.as<int32_t>(),
                        .rows = source.expert_idx.rows()};
    rows.push_back(source.x);
  }
  cuda::place_slots(place, stream());
  cuda::copy_rows(sources_of(rows), {.listed = place.moves, .count = num_local == 0 ? 0 : capacity},
                  mat(args.out), stream());
  end("place_slots");
}

void CudaKernels::pull_weighted(const PullWeightedArgs& args) {
  for (const PullWeightedArgs::Source& source : args.sources) recorder_.note(source.y, source.slot_of);
  if (!begins(args, args.weight, args.out)) return;
  LOCKSTEP_CHECK_LE(args.sources.size(), static_cast<size_t>(kMaxSources));
  LOCKSTEP_CHECK(args.weight.rows() <= 1 || args.weight.stride[0] == args.weight.cols(),
                 "weights {} apart, {} a row", args.weight.stride[0], args.weight.cols());
  Pull pull{.num_sources = static_cast<int>(args.sources.size()),
            .top_k = static_cast<int>(args.weight.cols()),
            .weight = args.weight.as<float>(),
            .out = mat(args.out)};
  for (size_t s = 0; s < args.sources.size(); ++s) {
    pull.y[s] = args.sources[s].y.as<float>();
    pull.y_stride[s] = args.sources[s].y.stride[0];
    pull.slot_of[s] = args.sources[s].slot_of.as<int32_t>();
  }
  cuda::pull_weighted(pull, stream());
  end("pull_weighted");
}

}  // namespace

std::unique_ptr<Kernels> make_kernels(const DeviceChoice& choice, int rank) {
  const int count = num_gpus();
  LOCKSTEP_CHECK(count > 0, "{} GPUs", count);
  return std::make_unique<CudaKernels>(device_of_rank(rank, count), choice);
}

}  // namespace lockstep::kernels::cuda
