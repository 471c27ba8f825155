// Products, experts, and the way of rows to the experts and back.
#include <algorithm>

#include "lockstep/kernels/cuda/cuda_ops.h"

namespace lockstep::kernels::cuda {

// Into rounded_, and what that takes off into rest_, unless it is there.
void CudaKernels::round(const TensorView& x, ProductInputs inputs) {
  const bool whole = inputs == ProductInputs::kWhole;
  void* rounded = rounded_.view(DType::kBF16, {x.rows(), x.cols()}).data;
  void* rest = whole ? rest_.view(DType::kBF16, {x.rows(), x.cols()}).data : nullptr;
  if (whole) restore(rounded_from_, rounded_, x);
  if (is_still(rounded_from_, x) && (rounded_from_.inputs == ProductInputs::kWhole || !whole)) return;
  to_bf16(mat(x), rounded, rest, stream());
  rounded_from_ = {x, inputs, gpu_.num_host_writes()};
}

void CudaKernels::restore(RoundedFrom& from, Buffer& scratch, const TensorView& x) {
  if (from.alone == 0 || !is_still(from, x)) return;
  from_bf16(scratch.view({0}).data, mat(x), stream());
  from.alone = 0;
}

// Whether it is that of the op before: any other may have changed it.
bool CudaKernels::is_still(const RoundedFrom& from, const TensorView& x) const {
  return from.x.data == x.data && from.x.shape == x.shape && from.x.stride == x.stride &&
         from.host_writes == gpu_.num_host_writes();
}

bool CudaKernels::by_library(Weight weight, LinearArgs::Inputs inputs, const TensorView& x,
                             const TensorView& w, const TensorView& out) {
  if (w.dtype != DType::kBF16) return false;
  if (out.rows() == 0 || out.cols() == 0) return true;
  const ProductInputs taken = taken_as(inputs);
  round(x, taken);
  const void* rounded = rounded_.view({0}).data;
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
  if (!dense_.product(shape, Onto::kNothing, rounded, w.data, out.as<float>())) return false;
  return taken == ProductInputs::kRounded ||
         dense_.product(shape, Onto::kSum, rest_.view({0}).data, w.data, out.as<float>());
}

// Few rows with weights that can be streamed: one kernel for all of them, biases too.
bool CudaKernels::by_streams(std::span<const LinearArgs> products) {
  if (products.empty() || products.size() > static_cast<size_t>(kMostStreamed)) return false;
  const TensorView& x = products[0].x;
  bool whole = false;
  int64_t outs = 0;
  for (const LinearArgs& product : products) {
    const TensorView& w = numbers_of(product.w);
    const bool fits = w.dtype == DType::kBF16 && is_aligned16(w.data) && w.stride[0] % 8 == 0 && w.rows() > 0;
    if (!fits) return false;
    whole = whole || taken_as(product.inputs) == ProductInputs::kWhole;
    outs += w.rows();
  }
  if (x.rows() == 0 || !streams(x.cols(), x.rows(), outs, whole ? 2 : 1)) return false;
  round(x, whole ? ProductInputs::kWhole : ProductInputs::kRounded);
  StreamedProducts streamed{.x = rounded_.view({0}).data,
                            .rest = whole ? rest_.view({0}).data : nullptr,
                            .rows = static_cast<int>(x.rows()),
                            .depth = static_cast<int>(x.cols())};
  for (const LinearArgs& product : products) {
    const TensorView& w = numbers_of(product.w);
    add_streamed(streamed, {.w = w.data,
                            .stride = w.stride[0],
                            .outs = static_cast<int>(w.rows()),
                            .out = product.out.as<float>(),
                            .out_stride = product.out.stride[0],
                            .bias = product.bias.empty() ? nullptr : product.bias.data,
                            .bias_num = num_of(product.bias)});
    if (overlap(product.out, x)) rounded_from_ = {};
  }
  streamed_products(streamed, stream());
  return true;
}

void CudaKernels::multiply(const LinearArgs& args) {
  if (by_streams({&args, 1})) return;
  if (args.w.cols() == 0) {
    zero_rows(mat(args.out), stream());
  } else if (!by_library(Weight::kOutIn, args.inputs, args.x, numbers_of(args.w), args.out)) {
    restore(rounded_from_, rounded_, args.x);
    plain_linear(mat(args.x), mat(numbers_of(args.w)), mat(args.out), stream());
  }
  if (rounded_from_.x.data != nullptr && overlap(args.out, rounded_from_.x)) rounded_from_ = {};
  if (!args.bias.empty()) add_bias(mat(args.out), args.bias.data, num_of(args.bias), stream());
}

void CudaKernels::linear(const LinearArgs& args) {
  if (!begins(args, args.x, numbers_of(args.w), args.out, args.bias)) return;
  multiply(args);
  end("linear");
}

void CudaKernels::linears(std::span<const LinearArgs> products) {
  bool launches = true;
  for (const LinearArgs& args : products)
    launches = begins(args, args.x, numbers_of(args.w), args.out, args.bias) && launches;
  if (!launches) return;
  if (!by_streams(products))
    for (const LinearArgs& args : products) multiply(args);
  end("linears");
}

void CudaKernels::matmul(const MatmulArgs& args) {
  if (!begins(args, args.x, numbers_of(args.w), args.out)) return;
  if (args.w.rows() == 0) {
    zero_rows(mat(args.out), stream());
  } else if (!by_library(Weight::kInOut, LinearArgs::Inputs::kMayRound, args.x, numbers_of(args.w),
                         args.out)) {
    plain_matmul(mat(args.x), mat(numbers_of(args.w)), mat(args.out), stream());
  }
  end("matmul");
}

bool CudaKernels::fits_tensor_cores(const GroupedFfnArgs& args) const {
  const auto whole_pieces = [](std::span<const WeightView> weights) {
    return std::all_of(weights.begin(), weights.end(), [](const WeightView& weight) {
      return weight.plain.dtype == DType::kBF16 && is_aligned16(weight.plain.data) &&
             weight.plain.stride[0] % 8 == 0;
    });
  };
  return inputs_ == ProductInputs::kRounded &&
         experts_fit_tensor_cores(static_cast<int64_t>(args.gate.size()), args.x.cols(),
                                  args.gate[0].rows()) &&
         whole_pieces(args.gate) && whole_pieces(args.up) && whole_pieces(args.down);
}

bool CudaKernels::takes_tiles(const GroupedFfnArgs& args) const {
  return !args.gate.empty() && fits_tensor_cores(args) &&
         (experts_take_tiles(args.x.rows(), static_cast<int64_t>(args.gate.size()), args.x.cols(),
                             args.gate[0].rows()) ||
          args.gate[0].plain.stride[0] != args.up[0].plain.stride[0]);
}

DType CudaKernels::type_of_expert_outputs(const GroupedFfnArgs& args) const {
  return takes_tiles(args) ? DType::kBF16 : DType::kF32;
}

const TensorMap* CudaKernels::maps_of(std::span<const WeightView> weights) {
  std::vector<TensorMap> maps;
  for (const WeightView& weight : weights)
    maps.push_back(maps_.of({.data = weight.plain.data,
                             .rows = weight.rows(),
                             .cols = weight.cols(),
                             .stride = weight.plain.stride[0]}));
  return uploads_.put(std::span<const TensorMap>(maps));
}

void CudaKernels::grouped_ffn(const GroupedFfnArgs& args) {
  cpu::check(args);
  gpu_.use();
  const int64_t slots = args.x.rows(), hidden = args.x.cols();
  if (slots == 0 || args.gate.empty()) return;
  const bool is_rounded = is_still(slots_from_, args.x);
  const int64_t inter = args.gate[0].rows();
  const auto gate = pointers_of(args.gate), up = pointers_of(args.up), down = pointers_of(args.down);
  const ExpertBiases biases = biases_of(args);
  const bool many_rows = takes_tiles(args), rounds_y = args.y.dtype == DType::kBF16;
  LOCKSTEP_CHECK(many_rows || !rounds_y, "outputs of {} slots as {}", slots, name_of(args.y.dtype));
  const size_t bytes = gate.size() * sizeof(void*),
               map_bytes = many_rows ? gate.size() * sizeof(TensorMap) : 0;
  uploads_.make_room({bytes, bytes, bytes, bytes, bytes, bytes, map_bytes, map_bytes, map_bytes});
  ExpertMaps maps;
  if (many_rows) {
    maps.gate = maps_of(args.gate);
    maps.up = maps_of(args.up);
    maps.down = maps_of(args.down);
  }
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
                  .y = rounds_y ? nullptr : args.y.as<float>(),
                  .y_stride = args.y.stride[0],
                  .rounded_y = rounds_y ? args.y.data : nullptr};
  if (!biases.gate.empty()) {
    experts.gate_bias = uploads_.put(std::span<const void* const>(biases.gate));
    experts.up_bias = uploads_.put(std::span<const void* const>(biases.up));
    experts.down_bias = uploads_.put(std::span<const void* const>(biases.down));
  }
  if (!begins(args, experts.gate, experts.up, experts.down, experts.gate_bias, experts.up_bias,
              experts.down_bias, experts.gating.limit, experts.gating.alpha, experts.gating.up_shift, args.x,
              maps.gate, maps.up, maps.down, args.expert_start, args.gate[0].plain, args.up[0].plain,
              args.down[0].plain, args.y))
    return;
  if (fits_tensor_cores(args)) {
    void* x = expert_x_.view(DType::kBF16, {slots, hidden}).data;
    if (!is_rounded) to_bf16(mat(args.x), x, nullptr, stream());
    experts.x = x;
    experts.x_stride = hidden;
    experts.inner = expert_inner_.view(DType::kBF16, {slots, inter}).data;
    if (many_rows) {
      const auto map_of_slots = [&](const void* data, int64_t cols) {
        return make_tensor_map(MappedMatrix{
            .data = data, .rows = slots, .cols = cols, .stride = cols, .box_rows = kExpertMapRows});
      };
      maps.x = map_of_slots(x, hidden);
      maps.inner = map_of_slots(experts.inner, inter);
      experts.taken = taken_.view(DType::kI32, {2}).as<int>();
      experts_many_rows(experts, maps, stream());
    } else {
      streamed_experts(experts, stream());
    }
  } else {
    restore(slots_from_, expert_x_, args.x);
    experts.x = args.x.data;
    experts.x_stride = args.x.stride[0];
    experts.inner = expert_inner_.view({slots, inter}).data;
    experts_plain(experts, stream());
  }
  end("grouped_ffn");
}

