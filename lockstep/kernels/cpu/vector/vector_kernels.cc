#include <atomic>
#include <limits>

#include "lockstep/kernels/cpu/arguments.h"
#include "lockstep/kernels/cpu/elements.h"
#include "lockstep/kernels/cpu/vector/shares.h"
#include "lockstep/kernels/cpu/vector/vector_ops.h"
#include "lockstep/kernels/kernels.h"

namespace lockstep::kernels {
namespace {

using cpu::over_rows;
using cpu::ThreadScratch;

class VectorKernels final : public Kernels {
 public:
  explicit VectorKernels(const CpuThreads& threads)
      : crew_(threads.count, threads.wait == CpuThreads::Wait::kSpin ? cpu::ComputeThreads::Wait::kSpin
                                                                     : cpu::ComputeThreads::Wait::kSleep) {}

  std::string_view name() const override { return cpu::vector_target(); }

  void cache_read(const CacheReadArgs& args) override { cpu::cache_read(args); }
  void delta_gates(const DeltaGatesArgs& args) override { cpu::delta_gates(args); }
  void copy_rows(const CopyRowsArgs& args) override { cpu::copy_rows(args); }
  void sum_rows(const SumRowsArgs& args) override { cpu::sum_rows(args); }

  void embed(const EmbedArgs& args) override {
    cpu::check(args);
    over_rows(crew_, std::ssize(args.token_ids), args.table.num_cols, [&](Range rows, ThreadScratch&) {
      cpu::embed({.token_ids = args.token_ids.subspan(static_cast<size_t>(rows.begin),
                                                      static_cast<size_t>(rows.size())),
                  .table = args.table,
                  .out = part(args.out, rows)});
    });
  }
  void cache_write(const CacheWriteArgs& args) override {
    cpu::check(args);
    for (const PagedSequence& sequence : args.sequences)
      over_rows(crew_, sequence.num_rows, 4 * args.x.cols(), [&](Range rows, ThreadScratch&) {
        PagedSequence some = sequence;
        some.first_row += static_cast<int32_t>(rows.begin);
        some.num_rows = static_cast<int32_t>(rows.size());
        some.context -= sequence.num_rows - static_cast<int32_t>(rows.end);
        cpu::cache_write({.x = args.x,
                          .sequences = std::span(&some, 1),
                          .page_size = args.page_size,
                          .cache = args.cache});
      });
  }
  void rope(const RopeArgs& args) override {
    cpu::check(args);
    over_rows(crew_, std::ssize(args.positions), int64_t{args.num_heads} * args.dim,
              [&](Range rows, ThreadScratch&) {
                RopeArgs some = args;
                some.x = part(args.x, rows);
                some.positions =
                    args.positions.subspan(static_cast<size_t>(rows.begin), static_cast<size_t>(rows.size()));
                cpu::rope(some);
              });
  }
  void route(const RouteArgs& args) override {
    cpu::check(args);
    constexpr int64_t kCostOfScore = 16;  // an exponential in double precision and a place in a sort
    over_rows(crew_, args.logits.rows(), kCostOfScore * args.logits.cols(),
              [&](Range rows, ThreadScratch& scratch) {
                RouteArgs some = args;
                some.logits = part(args.logits, rows);
                some.valid =
                    args.valid.subspan(static_cast<size_t>(rows.begin), static_cast<size_t>(rows.size()));
                some.expert_idx = part(args.expert_idx, rows);
                some.weight = part(args.weight, rows);
                cpu::route(some, scratch.route);
              });
  }
  void rms_norm(RmsNormArgs& args) override {
    cpu::check(args);
    in_row_order(args, [&](RmsNormArgs& some, Range rows) {
      some.x = part(args.x, rows);
      some.out = part(args.out, rows);
      cpu::vector_rms_norm(some);
    });
  }
  void sum_add_norm(SumAddNormArgs& args) override {
    cpu::check(args);
    in_row_order(args, [&](SumAddNormArgs& some, Range rows) {
      std::vector<TensorView> addends;
      for (const TensorView& addend : args.addends) addends.push_back(part(addend, rows));
      some.addends = addends;
      some.residual = part(args.residual, rows);
      some.out = part(args.out, rows);
      cpu::sum_add_norm(some, {.add = cpu::vector_add, .rms_norm = cpu::vector_rms_norm});
    });
  }
  void add(const AddArgs& args) override {
    cpu::check(args);
    over_rows(crew_, args.x.rows(), args.x.cols(), [&](Range rows, ThreadScratch&) {
      cpu::vector_add({.x = part(args.x, rows), .y = part(args.y, rows)});
    });
  }
  void silu_mul(const SiluMulArgs& args) override {
    cpu::check(args);
    over_rows(crew_, args.gate.rows(), args.gate.cols(), [&](Range rows, ThreadScratch&) {
      cpu::vector_silu_mul({.gate = part(args.gate, rows),
                            .up = part(args.up, rows),
                            .out = part(args.out, rows),
                            .gating = args.gating});
    });
  }
  void sigmoid_mul(const SigmoidMulArgs& args) override {
    cpu::check(args);
    over_rows(crew_, args.x.rows(), args.x.cols(), [&](Range rows, ThreadScratch&) {
      cpu::vector_sigmoid_mul({.x = part(args.x, rows), .gate = part(args.gate, rows)});
    });
  }
  void l2_norm(const L2NormArgs& args) override {
    cpu::check(args);
    over_rows(crew_, args.x.rows(), args.x.shape[1] * args.x.shape[2], [&](Range rows, ThreadScratch&) {
      cpu::vector_l2_norm({.x = part(args.x, rows), .eps = args.eps, .scale = args.scale});
    });
  }
  void place_slots(const PlaceSlotsArgs& args) override {
    cpu::check(args);
    cpu::choose_slots(args);
    for (const PlaceSlotsArgs::Source& source : args.sources)
      over_rows(crew_, source.x.rows(), source.slot_of.cols() * args.out.cols(),
                [&](Range rows, ThreadScratch&) { cpu::copy_to_slots(source, rows, args.out); });
  }
  void pull_weighted(const PullWeightedArgs& args) override {
    cpu::check(args);
    over_rows(crew_, args.out.rows(), args.weight.cols() * args.out.cols(), [&](Range rows, ThreadScratch&) {
      std::vector<PullWeightedArgs::Source> sources(args.sources.begin(), args.sources.end());
      for (PullWeightedArgs::Source& source : sources) source.slot_of = part(source.slot_of, rows);
      cpu::vector_pull_weighted(
          {.sources = sources, .weight = part(args.weight, rows), .out = part(args.out, rows)});
    });
  }

