#include "lockstep/kernels/cuda/cuda_kernels.h"

#include <algorithm>

#include "lockstep/kernels/cpu/arguments.h"
#include "lockstep/kernels/cuda/dense.h"
#include "lockstep/kernels/cuda/geometry.h"
#include "lockstep/kernels/cuda/uploads.h"
#include "lockstep/kernels/cuda/views.h"

namespace lockstep::kernels::cuda {
namespace {

int num_gpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

bool aligned16(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

// A cube [rows, heads, width] whose heads lie one behind the other.
Mat rows_of_heads(const TensorView& cube) {
  LOCKSTEP_CHECK(cube.shape[1] <= 1 || cube.stride[1] == cube.shape[2], "heads {} apart, {} wide",
                 cube.stride[1], cube.shape[2]);
  return {.data = cube.data,
          .rows = cube.shape[0],
          .cols = cube.shape[1] * cube.shape[2],
          .stride = cube.stride[0]};
}

std::vector<const void*> pointers_of(std::span<const TensorView> weights) {
  std::vector<const void*> pointers;
  for (const TensorView& weight : weights) {
    LOCKSTEP_CHECK_EQ(weight.stride[0], weights[0].stride[0]);  // one number for all in the kernels
    LOCKSTEP_CHECK_EQ(static_cast<int>(weight.dtype), static_cast<int>(weights[0].dtype));
    pointers.push_back(weight.data);
  }
  return pointers;
}

class CudaKernels final : public Kernels {
 public:
  explicit CudaKernels(int index)
      : gpu_(index),
        uploads_(gpu_),
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
    begin(args);
    cuda::embed(uploads_.put_alone(args.token_ids), mat(args.table), mat(args.out), stream());
    end("embed");
  }
  void rms_norm(RmsNormArgs& args) override {
    begin(args);
    args.first_non_finite_row = -1;  // the logits tell; where it began is not looked for
    cuda::rms_norm(mat(args.x), args.weight.data, num_of(args.weight), args.eps, mat(args.out), stream());
    end("rms_norm");
  }
  void add(const AddArgs& args) override {
    begin(args);
    cuda::add(mat(args.x), mat(args.y), stream());
    end("add");
  }
  void linear(const LinearArgs& args) override {
    begin(args);
    if (args.w.shape[1] == 0) {
      zero_rows(mat(args.out), stream());
    } else if (!by_library(Weight::kOutIn, args.inputs, args.x, args.w, args.out)) {
      plain_linear(mat(args.x), mat(args.w), mat(args.out), stream());
    }
    if (!args.bias.empty()) add_bias(mat(args.out), args.bias.data, num_of(args.bias), stream());
    end("linear");
  }
  void matmul(const MatmulArgs& args) override {
    begin(args);
    if (args.w.shape[0] == 0) {
      zero_rows(mat(args.out), stream());
    } else if (!by_library(Weight::kInOut, LinearArgs::Inputs::kMayRound, args.x, args.w, args.out)) {
      plain_matmul(mat(args.x), mat(args.w), mat(args.out), stream());
    }
    end("matmul");
  }
  void silu_mul(const SiluMulArgs& args) override {
    begin(args);
    cuda::silu_mul(mat(args.gate), mat(args.up), mat(args.out), stream());
    end("silu_mul");
  }
  void sigmoid_mul(const SigmoidMulArgs& args) override {
    begin(args);
    cuda::sigmoid_mul(mat(args.x), mat(args.gate), stream());
    end("sigmoid_mul");
  }
  void rope(const RopeArgs& args) override {
    begin(args);
    cuda::rope({.x = mat(args.x),
                .num_heads = args.num_heads,
                .head_stride = args.head_stride,
                .offset = args.offset,
                .dim = args.dim,
                .positions = uploads_.put_alone(args.positions),
                .cos = args.cos.as<float>(),
                .sin = args.sin.as<float>(),
                .table_stride = args.cos.stride[0],
                .half = args.pairing == RopePairing::kHalf},
               stream());
    end("rope");
  }
  void route(const RouteArgs& args) override {
    begin(args);
    cuda::route({.logits = mat(args.logits),
                 .bias = args.bias.empty() ? nullptr : args.bias.as<float>(),
                 .valid = uploads_.put_alone(args.valid),
                 .top_k = args.top_k,
                 .num_groups = args.num_groups,
                 .top_groups = args.top_groups,
                 .sigmoid = args.scoring == Scoring::kSigmoid,
                 .normalised = args.weights == RouteArgs::Weights::kNormalised,
                 .scale = args.scale,
                 .expert_idx = args.expert_idx.as<int32_t>(),
                 .idx_stride = args.expert_idx.stride[0],
                 .weight = mat(args.weight)},
                stream());
    end("route");
  }
  void grouped_ffn(const GroupedFfnArgs& args) override;
  void cache_write(const CacheWriteArgs& args) override {
    begin(args);
    const auto moves = store_moves(args.sequences, args.page_size);
    store_rows(mat(args.x), listed(moves), mat(args.cache), stream());
    end("cache_write");
  }
  void cache_read(const CacheReadArgs& args) override {
    begin(args);
    const auto moves = load_moves(args.sequence, args.page_size);
    load_rows(mat(args.cache), listed(moves), mat(args.out), stream());
    end("cache_read");
  }
  void mla_absorbed(const MlaAbsorbedArgs& args) override;
  void mla_expanded(const MlaExpandedArgs& args) override;
  void gqa(const GqaArgs& args) override;
  void copy_rows(const CopyRowsArgs& args) override {
    begin(args);
    const MoveList list = moves_of(args.pieces);
    cuda::copy_rows(sources_of(args.sources), on_gpu(list), mat(args.out), stream());
    end("copy_rows");
  }
  void sum_rows(const SumRowsArgs& args) override {
    begin(args);
    const MoveList list = moves_of(args.pieces);
    cuda::sum_rows(sources_of(args.addends), on_gpu(list), mat(args.out), stream());
    end("sum_rows");
  }
  void sum_add_norm(SumAddNormArgs& args) override {
    begin(args);
    args.first_non_finite_row = -1;
    cuda::sum_add_norm(sources_of(args.addends), mat(args.residual), args.weight.data, num_of(args.weight),
                       args.eps, mat(args.out), stream());
    end("sum_add_norm");
  }
  void causal_conv(const CausalConvArgs& args) override;
  void l2_norm(const L2NormArgs& args) override {
    begin(args);
    cuda::l2_norm(heads_of(args.x), args.eps, args.scale, stream());
    end("l2_norm");
  }
  void delta_gates(const DeltaGatesArgs& args) override {
    begin(args);
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
  template <class Args>
  void begin(const Args& args) const {
    cpu::check(args);
    gpu_.use();
  }
  static void end(std::string_view op) { expect_success(cudaGetLastError(), op); }
  cudaStream_t stream() const { return gpu_.stream(); }

  RowMoves listed(const std::vector<RowMove>& moves) {
    return {.listed = uploads_.put_alone(std::span<const RowMove>(moves)),
            .count = static_cast<int64_t>(moves.size())};
  }
  RowMoves on_gpu(const MoveList& list) { return list.listed.empty() ? list.moves : listed(list.listed); }

  void zero_padding(const Mat& out, std::span<const PagedSequence> sequences);
  bool by_library(Weight weight, LinearArgs::Inputs inputs, const TensorView& x, const TensorView& w,
                  const TensorView& out);
  // Rows of queries in up to two launches.
  void attend(Attention args, const QueryRows& rows);
  void attend_rows(Attention args, std::span<const AttentionRow> rows, std::span<const int32_t> tables,
                   int64_t max_tokens, int splits);

  Gpu gpu_;
  Uploads uploads_;
  Dense dense_;
  Buffer rounded_, rest_;           // [rows, in] bf16: the input of a product
  Buffer expert_x_, expert_inner_;  // [slots, hidden], [slots, inter]
  Buffer partial_;                  // attention_scratch_floats()
  Buffer counts_, moves_;           // of place_slots
};

bool CudaKernels::by_library(Weight weight, LinearArgs::Inputs inputs, const TensorView& x,
                             const TensorView& w, const TensorView& out) {
  if (w.dtype != DType::kBF16) return false;
  if (out.rows() == 0 || out.cols() == 0) return true;
  const bool whole = inputs == LinearArgs::Inputs::kWhole;
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
  to_bf16(mat(x), rounded, rest, stream());
  if (!dense_.product(shape, Onto::kNothing, rounded, w.data, out.as<float>())) return false;
  return !whole || dense_.product(shape, Onto::kSum, rest, w.data, out.as<float>());
}

void CudaKernels::grouped_ffn(const GroupedFfnArgs& args) {
  begin(args);
  const int64_t slots = args.x.rows(), hidden = args.x.cols();
  if (slots == 0 || args.gate.empty()) return;
  const int64_t inter = args.gate[0].rows();
  const auto gate = pointers_of(args.gate), up = pointers_of(args.up), down = pointers_of(args.down);
  const size_t bytes = gate.size() * sizeof(void*);
  uploads_.make_room({bytes, bytes, bytes});
  Experts experts{.start = args.expert_start.as<int32_t>(),
                  .num_experts = static_cast<int>(gate.size()),
                  .gate = uploads_.put(std::span<const void* const>(gate)),
                  .up = uploads_.put(std::span<const void* const>(up)),
                  .down = uploads_.put(std::span<const void* const>(down)),
                  .gate_stride = args.gate[0].stride[0],
                  .up_stride = args.up[0].stride[0],
                  .down_stride = args.down[0].stride[0],
                  .num = num_of(args.gate[0]),
                  .hidden = static_cast<int>(hidden),
                  .inter = static_cast<int>(inter),
                  .slots = slots,
                  .y = args.y.as<float>(),
                  .y_stride = args.y.stride[0]};
  const auto whole_pieces = [](const std::vector<const void*>& weights, int64_t stride) {
    return stride % 8 == 0 && std::all_of(weights.begin(), weights.end(), aligned16);
  };
  const bool tensor_cores = experts.num == Num::kBF16 && experts_fit_tensor_cores(hidden, inter) &&
                            whole_pieces(gate, experts.gate_stride) && whole_pieces(up, experts.up_stride) &&
                            whole_pieces(down, experts.down_stride);
  if (tensor_cores) {
    void* x = expert_x_.view(DType::kBF16, {slots, hidden}).data;
    to_bf16(mat(args.x), x, nullptr, stream());
    experts.x = x;
    experts.x_stride = hidden;
    experts.inner = expert_inner_.view(DType::kBF16, {slots, inter}).data;
    experts_tensor_cores(experts, stream());
  } else {
    experts.x = args.x.data;
    experts.x_stride = args.x.stride[0];
    experts.inner = expert_inner_.view({slots, inter}).data;
    experts_plain(experts, stream());
  }
  end("grouped_ffn");
}

void CudaKernels::attend(Attention args, const QueryRows& rows) {
  attend_rows(args, rows.single, rows.tables, rows.max_single_tokens, num_splits(rows.max_single_tokens));
  attend_rows(args, rows.chunked, rows.tables, rows.max_chunked_tokens, 1);
}

void CudaKernels::attend_rows(Attention args, std::span<const AttentionRow> rows,
                              std::span<const int32_t> tables, int64_t max_tokens, int splits) {
  if (rows.empty()) return;
  LOCKSTEP_CHECK_LE(args.value, kMaxValue);
  LOCKSTEP_CHECK_LE(args.key, kMaxKey);
  uploads_.make_room({rows.size_bytes(), tables.size_bytes()});
  args.rows = uploads_.put(rows);
  args.num_rows = static_cast<int>(rows.size());
  args.tables = tables.empty() ? nullptr : uploads_.put(tables);
  args.max_tokens = max_tokens;
  args.num_splits = splits;
  args.partial = partial_.view({attention_scratch_floats(args.num_rows, args.num_heads, args.value, splits)})
                     .as<float>();
  attention(args, stream());
}

void CudaKernels::gqa(const GqaArgs& args) {
  begin(args);
  const QueryRows rows = query_rows(args.sequences, args.page_size);
  zero_padding(rows_of_heads(args.out), args.sequences);
  const auto width = static_cast<int>(args.q.shape[2]);
  attend({.q = args.q.as<float>(),
          .q_row_stride = args.q.stride[0],
          .q_head_stride = args.q.stride[1],
          .out = args.out.as<float>(),
          .out_row_stride = args.out.stride[0],
          .out_head_stride = args.out.stride[1],
          .page_size = args.page_size,
          .k = args.k.data,
          .k_rest = args.k.data,
          .v = args.v.data,
          .k_stride = args.k.stride[0],
          .v_stride = args.v.stride[0],
          .k_head_stride = width,
          .v_head_stride = width,
          .num = num_of(args.k),
          .key = width,
          .key_split = width,
          .value = width,
          .num_heads = static_cast<int>(args.q.shape[1]),
          .group = args.group,
          .first_in_group = args.first_in_group,
          .scale = args.scale,
          .window = args.window},
         rows);
  end("gqa");
}

void CudaKernels::mla_absorbed(const MlaAbsorbedArgs& args) {
  begin(args);
  const QueryRows rows = query_rows(args.sequences, args.page_size);
  zero_padding(rows_of_heads(args.out), args.sequences);
  const auto heads = static_cast<int>(args.q.shape[1]), width = static_cast<int>(args.cache.shape[1]);
  attend({.q = args.q.as<float>(),
          .q_row_stride = args.q.stride[0],
          .q_head_stride = args.q.stride[1],
          .out = args.out.as<float>(),
          .out_row_stride = args.out.stride[0],
          .out_head_stride = args.out.stride[1],
          .page_size = args.page_size,
          .k = args.cache.data,
          .k_rest = args.cache.data,
          .v = args.cache.data,
          .k_stride = args.cache.stride[0],
          .v_stride = args.cache.stride[0],
          .num = num_of(args.cache),
          .key = width,
          .key_split = width,
          .value = args.latent,
          .num_heads = heads,
          .group = std::max(heads, 1),
          .scale = args.scale},
         rows);
  end("mla_absorbed");
}

void CudaKernels::mla_expanded(const MlaExpandedArgs& args) {
  begin(args);
  QueryRows rows;
  rows.max_chunked_tokens = args.kv.shape[0];
  const auto context = static_cast<int32_t>(args.kv.shape[0]), count = static_cast<int32_t>(args.q.shape[0]);
  for (int32_t row = 0; row < count; ++row) rows.chunked.push_back({row, context - count + row + 1, 0});
  attend({.q = args.q.as<float>(),
          .q_row_stride = args.q.stride[0],
          .q_head_stride = args.q.stride[1],
          .out = args.out.as<float>(),
          .out_row_stride = args.out.stride[0],
          .out_head_stride = args.out.stride[1],
          .k = args.kv.data,
          .k_rest = args.k_rope.data,
          .v = args.kv.as<float>() + args.nope,
          .k_stride = args.kv.stride[0],
          .k_rest_stride = args.k_rope.stride[0],
          .v_stride = args.kv.stride[0],
          .k_head_stride = args.kv.stride[1],
          .v_head_stride = args.kv.stride[1],
          .key = args.nope + static_cast<int>(args.k_rope.shape[1]),
          .key_split = args.nope,
          .value = static_cast<int>(args.out.shape[2]),
          .num_heads = static_cast<int>(args.q.shape[1]),
          .scale = args.scale},
         rows);
  end("mla_expanded");
}

// Rows of `out` that no sequence has are zero.
void CudaKernels::zero_padding(const Mat& out, std::span<const PagedSequence> sequences) {
  int64_t covered = 0;
  for (const PagedSequence& sequence : sequences) covered += sequence.num_rows;
  if (covered < out.rows) zero_rows(out, stream());
}

void CudaKernels::causal_conv(const CausalConvArgs& args) {
  begin(args);
  zero_padding(mat(args.out), args.sequences);
  const auto sequences = state_sequences(args.sequences);
  cuda::causal_conv({.x = mat(args.x),
                     .weight = mat(args.weight),
                     .out = mat(args.out),
                     .state = args.state.as<float>(),
                     .sequences = uploads_.put_alone(std::span<const StateSequence>(sequences)),
                     .num_sequences = static_cast<int>(sequences.size())},
                    stream());
  end("causal_conv");
}

void CudaKernels::gated_delta(const GatedDeltaArgs& args) {
  begin(args);
  zero_padding(rows_of_heads(args.out), args.sequences);
  const auto sequences = state_sequences(args.sequences);
  cuda::gated_delta({.q = heads_of(args.q),
                     .k = heads_of(args.k),
                     .v = heads_of(args.v),
                     .out = heads_of(args.out),
                     .decay = mat(args.decay),
                     .beta = mat(args.beta),
                     .group = args.group,
                     .first_in_group = args.first_in_group,
                     .state = args.state.as<float>(),
                     .sequences = uploads_.put_alone(std::span<const StateSequence>(sequences)),
                     .num_sequences = static_cast<int>(sequences.size())},
                    stream());
  end("gated_delta");
}

void CudaKernels::place_slots(const PlaceSlotsArgs& args) {
  begin(args);
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
  begin(args);
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

Result<DeviceFacts> device_facts() {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0)
    return invalid_argument("--device", "--device cuda: no GPU can be used here ({}); use --device cpu",
                            error == cudaSuccess ? "0 found" : cudaGetErrorString(error));
  DeviceFacts facts{.num_devices = count};
  for (int index = 0; index < count; ++index) {
    cudaDeviceProp properties = {};
    expect_success(cudaGetDeviceProperties(&properties, index), "cudaGetDeviceProperties");
    facts.memory_bytes += static_cast<double>(properties.totalGlobalMem);
  }
  return facts;
}

std::unique_ptr<Kernels> make_kernels(int rank) {
  const int count = num_gpus();
  LOCKSTEP_CHECK(count > 0, "{} GPUs", count);
  return std::make_unique<CudaKernels>(rank % count);
}

}  // namespace lockstep::kernels::cuda