bool CudaKernels::fits_routed(const RoutedFfnArgs& args) const {
  const PlaceSlotsArgs::Source& source = args.place.sources[0];
  const TensorView& weight = args.pull.pull.weight;
  const int64_t rows = source.x.rows(), top_k = source.expert_idx.cols();
  const auto contiguous = [](const TensorView& x) { return x.rows() <= 1 || x.stride[0] == x.cols(); };
  return !args.ffn.gate.empty() && fits_tensor_cores(args.ffn) &&
         experts_fit_routed(rows, top_k, source.x.cols(), args.ffn.gate[0].rows()) &&
         args.ffn.gate[0].plain.stride[0] == args.ffn.up[0].plain.stride[0] &&
         contiguous(source.expert_idx) && contiguous(weight) && is_aligned16(source.x.data) &&
         source.x.stride[0] % 4 == 0;
}

void CudaKernels::routed_ffn(const RoutedFfnArgs& args) {
  cpu::check(args);
  if (!fits_routed(args)) return Kernels::routed_ffn(args);
  gpu_.use();
  const GroupedFfnArgs& ffn = args.ffn;
  const PlaceSlotsArgs::Source& source = args.place.sources[0];
  const TensorView &out = args.pull.pull.out, &weight = args.pull.pull.weight;
  const auto gate = pointers_of(ffn.gate), up = pointers_of(ffn.up), down = pointers_of(ffn.down);
  const ExpertBiases biases = biases_of(ffn);
  const size_t bytes = gate.size() * sizeof(void*);
  uploads_.make_room({bytes, bytes, bytes, bytes, bytes, bytes});
  RoutedExperts routed{.experts = {.num_experts = static_cast<int>(gate.size()),
                                   .gate = uploads_.put(std::span<const void* const>(gate)),
                                   .up = uploads_.put(std::span<const void* const>(up)),
                                   .down = uploads_.put(std::span<const void* const>(down)),
                                   .gate_stride = ffn.gate[0].plain.stride[0],
                                   .up_stride = ffn.up[0].plain.stride[0],
                                   .down_stride = ffn.down[0].plain.stride[0],
                                   .bias_num = biases.num,
                                   .gating = gate_of(ffn.gating),
                                   .hidden = static_cast<int>(source.x.cols()),
                                   .inter = static_cast<int>(ffn.gate[0].rows()),
                                   .x = source.x.data,
                                   .x_stride = source.x.stride[0]},
                       .expert_idx = source.expert_idx.as<int32_t>(),
                       .weight = weight.as<float>(),
                       .rows = static_cast<int>(source.x.rows()),
                       .top_k = static_cast<int>(source.expert_idx.cols()),
                       .first_expert = static_cast<int>(args.place.first_expert),
                       .out = mat(out)};
  if (!biases.gate.empty()) {
    routed.experts.gate_bias = uploads_.put(std::span<const void* const>(biases.gate));
    routed.experts.up_bias = uploads_.put(std::span<const void* const>(biases.up));
    routed.experts.down_bias = uploads_.put(std::span<const void* const>(biases.down));
  }
  if (!args.pull.plus.empty()) routed.plus = mat(args.pull.plus);
  if (!args.pull.onto.empty()) routed.onto = mat(args.pull.onto);
  const Experts& of = routed.experts;
  if (!begins(args, of.gate, of.up, of.down, of.gate_bias, of.up_bias, of.down_bias, of.gating.limit,
              of.gating.alpha, of.gating.up_shift, source.x, source.expert_idx, args.place.first_expert,
              weight, ffn.gate[0].plain, ffn.up[0].plain, ffn.down[0].plain, out, args.pull.plus,
              args.pull.onto))
    return;
  routed.experts.inner =
      expert_inner_.view(DType::kBF16, {int64_t{routed.rows} * routed.top_k, of.inter}).data;
  routed_experts(routed, stream());
  end("routed_ffn");
}

