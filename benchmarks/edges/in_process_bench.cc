// Steps of an edge between the threads of one process, beside what the cost model predicts for this machine.
// The ratio is measured / predicted; the planner needs the order of its candidates to be right, not the
// microseconds.
#include <benchmark/benchmark.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "lockstep/collectives/in_process/world.h"
#include "lockstep/planning/cost_model.h"

namespace lockstep::collectives {
namespace {

using planning::Layout;
using planning::Placement;
using planning::RankGrid;

constexpr int64_t kHidden = 1024;

// One rank's buffers and its part of a step.
struct Rank {
  std::unique_ptr<kernels::Kernels> kernels = kernels::make_cpu_kernels();
  std::unique_ptr<Communicator> communicator;
  std::vector<float> in, out;
  std::vector<RowPiece> pieces;
};

// Runs `step(rank)` on one thread a rank, `repeats` times, and gives seconds a time.
template <class Step>
double seconds_of(int num_ranks, int repeats, Step step) {
  std::atomic<int> ready = 0;
  std::vector<std::thread> threads;
  const auto run = [&](int rank) {
    ++ready;
    while (ready.load() < num_ranks) std::this_thread::yield();
    for (int i = 0; i < repeats; ++i) step(rank, i);
  };
  const auto started = std::chrono::steady_clock::now();
  for (int rank = 1; rank < num_ranks; ++rank) threads.emplace_back(run, rank);
  run(0);
  for (auto& thread : threads) thread.join();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count() / repeats;
}

planning::Step planned(planning::StepKind kind, Placement before, Placement after, const RankGrid& grid) {
  return {.kind = kind,
          .value = planning::Value::kHidden,
          .over = grid.all(),
          .before = Layout().with(grid.all(), before),
          .after = Layout().with(grid.all(), after)};
}

void report(benchmark::State& state, const planning::Step& step, const RankGrid& grid, int rows,
            double measured_us) {
  const auto machine =
      planning::cpu_ranks_machine(grid.num_ranks(), static_cast<int>(std::thread::hardware_concurrency()));
  const double predicted_us =
      planning::estimate(step, grid, machine,
                         {.rows_per_replica = rows, .hidden = static_cast<int>(kHidden), .top_k = 1})
          .us;
  state.counters["measured_us"] = measured_us;
  state.counters["predicted_us"] = predicted_us;
  state.counters["ratio"] = measured_us / predicted_us;
}

// Times one verb on every rank: `make` fills a rank's buffers, `call` runs the verb once.
template <class Make, class Call>
void measure(benchmark::State& state, const RankGrid& grid, const planning::Step& step, Make make,
             Call call) {
  constexpr int kRepeats = 200;
  InProcessWorld world(grid, {});
  std::vector<Rank> ranks(static_cast<size_t>(grid.num_ranks()));
  for (int r = 0; r < grid.num_ranks(); ++r) {
    ranks[r].communicator = world.communicator(r, *ranks[r].kernels);
    make(ranks[r]);
  }
  uint64_t num_calls = 0;
  double seconds = 0;
  for (auto _ : state) {
    seconds = seconds_of(grid.num_ranks(), kRepeats, [&](int r, int i) {
      call(ranks[r],
           Tag{.engine_step = num_calls + static_cast<uint64_t>(i), .plan_step = 0, .what = "benchmark"});
    });
    num_calls += kRepeats;
    state.SetIterationTime(seconds);
  }
  report(state, step, grid, static_cast<int>(state.range(1)), seconds * 1e6);
}

RankGrid one_replica(const benchmark::State& state) {
  const int num_ranks = static_cast<int>(state.range(0));
  return *RankGrid::make({.num_ranks = num_ranks, .attention_tp = num_ranks});
}

void all_reduce(benchmark::State& state) {
  const RankGrid grid = one_replica(state);
  const int64_t rows = state.range(1);
  const auto make = [&](Rank& rank) {
    rank.in.assign(static_cast<size_t>(rows * kHidden), 1.0f);
    rank.out.assign(rank.in.size(), 0.0f);
  };
  const auto call = [&](Rank& rank, const Tag& tag) {
    rank.communicator->all_reduce(
        {.in = view_of(rank.in.data(), {rows, kHidden}), .out = view_of(rank.out.data(), {rows, kHidden})},
        grid.all(), tag);
  };
  measure(state, grid,
          planned(planning::StepKind::kAllReduce, Placement::kPartial, Placement::kReplicate, grid), make,
          call);
}

void all_gather(benchmark::State& state) {
  const RankGrid grid = one_replica(state);
  const int64_t rows = state.range(1), own = rows / grid.num_ranks();
  const auto make = [&](Rank& rank) {
    rank.in.assign(static_cast<size_t>(own * kHidden), 1.0f);
    rank.out.assign(static_cast<size_t>(rows * kHidden), 0.0f);
    for (int member = 0; member < grid.num_ranks(); ++member)
      rank.pieces.push_back({.source = member, .src_row = 0, .dst_row = member * own, .num_rows = own});
  };
  const auto call = [&](Rank& rank, const Tag& tag) {
    rank.communicator->all_gather({.in = view_of(rank.in.data(), {own, kHidden}),
                                   .out = view_of(rank.out.data(), {rows, kHidden}),
                                   .pieces = rank.pieces},
                                  grid.all(), tag);
  };
  measure(state, grid,
          planned(planning::StepKind::kAllGather, Placement::kShard, Placement::kReplicate, grid), make,
          call);
}

void sizes(benchmark::internal::Benchmark* of) {
  of->ArgNames({"ranks", "rows"})->UseManualTime()->Unit(benchmark::kMicrosecond)->Iterations(5);
  for (const int64_t ranks : {2, 4})
    for (const int64_t rows : {ranks, int64_t{64}}) of->Args({ranks, rows});
}
BENCHMARK(all_reduce)->Apply(sizes);
BENCHMARK(all_gather)->Apply(sizes);

}  // namespace
}  // namespace lockstep::collectives
