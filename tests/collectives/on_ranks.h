#pragma once
// Runs one body on every rank of a grid, each on its own thread with its own communicator.
#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/collectives/in_process/world.h"

namespace lockstep::collectives::test {

using Body = std::function<void(int rank, Communicator&)>;

// What each rank threw, "" where nothing. A rank that throws fails the world, as the executor does.
inline std::vector<std::string> on_ranks(const planning::RankGrid& grid, const InProcessOptions& options,
                                         const Body& body) {
  InProcessWorld world(grid, options);
  std::vector<std::string> errors(static_cast<size_t>(grid.num_ranks()));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < grid.num_ranks(); ++rank)
    threads.emplace_back([&, rank] {
      const auto kernels = kernels::make_cpu_kernels();
      const auto communicator = world.communicator(rank, *kernels);
      try {
        body(rank, *communicator);
      } catch (const std::exception& failure) {
        errors[static_cast<size_t>(rank)] = failure.what();
        world.fail(failure.what());
      }
    });
  threads.clear();
  return errors;
}

inline void on_all_ranks(const planning::RankGrid& grid, const Body& body) {
  for (const std::string& error : on_ranks(grid, {}, body)) EXPECT_EQ(error, "");
}

// W ranks with attention-TP width A, experts over all ranks.
inline planning::RankGrid grid_of(int ranks, int attention_tp, int expert_tp = 1, int dense_tp = 1) {
  return planning::RankGrid::make(
             {.num_ranks = ranks, .attention_tp = attention_tp, .expert_tp = expert_tp, .dense_tp = dense_tp})
      .value();
}

}  // namespace lockstep::collectives::test
