#include "lockstep/runtime/executor/rank.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "lockstep/base/control_groups.h"
#include "lockstep/base/hash.h"
#include "lockstep/base/log.h"

namespace lockstep::runtime {
namespace {

constexpr size_t kRowsOfAHelper = 8;
constexpr int kMostHelpers = 11;

// A GPU leaves the host's cores idle, and looking through a large vocabulary takes one of them long.
std::unique_ptr<JobThreads> helpers_beside(const Memory& memory, int num_ranks) {
  if (memory.access() == Memory::Access::kByHost) return nullptr;
  const int cores_a_rank = usable_cores() / num_ranks;
  return std::make_unique<JobThreads>(std::clamp(cores_a_rank - 1, 0, kMostHelpers), "--tp-size");
}

models::Shard shard(const planning::RankGrid& grid, int rank, planning::AxisSet over) {
  return {.index = grid.index_in_group(rank, over), .parts = grid.size(over)};
}

}  // namespace

models::Shards shards_of(const planning::RankGrid& grid, const planning::StageOptions& stages, int rank) {
  const planning::WeightSplits splits = planning::weight_splits(grid, stages);
  return {.attention = shard(grid, rank, splits.attention),
          .dense = shard(grid, rank, splits.dense),
          .expert_parallel = shard(grid, rank, splits.expert_parallel),
          .expert_tp = shard(grid, rank, splits.expert_tp),
          .shared = shard(grid, rank, splits.shared),
          .head = shard(grid, rank, splits.head),
          .embedding = shard(grid, rank, splits.embedding),
          .drafting = stages.drafting};
}

Rank::Rank(const RankExecutorParts& parts, int rank, collectives::InProcessWorld& world)
    : parts_(parts),
      rank_(rank),
      replica_(parts.plans->grid.replica_of(rank)),
      kernels_(kernels::make_kernels(parts.options.device, rank)),
      communicator_(world.communicator(rank, *kernels_)),
      workspace_(kernels_->memory()),
      boundary_({.plans = *parts.plans,
                 .rank = rank,
                 .hidden = parts.options.hidden,
                 .communicator = *communicator_,
                 .kernels = *kernels_,
                 .marks = marks_of_steps()}),
      kept_(kernels_->memory()),
      host_logits_(kernels_->memory().host_side()),
      host_ids_(kernels_->memory().host_side()),
      largest_values_(kernels_->memory()),
      largest_ids_(kernels_->memory()),
      helpers_(helpers_beside(kernels_->memory(), parts.plans->grid.num_ranks())) {}

Status Rank::load(std::atomic<uint64_t>& bytes_read) {
  models::Shards shards = shards_of(parts_.plans->grid, parts_.stages, rank_);
  shards.memory = &kernels_->memory();
  models::WeightSource source(*parts_.checkpoint);
  source.threads = parts_.options.device.cpu.count;
  source.bytes_read = &bytes_read;
  source.encode_as = parts_.options.quantization;
  auto model = parts_.description->load(source, shards);
  if (!model) return model.error();
  model_ = std::move(model).value();
  auto cache =
      CacheMemory::allocate(parts_.description->cache_needs(shards),
                            {.tokens = parts_.options.pages_per_replica * parts_.options.page_size,
                             .slots = parts_.shape.capacity.max_requests + parts_.options.num_snapshots,
                             .token_dtype = parts_.options.cache_dtype},
                            kernels_->memory());
  if (!cache) return cache.error();
  cache_ = *std::move(cache);
  if (parts_.plans->draft) {
    draft_boundary_ =
        std::make_unique<collectives::Boundary>(collectives::Boundary::Parts{.plans = *parts_.plans->draft,
                                                                             .rank = rank_,
                                                                             .hidden = parts_.options.hidden,
                                                                             .communicator = *communicator_,
                                                                             .kernels = *kernels_,
                                                                             .marks = marks_of_steps()});
    kept_rows_ = kept_.view({parts_.shape.capacity.max_rows, parts_.options.hidden});
  }
  return Done{};
}

void Rank::run(const StepInput& input, const StepRows& rows, const LogitSink& sink) {
  const ReplicaSequences& sequences = rows.replicas[static_cast<size_t>(replica_)];
  const bool drafts = input.plan.forward == planning::Forward::kDraft;
  collectives::Boundary& boundary = drafts && draft_boundary_ ? *draft_boundary_ : boundary_;
  crossing_ = &boundary;
  const std::vector<int32_t> follows = drafts ? kept_rows_of(input) : std::vector<int32_t>();
  const models::Batch batch{.plan = input.plan,
                            .token_ids = rows.token_ids,
                            .positions = rows.positions,
                            .prompts = sequences.prompts,
                            .decodes = sequences.decodes,
                            .page_size = parts_.options.page_size,
                            .caches = cache_.views(),
                            .kept_rows = follows};
  const std::vector<SequenceRows>& sequences_of_replica = input.replicas[static_cast<size_t>(replica_)];
  copy_slots(sequences_of_replica, &SequenceRows::load_slot, &SequenceRows::slot);
  const std::vector<OwnRow> own = own_rows(input);
  const auto is_for_largest = [](const OwnRow& row) { return row.use == LogitUse::kLargest; };
  const bool on_device = kernels_->memory().access() == Memory::Access::kByDevice;
  const bool finds_largest = on_device && std::any_of(own.begin(), own.end(), is_for_largest);
  TensorView logits;
  const auto forward = [&] {
    logits = drafts ? model_->draft(batch, {*draft_boundary_, *kernels_, workspace_, kept_rows_})
                    : model_->forward(batch, {boundary_, *kernels_, workspace_, kept_rows_});
    LOCKSTEP_CHECK_EQ(static_cast<int64_t>(own.size()), logits.rows());
    if (finds_largest)
      kernels_->largest({.x = logits,
                         .num_valid = input.num_valid_logits == 0
                                          ? logits.cols()
                                          : std::min<int64_t>(input.num_valid_logits, logits.cols()),
                         .value = largest_values_.view({logits.rows()}),
                         .idx = largest_ids_.view(DType::kI32, {logits.rows()})});
  };
  if (!drafts && repeats(input, sequences)) {
    kernels_->step(shape_of(input.plan, finds_largest ? LogitUse::kLargest : LogitUse::kAny), forward);
  } else {
    forward();
  }
  std::span<const int32_t> largest;
  if (finds_largest) {
    const TensorView ids = host_ids_.view(DType::kI32, {logits.rows()});
    kernels_->memory().download(ids.data, largest_ids_.view({0}).data, own.size() * sizeof(int32_t));
    largest = {ids.as<int32_t>(), own.size()};
  }
  copy_slots(sequences_of_replica, &SequenceRows::slot, &SequenceRows::save_slot);
  const bool largest_suffice = finds_largest && std::all_of(own.begin(), own.end(), is_for_largest);
  const TensorView in_memory = largest_suffice ? TensorView() : on_host(logits);
  const auto begin = std::chrono::steady_clock::now();
  deliver(input, own, in_memory, largest, sink);
  const auto end = std::chrono::steady_clock::now();
  sample_seconds_ = std::chrono::duration<double>(end - begin).count();
  kept_places_.clear();
  if (!input.plan.places.empty()) kept_places_ = input.plan.places[static_cast<size_t>(replica_)];
  boundary.rest();
  keep_spans(begin, end);
}

std::vector<Rank::OwnRow> Rank::own_rows(const StepInput& input) const {
  std::vector<OwnRow> own;
  const std::vector<SequenceRows>& sequences = input.replicas[static_cast<size_t>(replica_)];
  std::vector<int32_t> ends;  // of each sequence's rows
  for (const SequenceRows& sequence : sequences)
    ends.push_back((ends.empty() ? 0 : ends.back()) + static_cast<int32_t>(sequence.token_ids.size()));
  for (const int32_t row : planning::wanted_by_place(input.plan, replica_)) {
    if (planning::home_of(input.plan, parts_.shape, replica_, row).home != rank_) continue;
    const auto at = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), row) - ends.begin());
    own.push_back({.row = row, .use = at < sequences.size() ? sequences[at].use : LogitUse::kAny});
  }
  return own;
}