// What the norm before has left rounded is still that of x.
void CudaKernels::linear_route(const LinearRouteArgs& args) {
  const LinearArgs& product = args.product;
  const TensorView& w = numbers_of(product.w);
  const bool fits = args.route.top_groups >= args.route.num_groups &&
                    router_fits_one_kernel(product.x.rows(), product.x.cols(), w.rows(), args.route.top_k) &&
                    w.dtype == DType::kBF16 && is_aligned16(w.data) && w.stride[0] % 8 == 0 &&
                    is_aligned16(product.x.data) && product.x.stride[0] % 4 == 0 &&
                    taken_as(product.inputs) == ProductInputs::kWhole;
  if (!fits) return Kernels::linear_route(args);
  const uint8_t* valid = put(args, args.route.valid);
  const RoundedFrom rounded = rounded_from_;
  const bool launches = begins(args, valid, product.x, w, product.bias, args.route.logits, args.route.bias,
                               args.route.top_k, args.route.scale, args.route.expert_idx, args.route.weight);
  rounded_from_ = rounded;
  if (!launches) return;
  RouterProduct of{.x = mat(product.x), .w = mat(w)};
  if (!product.bias.empty()) {
    of.bias = product.bias.data;
    of.bias_num = num_of(product.bias);
  }
  product_and_route(of, route_of(args.route, valid), stream());
  end("linear_route");
}

