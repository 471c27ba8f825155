#include "lockstep/runtime/measure_machine.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>

#include "lockstep/base/file.h"
#include "lockstep/collectives/in_process/world.h"
#include "lockstep/kernels/cpu/roofs.h"
#include "lockstep/planning/cost_model.h"
#include "lockstep/runtime/executor/job_threads.h"
#include "lockstep/runtime/machine_facts.h"

namespace lockstep::runtime {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kExchangedWidth = 1024;    // of the rows that ranks exchange
constexpr int64_t kManyRows = 2048;          // 8 MB of float32
constexpr int kMeasureTries = 5;             // of which the median counts
constexpr double kMicro = 1e6, kGiga = 1e9;  // as in the cost model: GB and TFLOP are decimal

// A product that keeps a rank busy for some milliseconds, and one that reads more than caches hold.
struct ProductSizes {
  int64_t rows, in, out;
};
ProductSizes busy_product(Device device) {
  return device == Device::kCuda ? ProductSizes{8192, 8192, 8192} : ProductSizes{256, 2048, 2048};
}
constexpr ProductSizes kReadingProduct = {1, 8192, 65536};

// What one rank brings.
struct MeasuredRank {
  std::unique_ptr<kernels::Kernels> kernels;
  std::unique_ptr<collectives::Communicator> communicator;
  Buffer in, out, weight;
  std::vector<collectives::RowPiece> pieces;

  TensorView zeros(Buffer& buffer, DType dtype, std::initializer_list<int64_t> shape) const {
    const TensorView view = buffer.view(dtype, shape);
    kernels->memory().zero(view.data, static_cast<size_t>(view.num_elements()) * size_of(dtype));
    return view;
  }
  // Returns when a device has done what it was given.
  void finish() const {
    if (kernels->memory().access() == Memory::Access::kByDevice)
      kernels->memory().download(nullptr, nullptr, 0);
  }
};

// So many ranks on threads of their own, as an engine has them.
class MeasuredWorld {
 public:
  using Op = std::function<void(MeasuredRank&, const collectives::Tag&)>;

  MeasuredWorld(int num_ranks, const MeasureOptions& options)
      : grid_(*planning::RankGrid::make({.num_ranks = num_ranks, .attention_tp = num_ranks})),
        world_(grid_, {}),
        threads_(num_ranks, "--tp-size") {
    const kernels::DeviceChoice choice{.device = options.device,
                                       .cpu = kernels::cpu_threads_of_a_rank(options.threads, num_ranks)};
    for (int rank = 0; rank < num_ranks; ++rank) {
      MeasuredRank one;
      one.kernels = kernels::make_kernels(choice, rank);
      for (Buffer* buffer : {&one.in, &one.out, &one.weight}) *buffer = Buffer(one.kernels->memory());
      one.communicator = world_.communicator(rank, *one.kernels);
      ranks_.push_back(std::move(one));
    }
  }

  const planning::RankGrid& grid() const { return grid_; }
  int size() const { return grid_.num_ranks(); }

  // Microseconds that `op` takes when all ranks do it at once, `repeats` times after one that is not counted.
  double us_of(int repeats, const std::function<void(MeasuredRank&)>& prepare, const Op& op) {
    run([&](MeasuredRank& rank) { prepare(rank); });
    std::vector<double> times;
    for (int attempt = 0; attempt < kMeasureTries; ++attempt) {
      double us = 0;
      const uint64_t first = num_ops_;
      num_ops_ += static_cast<uint64_t>(repeats) + 1;
      run([&](MeasuredRank& rank) {
        Clock::time_point begin;
        for (uint64_t at = first; at < num_ops_; ++at) {
          op(rank, {.engine_step = at, .plan_step = 0, .what = "a measured step"});
          if (at != first) continue;
          rank.finish();
          begin = Clock::now();
        }
        rank.finish();
        if (&rank == ranks_.data())
          us = std::chrono::duration<double, std::micro>(Clock::now() - begin).count() / repeats;
      });
      times.push_back(us);
    }
    std::nth_element(times.begin(), times.begin() + kMeasureTries / 2, times.end());
    return times[kMeasureTries / 2];
  }

 private:
  void run(const std::function<void(MeasuredRank&)>& job) {
    std::mutex mutex;
    std::string failure;
    threads_.run([&](int at) { job(ranks_[static_cast<size_t>(at)]); },
                 [&](int at, const std::string& what) {
                   const std::lock_guard lock(mutex);
                   if (failure.empty()) failure = fmt::format("rank {}: {}", at, what);
                   world_.fail(failure);
                 });
    if (!failure.empty()) throw Fatal(failure);
  }

