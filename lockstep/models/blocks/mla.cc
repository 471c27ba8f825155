#include "lockstep/models/blocks/mla.h"

#include <algorithm>

namespace lockstep::models {
namespace {

constexpr float kLatentNormEps = 1e-6f;  // fixed in DeepSeek's code, whatever rms_norm_eps says

using kernels::PagedSequence;

// latent: [rows, latent + rope]: the latent normed, the key not yet rotated.
void write_latent(const MlaConfig& config, const MlaWeights& weights, const TensorView& x,
                  const TensorView& latent, const ForwardContext& context) {
  context.kernels.linear({.x = x, .w = weights.kv_a, .out = latent});
  const TensorView normed = latent.col_range(0, config.latent);
  kernels::RmsNormArgs norm{.x = normed, .weight = weights.kv_a_norm, .eps = kLatentNormEps, .out = normed};
  context.kernels.rms_norm(norm);
}

// One run over the rows of one layer: what the projections gave, and where heads' outputs go.
class MlaRun {
 public:
  MlaRun(const MlaConfig& config, const MlaWeights& weights, const Batch& batch, const TensorView& cache,
         const ForwardContext& context)
      : config_(config),
        weights_(weights),
        batch_(batch),
        cache_(cache),
        context_(context),
        heads_(weights.kv_b.rows() / (config.nope + config.value)) {}

  TensorView run(const RopeTables& rope, const TensorView& x) {
    const Range given = given_of(batch_, x.rows());
    const int64_t rows = given.size();
    const std::vector<int32_t> positions = context_.boundary.held(batch_.positions);
    const std::span<const int32_t> given_positions =
        std::span(positions).subspan(static_cast<size_t>(given.begin), static_cast<size_t>(rows));
    prompts_ = sequences_within(batch_.prompts, given);
    decodes_ = sequences_within(batch_.decodes, given);
    const bool is_made = config_.q_lora > 0;
    q_ = project_queries((is_made ? x.col_range(0, config_.q_lora) : x).row_range(given.begin, rows));
    const TensorView latent =
        is_made ? x.col_range(config_.q_lora, config_.cache_width()) : project_latent(x);
    context_.kernels.rope({.x = q_,
                           .num_heads = static_cast<int>(heads_),
                           .head_stride = config_.nope + config_.rope,
                           .offset = config_.nope,
                           .dim = config_.rope,
                           .positions = given_positions,
                           .cos = rope.cos(),
                           .sin = rope.sin()});
    context_.kernels.rope({.x = latent,
                           .num_heads = 1,
                           .head_stride = config_.cache_width(),
                           .offset = config_.latent,
                           .dim = config_.rope,
                           .positions = positions,
                           .cos = rope.cos(),
                           .sin = rope.sin()});
    for (const auto sequences : {batch_.prompts, batch_.decodes})
      context_.kernels.cache_write(
          {.x = latent, .sequences = sequences, .page_size = batch_.page_size, .cache = cache_});

    heads_out_ = context_.workspace.take({rows, heads_ * config_.value});
    // Padding rows attend to nothing. A step that a device records has none: zero() is no op that it would
    // know.
    if (num_attending() < rows)
      context_.kernels.memory().zero(heads_out_.data,
                                     static_cast<size_t>(heads_out_.num_elements()) * sizeof(float));
    for (const PagedSequence& prompt : prompts_) attend_expanded(prompt);
    if (!decodes_.empty()) attend_absorbed();
    const TensorView out = context_.workspace.take({rows, config_.hidden});
    context_.kernels.linear({.x = heads_out_, .w = weights_.o, .out = out});
    return out;
  }

 private:
  int64_t num_attending() const {
    int64_t count = 0;
    for (const auto* sequences : {&prompts_, &decodes_})
      for (const PagedSequence& sequence : *sequences) count += sequence.num_rows;
    return count;
  }

  TensorView project_queries(const TensorView& source) {
    const TensorView q = context_.workspace.take({source.rows(), heads_ * (config_.nope + config_.rope)});
    context_.kernels.linear({.x = source, .w = weights_.q_b, .out = q});
    return q;
  }

  TensorView project_latent(const TensorView& x) {
    const TensorView latent = context_.workspace.take({x.rows(), config_.cache_width()});
    write_latent(config_, weights_, x, latent, context_);
    return latent;
  }

