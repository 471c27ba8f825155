#pragma once
// The op table on one GPU: what the sources of this folder that begin with "cuda_" implement, each some of
// its ops. An op checks its arguments, brings host arrays to the GPU, notes what its launches depend on, and
// launches.
#include <type_traits>
#include <vector>

#include "lockstep/kernels/cpu/arguments.h"
#include "lockstep/kernels/cuda/cuda_kernels.h"
#include "lockstep/kernels/cuda/dense.h"
#include "lockstep/kernels/cuda/geometry.h"
#include "lockstep/kernels/cuda/step_recorder.h"
#include "lockstep/kernels/cuda/tensor_maps.h"
#include "lockstep/kernels/cuda/uploads.h"
#include "lockstep/kernels/cuda/views.h"

namespace lockstep::kernels::cuda {

class CudaKernels final : public Kernels {
 public:
  CudaKernels(int index, const DeviceChoice& choice)
      : inputs_(choice.product_inputs),
        steps_(choice.steps),
        gpu_(index),
        uploads_(gpu_),
        recorder_(gpu_, uploads_, [this] { note_scratch(); }),
        dense_(gpu_),
        queries_(gpu_),
        rounded_(gpu_),
        rest_(gpu_),
        expert_x_(gpu_),
        expert_inner_(gpu_),
        taken_(gpu_),
        partial_(gpu_),
        counts_(gpu_),
        moves_(gpu_),
        parts_(gpu_) {}

  std::string_view name() const override { return "cuda"; }
  const Memory& memory() override { return gpu_; }
  void step(uint64_t key, const std::function<void()>& body) override;
  std::unique_ptr<Fence> make_fence() override { return std::make_unique<GpuFence>(gpu_); }
  void record(Fence& fence) override;
  void wait(const Fence& fence) override;

  void embed(const EmbedArgs& args) override;
  void rms_norm(RmsNormArgs& args) override;
  void add(const AddArgs& args) override;
  void linear(const LinearArgs& args) override;
  void linears(std::span<const LinearArgs> products) override;
  void matmul(const MatmulArgs& args) override;
  void silu_mul(const SiluMulArgs& args) override;
  void sigmoid_mul(const SigmoidMulArgs& args) override;
  void rope(const RopeArgs& args) override;
  void route(const RouteArgs& args) override;
  void grouped_ffn(const GroupedFfnArgs& args) override;
  void cache_write(const CacheWriteArgs& args) override;
  void cache_read(const CacheReadArgs& args) override;
  void mla_absorbed(const MlaAbsorbedArgs& args) override;
  void mla_expanded(const MlaExpandedArgs& args) override;
  void gqa(const GqaArgs& args) override;
  DType type_of_expert_outputs(const GroupedFfnArgs& args) const override;
  void copy_rows(const CopyRowsArgs& args) override;
  void sum_rows(const SumRowsArgs& args) override;
  void sum_add_norm(SumAddNormArgs& args) override;
  void causal_conv(const CausalConvArgs& args) override;
  void l2_norm(const L2NormArgs& args) override;
  void delta_gates(const DeltaGatesArgs& args) override;
  void gated_delta(const GatedDeltaArgs& args) override;
  void place_slots(const PlaceSlotsArgs& args) override;
  void pull_weighted(const PullWeightedArgs& args) override { pull_add({.pull = args}); }
  void pull_add(const PullAddArgs& args) override;
  void pull_add_norm(PullAddNormArgs& args) override;
  void attention_rows(const AttentionRowsArgs& args) override;
  void attend(const AttendArgs& args) override;
  void linear_route(const LinearRouteArgs& args) override;
  void routed_ffn(const RoutedFfnArgs& args) override;
  int64_t most_routed() const override { return kMostRoutedEntries; }
  void largest(const LargestArgs& args) override;

 private:
  // What scratch holds the rounded numbers of.
  struct RoundedFrom {
    TensorView x;
    ProductInputs inputs = ProductInputs::kRounded;
    uint64_t host_writes = 0;
    int64_t alone = 0;  // so many rows of x, the first, were not written themselves
  };
  bool is_still(const RoundedFrom& from, const TensorView& x) const;
  // Writes x [rows, cols] where only scratch has it, for an op that takes it whole after all.
  void restore(RoundedFrom& from, Buffer& scratch, const TensorView& x);