// Each mark lasts until the next; what follows the last edge is the sampler's.
void Rank::keep_spans(std::chrono::steady_clock::time_point sampled,
                      std::chrono::steady_clock::time_point end) {
  for (size_t at = 0; at + 1 < marks_.size(); ++at)
    spans_.push_back({*marks_[at].what, marks_[at].begin, std::min(marks_[at + 1].begin, sampled)});
  if (!marks_.empty()) spans_.push_back({"samples", sampled, end});
  marks_.clear();
}

std::vector<RankSpan> Rank::take_spans() { return std::exchange(spans_, {}); }

// Snapshots of what is kept once a sequence: whole slots, in every layer that has some.
void Rank::copy_slots(const std::vector<SequenceRows>& sequences, int32_t SequenceRows::* from,
                      int32_t SequenceRows::* to) {
  std::vector<kernels::RowPiece> pieces;
  for (const SequenceRows& rows : sequences)
    if (rows.*from >= 0 && rows.*to >= 0)
      pieces.push_back({.src_row = rows.*from, .dst_row = rows.*to, .num_rows = 1});
  if (pieces.empty()) return;
  for (const TensorView& slots : cache_.sequence_views())
    kernels_->copy_rows({.sources = {&slots, 1}, .pieces = pieces, .out = slots});
}

