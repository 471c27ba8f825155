#include "lockstep/kernels/cuda/cuda_kernels.h"

#include "lockstep/kernels/cuda/cuda_ops.h"

namespace lockstep::kernels::cuda {
namespace {

int num_gpus() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

}  // namespace

void CudaKernels::step(uint64_t key, const std::function<void()>& body) {
  rounded_from_ = {};
  if (steps_ == Steps::kRecorded) {
    recorder_.step(key, body);
  } else {
    body();
  }
  rounded_from_ = {};
}

void CudaKernels::record(Fence& fence) {
  gpu_.use();
  expect_success(cudaEventRecord(static_cast<GpuFence&>(fence).event(), gpu_.stream()), "cudaEventRecord");
}

void CudaKernels::wait(const Fence& fence) {
  gpu_.use();
  expect_success(cudaStreamWaitEvent(gpu_.stream(), static_cast<const GpuFence&>(fence).event(), 0),
                 "cudaStreamWaitEvent");
}

void CudaKernels::embed(const EmbedArgs& args) {
  const int32_t* ids = put(args, args.token_ids);
  if (!begins(args, ids, numbers_of(args.table), args.out)) return;
  cuda::embed(ids, mat(numbers_of(args.table)), mat(args.out), stream());
  end("embed");
}

void CudaKernels::rms_norm(RmsNormArgs& args) {
  args.first_non_finite_row = -1;  // the logits tell; where it began is not looked for
  if (!begins(args, args.x, args.weight, args.eps, args.out)) return;
  const Rounded rounded = rounded_for(args.out);
  if (cuda::rms_norm(mat(args.x), args.weight.data, num_of(args.weight), args.eps, mat(args.out), rounded,
                     stream()))
    rounded_from_ = {args.out, ProductInputs::kWhole, gpu_.num_host_writes()};
  end("rms_norm");
}

void CudaKernels::add(const AddArgs& args) {
  if (!begins(args, args.x, args.y)) return;
  cuda::add(mat(args.x), mat(args.y), stream());
  end("add");
}

void CudaKernels::silu_mul(const SiluMulArgs& args) {
  const Gate gating = gate_of(args.gating);
  if (!begins(args, args.gate, args.up, gating.limit, gating.alpha, gating.up_shift, args.out)) return;
  cuda::silu_mul(mat(args.gate), mat(args.up), mat(args.out), gating, stream());
  end("silu_mul");
}

void CudaKernels::sigmoid_mul(const SigmoidMulArgs& args) {
  if (!begins(args, args.x, args.gate)) return;
  cuda::sigmoid_mul(mat(args.x), mat(args.gate), stream());
  end("sigmoid_mul");
}

void CudaKernels::route(const RouteArgs& args) {
  const uint8_t* valid = put(args, args.valid);
  if (!begins(args, valid, args.logits, args.bias, args.top_k, args.scale, args.expert_idx, args.weight))
    return;
  cuda::route(route_of(args, valid), stream());
  end("route");
}

void CudaKernels::copy_rows(const CopyRowsArgs& args) {
  cpu::check(args);
  const RowMoves moves = on_gpu(moves_of(args.pieces));
  for (const TensorView& source : args.sources) recorder_.note(source);
  if (!begins(args, moves.listed, moves.count, moves.first, moves.first_out, args.out)) return;
  cuda::copy_rows(sources_of(args.sources), moves, mat(args.out), stream());
  end("copy_rows");
}

void CudaKernels::sum_rows(const SumRowsArgs& args) {
  cpu::check(args);
  const RowMoves moves = on_gpu(moves_of(args.pieces));
  for (const TensorView& source : args.addends) recorder_.note(source);
  if (!begins(args, moves.listed, moves.count, moves.first, moves.first_out, args.out)) return;
  cuda::sum_rows(sources_of(args.addends), moves, mat(args.out), stream());
  end("sum_rows");
}

void CudaKernels::sum_add_norm(SumAddNormArgs& args) {
  args.first_non_finite_row = -1;
  for (const TensorView& addend : args.addends) recorder_.note(addend);
  if (!begins(args, args.residual, args.weight, args.eps, args.out)) return;
  const Rounded rounded = rounded_for(args.out);
  if (cuda::sum_add_norm(sources_of(args.addends), mat(args.residual), args.weight.data, num_of(args.weight),
                         args.eps, mat(args.out), rounded, stream()))
    rounded_from_ = {args.out, ProductInputs::kWhole, gpu_.num_host_writes()};
  end("sum_add_norm");
}

void CudaKernels::largest(const LargestArgs& args) {
  if (!begins(args, args.x, args.num_valid, args.value, args.idx)) return;
  const TensorView parts = parts_.view({2, args.x.rows() * kLargestParts});
  cuda::largest({.x = mat(args.x),
                 .valid = args.num_valid,
                 .value = args.value.as<float>(),
                 .idx = args.idx.as<int32_t>(),
                 .part_values = parts.as<float>(),
                 .part_ids = reinterpret_cast<int32_t*>(parts.as<float>() + parts.cols())},
                stream());
  end("largest");
}

void CudaKernels::note_scratch() {
  for (Buffer* scratch : {&queries_, &rounded_, &rest_, &expert_x_, &expert_inner_, &taken_, &partial_,
                          &counts_, &moves_, &parts_})
    recorder_.note(static_cast<const void*>(scratch->view({0}).data));
}

RowMoves CudaKernels::listed(const std::vector<RowMove>& moves) {
  gpu_.use();
  return {.listed = uploads_.put_alone(std::span<const RowMove>(moves)),
          .count = static_cast<int64_t>(moves.size())};
}

ProductInputs CudaKernels::taken_as(LinearArgs::Inputs inputs) const {
  return inputs == LinearArgs::Inputs::kWhole ? ProductInputs::kWhole : inputs_;
}

Rounded CudaKernels::rounded_for(const TensorView& out) {
  return {rounded_.view(DType::kBF16, {out.rows(), out.cols()}).data,
          rest_.view(DType::kBF16, {out.rows(), out.cols()}).data};
}

std::unique_ptr<Kernels> make_kernels(const DeviceChoice& choice, int rank) {
  const int count = num_gpus();
  LOCKSTEP_CHECK(count > 0, "{} GPUs", count);
  return std::make_unique<CudaKernels>(device_of_rank(rank, count), choice);
}

}  // namespace lockstep::kernels::cuda