  const planning::RankGrid grid_;
  collectives::InProcessWorld world_;
  std::vector<MeasuredRank> ranks_;  // before the threads, which use them
  JobThreads threads_;
  uint64_t num_ops_ = 0;
};

double all_reduce_us(MeasuredWorld& world, int64_t rows, int repeats) {
  const auto shape = [rows](Buffer& buffer) { return buffer.view({rows, kExchangedWidth}); };
  return world.us_of(
      repeats, [rows](MeasuredRank& rank) { rank.zeros(rank.in, DType::kF32, {rows, kExchangedWidth}); },
      [&](MeasuredRank& rank, const collectives::Tag& tag) {
        rank.communicator->all_reduce({.in = shape(rank.in), .out = shape(rank.out)}, world.grid().all(),
                                      tag);
      });
}

// Of `rows` rows in all, an equal number from each.
double all_gather_us(MeasuredWorld& world, int64_t rows, int repeats) {
  const int64_t own = rows / world.size();
  const auto prepare = [&](MeasuredRank& rank) {
    rank.zeros(rank.in, DType::kF32, {own, kExchangedWidth});
    rank.pieces.clear();
    for (int member = 0; member < world.size(); ++member)
      rank.pieces.push_back({.source = member, .src_row = 0, .dst_row = member * own, .num_rows = own});
  };
  return world.us_of(repeats, prepare, [&](MeasuredRank& rank, const collectives::Tag& tag) {
    rank.communicator->all_gather({.in = rank.in.view({own, kExchangedWidth}),
                                   .out = rank.out.view({own * world.size(), kExchangedWidth}),
                                   .pieces = rank.pieces},
                                  world.grid().all(), tag);
  });
}

double product_us(MeasuredWorld& world, const ProductSizes& sizes, int repeats) {
  const auto prepare = [&](MeasuredRank& rank) {
    rank.zeros(rank.in, DType::kF32, {sizes.rows, sizes.in});
    rank.zeros(rank.weight, DType::kBF16, {sizes.out, sizes.in});
  };
  return world.us_of(repeats, prepare, [&](MeasuredRank& rank, const collectives::Tag&) {
    rank.kernels->linear({.x = rank.in.view({sizes.rows, sizes.in}),
                          .w = rank.weight.view(DType::kBF16, {sizes.out, sizes.in}),
                          .out = rank.out.view({sizes.rows, sizes.out})});
  });
}

double launch_us(const MeasureOptions& options) {
  MeasuredWorld world(1, options);
  const auto prepare = [](MeasuredRank& rank) {
    rank.zeros(rank.in, DType::kF32, {1, kExchangedWidth});
    rank.zeros(rank.out, DType::kF32, {1, kExchangedWidth});
  };
  return world.us_of(1000, prepare, [](MeasuredRank& rank, const collectives::Tag&) {
    rank.kernels->add({.x = rank.out.view({1, kExchangedWidth}), .y = rank.in.view({1, kExchangedWidth})});
  });
}

double read_gbs_of_a_rank(MeasuredWorld& world, const MeasureOptions& options) {
  if (options.device == Device::kCpu) {
    const int each = kernels::cpu_threads_of_a_rank(options.threads, world.size()).count;
    const int cores = kernels::cpu_threads_of_a_rank(std::nullopt, 1).count;
    const auto roofs = kernels::measure_cpu_roofs({.count = std::min(cores, each * world.size())});
    return roofs.read_bytes_per_second / world.size() / kGiga;
  }
  const double bytes = 2.0 * kReadingProduct.in * kReadingProduct.out;
  return bytes / kGiga / product_us(world, kReadingProduct, 10) * kMicro;
}

// Four digits: no measurement has more.
double rounded(double value) { return std::strtod(fmt::format("{:.4g}", value).c_str(), nullptr); }

// A step of the boundary over all ranks, as the cost model sees it.
planning::Step step_over_all(planning::StepKind kind, planning::Placement before,
                             const planning::RankGrid& grid) {
  return {.kind = kind,
          .over = grid.all(),
          .before = planning::Layout().with(grid.all(), before),
          .after = planning::Layout().with(grid.all(), planning::Placement::kReplicate)};
}

void measure_world(int num_ranks, const MeasureOptions& options, const kernels::DeviceFacts& facts,
                   MachineMeasurement& measured) {
  MeasuredWorld world(num_ranks, options);
  planning::WorldConstants constants{.num_ranks = num_ranks,
                                     .memory_gbs = read_gbs_of_a_rank(world, options),
                                     .memory_gb = kernels::memory_of_a_rank(facts, num_ranks) / kGiga};
  const ProductSizes busy = busy_product(options.device);
  constexpr double kTera = 1e12;
  constants.peak_tflops = 2.0 * busy.rows * busy.in * busy.out / kTera / product_us(world, busy, 4) * kMicro;
  // A rank alone exchanges nothing.
  constants.collective_us = measured.machine.launch_us;
  constants.link_gbs = constants.memory_gbs;
  if (num_ranks > 1) {
    constants.collective_us = all_reduce_us(world, 1, 200);
    const double us = all_gather_us(world, kManyRows, 8) - constants.collective_us;
    const double copied =
        4.0 * kExchangedWidth * (num_ranks - 1) * static_cast<double>(kManyRows / num_ranks);
    constants.link_gbs = copied / kGiga / std::max(us, 0.1) * kMicro;
  }
  for (const auto of : {&planning::WorldConstants::collective_us, &planning::WorldConstants::link_gbs,
                        &planning::WorldConstants::memory_gbs, &planning::WorldConstants::memory_gb,
                        &planning::WorldConstants::peak_tflops})
    constants.*of = rounded(constants.*of);
  measured.machine.worlds.push_back(constants);
  if (num_ranks == 1) return;
  const planning::Machine machine = planning::machine_of_ranks(measured.machine, num_ranks);
  const auto check = [&](const char* what, planning::StepKind kind, planning::Placement before, int64_t rows,
                         double us) {
    const planning::Load load{.rows_per_replica = static_cast<int>(rows), .hidden = kExchangedWidth};
    measured.checks.push_back(
        {num_ranks, fmt::format("{} of {} rows", what, rows), us,
         planning::estimate(step_over_all(kind, before, world.grid()), world.grid(), machine, load).us});
  };
  using enum planning::StepKind;
  check("all-gather", kAllGather, planning::Placement::kShard, num_ranks,
        all_gather_us(world, num_ranks, 200));
  for (const int64_t rows : {int64_t{64}, kManyRows})
    check("all-reduce", kAllReduce, planning::Placement::kPartial, rows,
          all_reduce_us(world, rows, rows > 64 ? 8 : 50));
}

planning::MeasuredMachine without_worlds(const MeasureOptions& options) {
  const MachineFacts facts = machine_facts();
  const bool is_cpu = options.device == Device::kCpu;
  const ProductSizes busy = busy_product(options.device);
  const std::string median = fmt::format("median of {} tries, all ranks at once: ", kMeasureTries);
  return {.name = is_cpu ? fmt::format("cpu of {} cores with {}", facts.num_cores, facts.instruction_set)
                         : fmt::format("{} GPUs of one host", facts.num_gpus),
          .ranks = is_cpu ? planning::MeasuredMachine::Ranks::kShareCores
                          : planning::MeasuredMachine::Ranks::kOwnDevices,
          .bytes_per_value = 4,
          .worlds = {},
          .sources = {
              {"launch_us", fmt::format("{}one add of a row of {} float32", median, kExchangedWidth)},
              {"collective_us", fmt::format("{}all-reduce of a row of {} float32", median, kExchangedWidth)},
              {"link_gbs", fmt::format("{}all-gather of {} rows of {} float32, less collective_us; one "
                                       "rank: its memory",
                                       median, kManyRows, kExchangedWidth)},
              {"memory_gbs", is_cpu ? "best of 5 reads of 256 MiB by all threads, divided by the ranks"
                                    : fmt::format("{}product of one row with {} x {} bf16 weights", median,
                                                  kReadingProduct.out, kReadingProduct.in)},
              {"memory_gb", is_cpu ? "what the process may use, divided by the ranks"
                                   : "free memory of the device that has least, divided by its ranks"},
              {"peak_tflops", fmt::format("{}product of {} rows with {} x {} bf16 weights", median, busy.rows,
                                          busy.out, busy.in)}}};
}

}  // namespace