  void linear(const LinearArgs& args) override {
    cpu::check(args);
    const auto cut = cpu::cut_product(args.x.rows(), args.w.num_rows, args.w.num_cols, crew_.threads.size());
    crew_.for_each(cut.count(), [&](int64_t tile, ThreadScratch& scratch) {
      cpu::run_linear(args, cut.rows(tile), cut.outs(tile), scratch);
    });
  }
  // The tiles of all are shared out together, so that threads wait for each other once.
  void linears(std::span<const LinearArgs> products) override {
    cuts_.clear();
    int64_t num_tiles = 0;
    for (const LinearArgs& args : products) {
      cpu::check(args);
      cuts_.push_back(
          cpu::cut_product(args.x.rows(), args.w.num_rows, args.w.num_cols, crew_.threads.size()));
      num_tiles += cuts_.back().count();
    }
    crew_.for_each(num_tiles, [&](int64_t tile, ThreadScratch& scratch) {
      size_t at = 0;
      for (; tile >= cuts_[at].count(); ++at) tile -= cuts_[at].count();
      cpu::run_linear(products[at], cuts_[at].rows(tile), cuts_[at].outs(tile), scratch);
    });
  }
  void matmul(const MatmulArgs& args) override {
    cpu::check(args);
    over_rows(crew_, args.x.rows(), args.x.cols() * args.w.num_cols, [&](Range rows, ThreadScratch& scratch) {
      const MatmulArgs some{.x = part(args.x, rows), .w = args.w, .out = part(args.out, rows)};
      if (args.w.is_coded()) {
        cpu::vector_matmul_coded(some, scratch.decoded);
      } else {
        cpu::vector_matmul(some, cpu::ChainFrom::kZero);
      }
    });
  }
  void grouped_ffn(const GroupedFfnArgs& args) override {
    cpu::check(args);
    cpu::grouped_ffn_on(crew_, args, tiles_);
  }