void CudaKernels::place_slots(const PlaceSlotsArgs& args) {
  for (const PlaceSlotsArgs::Source& source : args.sources)
    recorder_.note(source.x, source.expert_idx, source.slot_of);
  if (!begins(args, args.first_expert, args.expert_start, args.out)) return;
  LOCKSTEP_CHECK_LE(args.sources.size(), static_cast<size_t>(kMaxSources));
  const int64_t num_local = args.expert_start.rows() - 1, capacity = args.out.rows();
  Place place{
      .num_sources = static_cast<int>(args.sources.size()),
      .first_expert = static_cast<int>(args.first_expert),
      .num_local = static_cast<int>(num_local),
      .counts = counts_.view(DType::kI32, {ceil_div(capacity, kThreads) + 1, num_local}).as<int32_t>(),
      .start = args.expert_start.as<int32_t>(),
      .moves = static_cast<RowMove*>(moves_.view(DType::kI32, {capacity, 3}).data),
      .capacity = num_local == 0 ? 0 : capacity,
      .out = mat(args.out)};
  const bool rounds = inputs_ == ProductInputs::kRounded;
  int64_t entries = 0;
  for (const PlaceSlotsArgs::Source& source : args.sources) entries += source.expert_idx.num_elements();
  place.rounded_alone =
      rounds && args.readers == Readers::kNextRounds && !places_entry_by_entry(entries, num_local);
  if (rounds) place.rounded = expert_x_.view(DType::kBF16, {capacity, args.out.cols()}).data;
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
  place.rows = sources_of(rows);
  cuda::place_slots(place, stream());
  if (rounds)
    slots_from_ = {args.out, ProductInputs::kRounded, gpu_.num_host_writes(),
                   place.rounded_alone ? capacity : 0};
  end("place_slots");
}

