// The ops that are several others, as those.
#include "lockstep/kernels/fused_ops.h"

#include <cmath>
#include <vector>

#include "lockstep/kernels/kernels.h"

namespace lockstep::kernels {
namespace {

// One row a head; the rows of x follow each other without a gap.
TensorView each_head(const TensorView& x, int64_t head_dim, int64_t stride) {
  TensorView each = view_of(x.data, x.dtype, {x.num_elements() / stride, head_dim});
  each.stride[0] = stride;
  return each;
}

void norm_and_turn(Kernels& kernels, const AttentionRowsArgs& args, const TensorView& x, int stride,
                   const TensorView& weight, std::span<const int32_t> positions) {
  if (!weight.empty()) {
    const TensorView heads = each_head(x, args.head_dim, stride);
    RmsNormArgs norm{.x = heads, .weight = weight, .eps = args.eps, .out = heads};
    kernels.rms_norm(norm);
  }
  kernels.rope({.x = x,
                .num_heads = static_cast<int>(x.cols() / stride),
                .head_stride = stride,
                .dim = args.dim,
                .positions = positions,
                .cos = args.cos,
                .sin = args.sin,
                .pairing = RopePairing::kHalf});
}

}  // namespace

void Kernels::linears(std::span<const LinearArgs> products) {
  for (const LinearArgs& product : products) linear(product);
}

void Kernels::attention_rows(const AttentionRowsArgs& args) {
  norm_and_turn(*this, args, args.q, args.query_stride, args.q_norm, args.q_positions);
  norm_and_turn(*this, args, args.k, args.head_dim, args.k_norm, args.k_positions);
  cache_write({.x = args.k, .sequences = args.sequences, .page_size = args.page_size, .cache = args.keys});
  cache_write({.x = args.v, .sequences = args.sequences, .page_size = args.page_size, .cache = args.values});
}

void Kernels::pull_add(const PullAddArgs& args) {
  pull_weighted(args.pull);
  if (!args.plus.empty()) add({.x = args.pull.out, .y = args.plus});
  if (!args.onto.empty()) add({.x = args.onto, .y = args.pull.out});
}

void Kernels::pull_add_norm(PullAddNormArgs& args) {
  pull_add({.pull = args.pull, .plus = args.plus});
  SumAddNormArgs norm{.addends = {&args.pull.out, 1},
                      .residual = args.residual,
                      .weight = args.weight,
                      .eps = args.eps,
                      .out = args.out};
  sum_add_norm(norm);
  args.first_non_finite_row = norm.first_non_finite_row;
}

void Kernels::attend(const AttendArgs& args) {
  attention_rows(args.rows);
  gqa(args.gqa);
}

void Kernels::linear_route(const LinearRouteArgs& args) {
  linear(args.product);
  route(args.route);
}

void Kernels::routed_ffn(const RoutedFfnArgs& args) {
  place_slots(args.place);
  GroupedFfnArgs ffn = args.ffn;
  std::vector<PullWeightedArgs::Source> sources(args.pull.pull.sources.begin(), args.pull.pull.sources.end());
  if (memory().access() == Memory::Access::kByHost) {
    const TensorView& start = ffn.expert_start;
    const int64_t slots = start.as<int32_t>()[start.rows() - 1];  // in use
    for (TensorView* view : {&ffn.x, &ffn.scratch, &ffn.y}) *view = view->row_range(0, slots);
    for (PullWeightedArgs::Source& source : sources) source.y = source.y.row_range(0, slots);
  }
  grouped_ffn(ffn);
  PullAddArgs pull = args.pull;
  pull.pull.sources = sources;
  pull_add(pull);
}

void Kernels::largest(const LargestArgs& args) {
  LOCKSTEP_CHECK_GE(args.num_valid, 1);
  LOCKSTEP_CHECK_LE(args.num_valid, args.x.cols());
  for (int64_t row = 0; row < args.x.rows(); ++row) {
    const float* x = args.x.as<float>() + row * args.x.stride[0];
    int64_t best = 0;
    bool is_finite = true;
    for (int64_t at = 0; at < args.x.cols(); ++at) {
      is_finite = is_finite && std::isfinite(x[at]);
      if (at < args.num_valid && x[at] > x[best]) best = at;
    }
    args.value.as<float>()[row] = x[best];
    args.idx.as<int32_t>()[row] = is_finite ? static_cast<int32_t>(best) : -1;
  }
}

}  // namespace lockstep::kernels
