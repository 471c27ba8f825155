// The three forms of attention as the one kernel takes them.
#include <algorithm>

#include "lockstep/kernels/cuda/views.h"

namespace lockstep::kernels::cuda {

Attention attention_of(const GqaArgs& args) {
  const auto width = static_cast<int>(args.q.shape[2]), heads = static_cast<int>(args.q.shape[1]);
  return {.q = args.q.as<float>(),
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
          .num_heads = heads,
          .group = args.group,
          .first_in_group = args.first_in_group,
          .scale = args.scale,
          .window = args.window,
          .sinks = args.sinks.empty() ? nullptr : args.sinks.data,
          .sinks_num = args.sinks.empty() ? Num::kF32 : num_of(args.sinks)};
}

Attention attention_of(const MlaAbsorbedArgs& args) {
  const auto heads = static_cast<int>(args.q.shape[1]), width = static_cast<int>(args.cache.shape[1]);
  return {.q = args.q.as<float>(),
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
          .scale = args.scale};
}

Attention attention_of(const MlaExpandedArgs& args) {
  return {.q = args.q.as<float>(),
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
          .scale = args.scale};
}

}  // namespace lockstep::kernels::cuda