namespace {

Pull pull_of(const PullWeightedArgs& args, const TensorView& plus) {
  LOCKSTEP_CHECK_LE(args.sources.size(), static_cast<size_t>(kMaxSources));
  LOCKSTEP_CHECK(args.weight.rows() <= 1 || args.weight.stride[0] == args.weight.cols(),
                 "weights {} apart, {} a row", args.weight.stride[0], args.weight.cols());
  Pull pull{.num_sources = static_cast<int>(args.sources.size()),
            .top_k = static_cast<int>(args.weight.cols()),
            .weight = args.weight.as<float>(),
            .out = mat(args.out)};
  if (!args.sources.empty()) pull.y_num = num_of(args.sources[0].y);
  if (!plus.empty()) pull.plus = mat(plus);
  for (size_t s = 0; s < args.sources.size(); ++s) {
    pull.y[s] = args.sources[s].y.data;
    pull.y_stride[s] = args.sources[s].y.stride[0];
    pull.slot_of[s] = args.sources[s].slot_of.as<int32_t>();
  }
  return pull;
}

bool pulls_whole_rows(const Pull& pull) { return pull.out.rows >= kManyPulled || pull.y_num == Num::kBF16; }

}  // namespace

void CudaKernels::pull_add(const PullAddArgs& all) {
  const PullWeightedArgs& args = all.pull;
  for (const PullWeightedArgs::Source& source : args.sources) recorder_.note(source.y, source.slot_of);
  if (!begins(all, args.weight, args.out, all.plus, all.onto)) return;
  Pull pull = pull_of(args, all.plus);
  if (!all.onto.empty()) pull.onto = mat(all.onto);
  if (!pulls_whole_rows(pull) || !pull_rows(pull, stream())) {
    LOCKSTEP_CHECK(pull.y_num == Num::kF32, "outputs of experts in bf16, {} wide", args.out.cols());
    cuda::pull_weighted(pull, stream());
  }
  end("pull_add");
}

// Few rows go op by op.
void CudaKernels::pull_add_norm(PullAddNormArgs& args) {
  cpu::check(args);
  PullNorm pull{.pull = pull_of(args.pull, args.plus),
                .residual = mat(args.residual),
                .weight = args.weight.data,
                .weight_num = num_of(args.weight),
                .eps = args.eps,
                .out = mat(args.out)};
  if (!pulls_whole_rows(pull.pull) || !fits_pull_norm(pull)) return Kernels::pull_add_norm(args);
  args.first_non_finite_row = -1;
  for (const PullWeightedArgs::Source& source : args.pull.sources) recorder_.note(source.y, source.slot_of);
  if (!begins(args, args.pull.weight, args.plus, args.residual, args.weight, args.eps, args.out)) return;
  const bool alone = inputs_ == ProductInputs::kRounded && args.out_readers == Readers::kNextRounds;
  pull.rounded = rounded_for(args.out);
  pull.rounded_alone = alone;
  pull_norm_rows(pull, stream());
  rounded_from_ = {args.out, alone ? ProductInputs::kRounded : ProductInputs::kWhole, gpu_.num_host_writes(),
                   alone ? args.out.rows() : 0};
  end("pull_add_norm");
}

}  // namespace lockstep::kernels::cuda
