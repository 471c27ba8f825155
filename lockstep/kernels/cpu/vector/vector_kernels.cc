#include "lockstep/kernels/cpu/arguments.h"
#include "lockstep/kernels/cpu/scalar_ops.h"
#include "lockstep/kernels/cpu/vector/attention.h"
#include "lockstep/kernels/cpu/vector/vector_ops.h"
#include "lockstep/kernels/kernels.h"

namespace lockstep::kernels {
namespace {

class VectorKernels final : public Kernels {
 public:
  std::string_view name() const override { return cpu::vector_target(); }

  void embed(const EmbedArgs& args) override { cpu::embed(args); }
  void rope(const RopeArgs& args) override { cpu::rope(args); }
  void route(const RouteArgs& args) override { cpu::route(args, route_scratch_); }
  void cache_write(const CacheWriteArgs& args) override { cpu::cache_write(args); }
  void cache_read(const CacheReadArgs& args) override { cpu::cache_read(args); }
  void grouped_ffn(const GroupedFfnArgs& args) override { cpu::grouped_ffn(args, *this); }
  void delta_gates(const DeltaGatesArgs& args) override { cpu::delta_gates(args); }
  void copy_rows(const CopyRowsArgs& args) override { cpu::copy_rows(args); }
  void sum_rows(const SumRowsArgs& args) override { cpu::sum_rows(args); }
  void sum_add_norm(SumAddNormArgs& args) override { cpu::sum_add_norm(args, *this); }
  void place_slots(const PlaceSlotsArgs& args) override { cpu::place_slots(args); }
  void pull_weighted(const PullWeightedArgs& args) override { cpu::pull_weighted(args); }

  void rms_norm(RmsNormArgs& args) override {
    cpu::check(args);
    cpu::vector_rms_norm(args);
  }
  void add(const AddArgs& args) override {
    cpu::check(args);
    cpu::vector_add(args);
  }
  void linear(const LinearArgs& args) override {
    cpu::check(args);
    if (args.w.is_coded()) {
      cpu::vector_linear_coded(args, decoded_);
    } else {
      cpu::vector_linear(args);
    }
    cpu::add_bias(args);
  }
  void matmul(const MatmulArgs& args) override {
    cpu::check(args);
    if (args.w.is_coded()) {
      cpu::vector_matmul_coded(args, decoded_);
    } else {
      cpu::vector_matmul(args, cpu::ChainFrom::kZero);
    }
  }
  void silu_mul(const SiluMulArgs& args) override {
    cpu::check(args);
    cpu::vector_silu_mul(args);
  }
  void sigmoid_mul(const SigmoidMulArgs& args) override {
    cpu::check(args);
    cpu::vector_sigmoid_mul(args);
  }
  void mla_absorbed(const MlaAbsorbedArgs& args) override {
    cpu::check(args);
    cpu::vector_mla_absorbed(args, attention_scratch_);
  }
  void mla_expanded(const MlaExpandedArgs& args) override {
    cpu::check(args);
    cpu::vector_mla_expanded(args, attention_scratch_);
  }
  void gqa(const GqaArgs& args) override {
    cpu::check(args);
    cpu::vector_gqa(args, attention_scratch_);
  }
  void causal_conv(const CausalConvArgs& args) override {
    cpu::check(args);
    cpu::vector_causal_conv(args);
  }
  void l2_norm(const L2NormArgs& args) override {
    cpu::check(args);
    cpu::vector_l2_norm(args);
  }
  void gated_delta(const GatedDeltaArgs& args) override {
    cpu::check(args);
    cpu::vector_gated_delta(args);
  }

 private:
  cpu::RouteScratch route_scratch_;
  cpu::AttentionScratch attention_scratch_;
  std::vector<float> decoded_;  // a block of a coded weight
};

}  // namespace

std::unique_ptr<Kernels> make_cpu_kernels() { return std::make_unique<VectorKernels>(); }

}  // namespace lockstep::kernels