  void attend_expanded(const PagedSequence& prompt) {
    const auto mark = context_.workspace.mark();
    const TensorView read = context_.workspace.take({prompt.context, config_.cache_width()});
    context_.kernels.cache_read(
        {.sequence = prompt, .page_size = batch_.page_size, .cache = cache_, .out = read});
    const TensorView kv = context_.workspace.take({prompt.context, heads_ * (config_.nope + config_.value)});
    context_.kernels.linear({.x = read.col_range(0, config_.latent), .w = weights_.kv_b, .out = kv});
    context_.kernels.mla_expanded(
        {.q = by_head(q_.row_range(prompt.first_row, prompt.num_rows), config_.nope + config_.rope),
         .kv = by_head(kv, config_.nope + config_.value),
         .k_rope = read.col_range(config_.latent, config_.rope),
         .nope = config_.nope,
         .scale = config_.scale,
         .out = by_head(heads_out_.row_range(prompt.first_row, prompt.num_rows), config_.value)});
    context_.workspace.release(mark);
  }

  // All decode rows at once, gathered so that each head is one product.
  void attend_absorbed() {
    const auto count = static_cast<int64_t>(decodes_.size());
    const int width = config_.cache_width(), query = config_.nope + config_.rope;
    const TensorView q = context_.workspace.take({count, heads_ * query});
    std::vector<PagedSequence> sequences = decodes_;
    std::vector<kernels::RowPiece> gathered, scattered;
    for (int64_t row = 0; row < count; ++row) {
      LOCKSTEP_CHECK_EQ(sequences[row].num_rows, 1);
      const int64_t in_batch = sequences[row].first_row;
      gathered.push_back({.src_row = in_batch, .dst_row = row, .num_rows = 1});
      scattered.push_back({.src_row = row, .dst_row = in_batch, .num_rows = 1});
      sequences[row].first_row = static_cast<int32_t>(row);
    }
    copy_rows(q_, gathered, q);
    const kernels::RowPiece all{.num_rows = count};
    const TensorView absorbed = context_.workspace.take({count, heads_ * width});
    for (int64_t head = 0; head < heads_; ++head) {
      const WeightView key = weights_.kv_b.row_range(head * (config_.nope + config_.value), config_.nope);
      context_.kernels.matmul({.x = q.col_range(head * query, config_.nope),
                               .w = key,
                               .out = absorbed.col_range(head * width, config_.latent)});
      copy_rows(q.col_range(head * query + config_.nope, config_.rope), {&all, 1},
                absorbed.col_range(head * width + config_.latent, config_.rope));
    }
    const TensorView mixed = context_.workspace.take({count, heads_ * config_.latent});
    context_.kernels.mla_absorbed({.q = by_head(absorbed, width),
                                   .sequences = sequences,
                                   .page_size = batch_.page_size,
                                   .cache = cache_,
                                   .latent = config_.latent,
                                   .scale = config_.scale,
                                   .out = by_head(mixed, config_.latent)});
    const TensorView out = context_.workspace.take({count, heads_ * config_.value});
    for (int64_t head = 0; head < heads_; ++head) {
      const WeightView value =
          weights_.kv_b.row_range(head * (config_.nope + config_.value) + config_.nope, config_.value);
      context_.kernels.linear({.x = mixed.col_range(head * config_.latent, config_.latent),
                               .w = value,
                               .out = out.col_range(head * config_.value, config_.value)});
    }
    copy_rows(out, scattered, heads_out_);
  }

  TensorView by_head(const TensorView& x, int64_t width) const {
    TensorView view = view_of(x.data, x.dtype, {x.rows(), heads_, width});
    view.stride[0] = x.stride[0];
    return view;
  }

  void copy_rows(const TensorView& from, std::span<const kernels::RowPiece> pieces, const TensorView& to) {
    context_.kernels.copy_rows({.sources = {&from, 1}, .pieces = pieces, .out = to});
  }

  const MlaConfig& config_;
  const MlaWeights& weights_;
  const Batch& batch_;
  const TensorView& cache_;
  const ForwardContext& context_;
  const int64_t heads_;
  std::vector<PagedSequence> prompts_, decodes_;  // the part of them whose outputs are asked for
  TensorView q_, heads_out_;
};

}  // namespace

TensorView mla_latents(const MlaConfig& config, const MlaWeights& weights, const TensorView& x,
                       const ForwardContext& context) {
  const TensorView made = context.workspace.take({x.rows(), config.latent_width()});
  const TensorView query = made.col_range(0, config.q_lora);
  context.kernels.linear({.x = x, .w = weights.q_a, .out = query});
  kernels::RmsNormArgs norm{.x = query, .weight = weights.q_a_norm, .eps = kLatentNormEps, .out = query};
  context.kernels.rms_norm(norm);
  write_latent(config, weights, x, made.col_range(config.q_lora, config.cache_width()), context);
  return made;
}

TensorView run_mla(const MlaConfig& config, const MlaWeights& weights, const RopeTables& rope,
                   const Batch& batch, const TensorView& cache, const TensorView& x,
                   const ForwardContext& context) {
  return MlaRun(config, weights, batch, cache, context).run(rope, x);
}

}  // namespace lockstep::models