  // Checks, and notes what the launches depend on. False: a replay launches them.
  template <class Args, class... Parts>
  bool begins(const Args& args, const Parts&... parts) {
    cpu::check(args);
    recorder_.next_op();
    if constexpr (!std::is_same_v<Args, LinearArgs>) rounded_from_ = {};
    if constexpr (!std::is_same_v<Args, GroupedFfnArgs>) slots_from_ = {};
    queries_from_ = {};
    recorder_.note(parts...);
    if (recorder_.skips_launches()) return false;
    gpu_.use();
    return true;
  }
  // Recorded launches hold these addresses, and any larger step may have moved them since: where one has, the
  // step is recorded anew.
  void note_scratch();
  // A host array of arguments that are in order.
  template <class Args, class T>
  const T* put(const Args& args, std::span<const T> host) {
    cpu::check(args);
    gpu_.use();
    return uploads_.put_alone(host);
  }
  static void end(std::string_view op) { expect_success(cudaGetLastError(), op); }
  cudaStream_t stream() const { return gpu_.stream(); }

  RowMoves listed(const std::vector<RowMove>& moves);
  RowMoves on_gpu(const MoveList& list) { return list.listed.empty() ? list.moves : listed(list.listed); }

  bool zero_padding(const Mat& out, std::span<const PagedSequence> sequences);
  ProductInputs taken_as(LinearArgs::Inputs inputs) const;
  // Where an op may leave its output a second time for the product that follows.
  Rounded rounded_for(const TensorView& out);
  void round(const TensorView& x, ProductInputs inputs);
  bool by_library(Weight weight, LinearArgs::Inputs inputs, const TensorView& x, const TensorView& w,
                  const TensorView& out);
  bool by_streams(std::span<const LinearArgs> products);
  void multiply(const LinearArgs& args);
  bool fits_tensor_cores(const GroupedFfnArgs& args) const;
  bool takes_tiles(const GroupedFfnArgs& args) const;
  bool fits_routed(const RoutedFfnArgs& args) const;
  bool fits_tiles(const GqaArgs& args) const;
  bool fits_attend(const AttendArgs& args) const;
  // Where attention leaves its output once more, if it does; to be said once it is launched.
  void* rounded_for_attention(const GqaArgs& args, bool covers_all);
  void attention_left_rounded(const GqaArgs& args, int64_t alone);
  const TensorMap* maps_of(std::span<const WeightView> weights);
  const TensorMap& map_of_cache(const TensorView& cache, int page_size);
  // What attend() stands for, and its second op; `written`: whose keys and values this step writes.
  void attend_in_turn(const AttendArgs& args);
  void attend_cached(const GqaArgs& args, std::span<const PagedSequence> written);
  // Rows of queries in up to two launches.
  void attend(Attention args, const QueryRows& rows);
  void attend_tiles(Attention args, const QueryTiles& tiles, const GqaArgs& of, const RoundedFrom& queries,
                    bool alone);
  void restore_queries(const RoundedFrom& queries, const GqaArgs& args);
  ChunkMaps chunk_maps(const GqaArgs& args, const RoundedFrom& queries);
  void attend_rows(Attention args, std::span<const AttentionRow> rows, std::span<const int32_t> tables,
                   int splits);

  const ProductInputs inputs_;
  const Steps steps_;
  Gpu gpu_;
  Uploads uploads_;
  StepRecorder recorder_;
  Dense dense_;
  TensorMaps maps_;
  RoundedFrom rounded_from_;        // what rounded_ and rest_ hold
  RoundedFrom slots_from_;          // what expert_x_ holds
  RoundedFrom queries_from_;        // what queries_ holds
  Buffer queries_;                  // [rows, heads * head_dim] bf16
  Buffer rounded_, rest_;           // [rows, in] bf16: the input of a product
  Buffer expert_x_, expert_inner_;  // [slots, hidden], [slots, inter]
  Buffer taken_;                    // of experts_many_rows()
  Buffer partial_;                  // attention_scratch_floats()
  Buffer counts_, moves_;           // of place_slots
  Buffer parts_;                    // of largest
};

}  // namespace lockstep::kernels::cuda