  void mla_absorbed(const MlaAbsorbedArgs& args) override {
    cpu::check(args);
    cpu::fill_padding(args.out, args.sequences);
    const auto parts = cpu::parts_of(args, crew_.threads.size());
    crew_.for_each(std::ssize(parts), [&](int64_t at, ThreadScratch& scratch) {
      cpu::vector_mla_absorbed(args, parts[static_cast<size_t>(at)], scratch.attention);
    });
  }
  void mla_expanded(const MlaExpandedArgs& args) override {
    cpu::check(args);
    const auto parts = cpu::parts_of(args);
    crew_.for_each(std::ssize(parts), [&](int64_t at, ThreadScratch& scratch) {
      cpu::vector_mla_expanded(args, parts[static_cast<size_t>(at)], scratch.attention);
    });
  }
  void gqa(const GqaArgs& args) override {
    cpu::check(args);
    cpu::fill_padding(args.out, args.sequences);
    const auto parts = cpu::parts_of(args);
    crew_.for_each(std::ssize(parts), [&](int64_t at, ThreadScratch& scratch) {
      cpu::vector_gqa(args, parts[static_cast<size_t>(at)], scratch.attention);
    });
  }
  void causal_conv(const CausalConvArgs& args) override {
    cpu::check(args);
    cpu::vector_causal_conv(args);
  }
  void gated_delta(const GatedDeltaArgs& args) override {
    cpu::check(args);
    cpu::fill_padding(args.out, args.sequences);
    const int64_t heads = args.v.shape[1];
    crew_.for_each(std::ssize(args.sequences) * heads, [&](int64_t at, ThreadScratch&) {
      cpu::vector_gated_delta(args, args.sequences[static_cast<size_t>(at / heads)], at % heads);
    });
  }

 private:
  // Rows of a matrix or a cube; of one that is empty too.
  static TensorView part(const TensorView& view, Range rows) {
    return view.row_range(rows.begin, rows.size());
  }

  // For ops that say which row was the first that is not finite.
  template <class Args, class Body>
  void in_row_order(Args& args, Body&& body) {
    std::atomic<int64_t> first = std::numeric_limits<int64_t>::max();
    over_rows(crew_, args.out.rows(), args.out.cols(), [&](Range rows, ThreadScratch&) {
      Args some = args;
      body(some, rows);
      if (some.first_non_finite_row < 0) return;
      const int64_t found = rows.begin + some.first_non_finite_row;
      int64_t known = first.load();
      while (found < known && !first.compare_exchange_weak(known, found)) {
      }
    });
    args.first_non_finite_row = first.load() == std::numeric_limits<int64_t>::max() ? -1 : first.load();
  }

  cpu::Crew crew_;
  std::vector<cpu::ExpertTile> tiles_;
  std::vector<cpu::ProductCut> cuts_;
};

}  // namespace

std::unique_ptr<Kernels> make_cpu_kernels(const CpuThreads& threads) {
  return std::make_unique<VectorKernels>(threads);
}

}  // namespace lockstep::kernels