// For every row of the replica, padding included, the kept row that it follows.
std::vector<int32_t> Rank::kept_rows_of(const StepInput& input) const {
  LOCKSTEP_CHECK(draft_boundary_ != nullptr, "step {} drafts, and no plan of drafts was made",
                 input.plan.step);
  std::vector<int32_t> rows = input.kept_rows.at(static_cast<size_t>(replica_));
  const planning::ReplicaCounts& counts = input.plan.counts[static_cast<size_t>(replica_)];
  LOCKSTEP_CHECK_EQ(static_cast<int32_t>(rows.size()), counts.num_draft_rows);
  // They were kept where they stood.
  if (!kept_places_.empty())
    for (int32_t& row : rows) row = kept_places_.at(static_cast<size_t>(row));
  rows.resize(static_cast<size_t>(input.plan.padded_rows[static_cast<size_t>(replica_)]), 0);
  return rows;
}

// Steps of one rank that only decode come again and again with the same shapes. With several ranks the host
// takes part in every exchange.
bool Rank::repeats(const StepInput& input, const ReplicaSequences& sequences) const {
  return parts_.plans->grid.num_ranks() == 1 && sequences.prompts.empty() && !sequences.decodes.empty() &&
         input.plan.counts.size() == 1;
}

uint64_t Rank::shape_of(const planning::StepPlan& plan, LogitUse use) {
  Hasher hash;
  hash.add(static_cast<uint64_t>(use));
  hash.add(static_cast<uint64_t>(plan.regime));
  for (const auto& rows : {plan.rows_per_home, plan.logit_rows_per_home})
    for (const int32_t count : rows) hash.add(static_cast<uint64_t>(count));
  return hash.value();
}

TensorView Rank::on_host(const TensorView& logits) {
  const Memory& memory = kernels_->memory();
  if (memory.access() == Memory::Access::kByHost) return logits;
  const TensorView copy = host_logits_.view({logits.rows(), logits.cols()});
  memory.download(copy.data, logits.data, static_cast<size_t>(logits.num_elements()) * sizeof(float));
  return copy;
}

void Rank::deliver(const StepInput& input, const std::vector<OwnRow>& rows, TensorView logits,
                   std::span<const int32_t> largest, const LogitSink& sink) {
  const auto deliver_row = [&](size_t at) {
    LogitRow row{.replica = replica_, .row = rows[at].row};
    bool finite = true;
    if (!largest.empty() && rows[at].use == LogitUse::kLargest) {
      row.largest = largest[at];
      finite = row.largest != kNoToken;
    } else {
      row.logits = std::span<float>(logits.as<float>() + static_cast<int64_t>(at) * logits.stride[0],
                                    static_cast<size_t>(logits.cols()));
      finite = are_finite(row.logits);
    }
    if (!finite) row.fault = fault_of(input, row.row);
    sink(row);
  };
  const size_t helpers = helpers_ == nullptr ? 0
                                             : std::min((logits.empty() ? 0 : rows.size() / kRowsOfAHelper),
                                                        static_cast<size_t>(helpers_->size()));
  const auto deliver_some = [&](size_t first) {
    for (size_t at = first; at < rows.size(); at += helpers + 1) deliver_row(at);
  };
  if (helpers == 0) return deliver_some(0);
  std::mutex mutex;
  std::string failure;  // the first; guarded by mutex
  helpers_->run(
      [&](int helper) {
        if (static_cast<size_t>(helper) < helpers) deliver_some(static_cast<size_t>(helper) + 1);
      },
      [&](int, const std::string& what) {
        const std::lock_guard lock(mutex);
        if (failure.empty()) failure = what;
      },
      [&] { deliver_some(0); });
  if (!failure.empty()) throw Fatal(failure);
}

void Rank::wait_idle() const {
  const Memory& memory = kernels_->memory();
  if (memory.access() == Memory::Access::kByHost) return;
  try {
    memory.download(nullptr, nullptr, 0);  // returns when the device is done
  } catch (const Fatal& failure) {
    log_error("rank {} at its end: {}", rank_, failure.what());
  }
}

bool Rank::are_finite(std::span<const float> logits) {
  uint32_t bad = 0;  // without a way out, so that the compiler takes many at once
  for (const float logit : logits)
    bad |= static_cast<uint32_t>(!(std::fabs(logit) <= std::numeric_limits<float>::max()));
  return bad == 0;
}

std::string Rank::fault_of(const StepInput& input, int32_t row) const {
  int32_t first = 0;
  for (const SequenceRows& sequence : input.replicas[static_cast<size_t>(replica_)]) {
    const auto last = first + static_cast<int32_t>(sequence.token_ids.size()) - 1;
    if (row <= last) {
      const bool drafts = input.plan.forward == planning::Forward::kDraft;
      const auto seen = (drafts ? *draft_boundary_ : boundary_).non_finite(first, last);
      return fmt::format("the logits are not finite: first seen {} on rank {}, rows {} to {} of replica {}",
                         seen ? seen->where : "at the head", rank_, seen ? seen->first_row : row,
                         seen ? seen->last_row : row, replica_);
    }
    first = last + 1;
  }
  return fmt::format("the logits of row {} of replica {} on rank {} are not finite", row, replica_, rank_);
}

}  // namespace lockstep::runtime
