#include "lockstep/collectives/communicator.h"

namespace lockstep::collectives {

void Communicator::fused_scatter_add_norm_gather(FusedScatterAddNormGatherArgs& args,
                                                 kernels::Kernels& kernels, AxisSet over, const Tag& tag) {
  reduce_scatter({.in = args.in, .out = args.normed, .keeps = args.keeps}, over, tag);
  kernels.add({.x = args.residual, .y = args.normed});
  kernels::RmsNormArgs norm{.x = args.residual, .weight = args.weight, .eps = args.eps, .out = args.normed};
  kernels.rms_norm(norm);
  args.first_non_finite_row = norm.first_non_finite_row;
  all_gather({.in = args.normed, .out = args.out, .pieces = args.pieces}, over, tag);
}

void Communicator::fused_combine_add(const FusedCombineAddArgs& args, kernels::Kernels& kernels, AxisSet over,
                                     const Tag& tag) {
  combine(args.combine, over, tag);
  if (args.shared.data != nullptr) kernels.add({.x = args.combine.out, .y = args.shared});
  kernels.add({.x = args.residual, .y = args.combine.out});
}

void Communicator::combine_add_norm(CombineAddNormArgs& args, kernels::Kernels& kernels, AxisSet over,
                                    const Tag& tag) {
  combine(args.combine, over, tag);
  if (args.shared.data != nullptr) kernels.add({.x = args.combine.out, .y = args.shared});
  kernels::SumAddNormArgs norm{.addends = {&args.combine.out, 1},
                               .residual = args.residual,
                               .weight = args.weight,
                               .eps = args.eps,
                               .out = args.out};
  kernels.sum_add_norm(norm);
  args.first_non_finite_row = norm.first_non_finite_row;
}

}  // namespace lockstep::collectives