Result<MachineMeasurement> measure_machine(const MeasureOptions& options, const Progress& progress) {
  if (!options.instruction_set.empty())
    if (const Status status = kernels::use_instruction_set(options.instruction_set); !status)
      return status.error();
  auto facts = kernels::device_facts(options.device);
  if (!facts) return facts.error();
  constexpr int kMostRanks = 64;
  if (options.max_ranks < 1 || options.max_ranks > kMostRanks)
    return invalid_argument("--tp-size", "--tp-size {} is not between 1 and the {} ranks that are measured",
                            options.max_ranks, kMostRanks);
  int most = options.max_ranks;
  if (options.device == Device::kCuda) most = std::min(most, static_cast<int>(facts->memory_bytes.size()));
  if (options.device == Device::kCpu)
    facts->memory_bytes = {static_cast<double>(machine_facts().usable_memory_bytes())};
  MachineMeasurement measured{.machine = without_worlds(options), .checks = {}};
  try {
    if (progress) progress("measuring: the smallest operation");
    measured.machine.launch_us = rounded(launch_us(options));
    for (int ranks = 1;; ranks = std::min(2 * ranks, most)) {
      if (progress) progress(fmt::format("measuring: {} of up to {} ranks", ranks, most));
      measure_world(ranks, options, *facts, measured);
      if (ranks == most) break;
    }
  } catch (const Fatal& failure) {
    return Error{ErrorCode::kInternal, fmt::format("the machine could not be measured: {}", failure.what()),
                 ""};
  }
  return measured;
}

Result<planning::MeasuredMachine> read_machine_file(const std::string& path) {
  constexpr size_t kMostBytes = size_t{1} << 20;
  const auto text = read_file(path, kMostBytes);
  if (!text) return invalid_argument("--machine", "--machine {}: {}", path, text.error().message);
  const auto json = parse_json(*text);
  if (!json) return invalid_argument("--machine", "--machine {}: {}", path, json.error().message);
  auto machine = planning::measured_machine_from_json(*json);
  if (!machine) return invalid_argument("--machine", "--machine {}: {}", path, machine.error().message);
  return machine;
}

}  // namespace lockstep::runtime
