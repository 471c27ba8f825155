#pragma once
// Runs one body on every rank of a grid, each on its own thread with its own communicator. The ranks may be
// spread over processes, which are worlds here that are linked by TCP and share nothing else.
#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/collectives/hosts/links.h"
#include "lockstep/collectives/in_process/world.h"

namespace lockstep::collectives::test {

using Body = std::function<void(int rank, Communicator&)>;

// The links of every process, as join() would make them.
inline std::vector<std::shared_ptr<Links>> linked(
    int processes, int num_ranks, std::chrono::milliseconds silence = std::chrono::seconds(30)) {
  std::vector<std::map<int, TcpStream>> streams(static_cast<size_t>(processes));
  const auto listener = TcpListener::open("127.0.0.1", 0);
  for (int one = 0; one < processes; ++one)
    for (int other = 0; other < one; ++other) {
      auto calling = connect_to("127.0.0.1", listener->port(), std::chrono::seconds(5));
      auto called = listener->accept_until(Clock::now() + std::chrono::seconds(5));
      streams[static_cast<size_t>(one)].emplace(other, std::move(calling).value());
      streams[static_cast<size_t>(other)].emplace(one, *std::move(called));
    }
  std::vector<std::shared_ptr<Links>> links;
  for (int own = 0; own < processes; ++own)
    links.push_back(std::make_shared<Links>(
        Links::Options{.num_processes = processes, .own = own, .num_ranks = num_ranks, .silence = silence},
        std::move(streams[static_cast<size_t>(own)])));
  return links;
}

// What each rank threw, "" where nothing. A rank that throws fails the world, as the executor does.
inline std::vector<std::string> on_ranks(const planning::RankGrid& grid, const InProcessOptions& options,
                                         const Body& body, int processes = 1) {
  std::vector<std::shared_ptr<Links>> links;
  if (processes > 1) links = linked(processes, grid.num_ranks());
  std::vector<std::unique_ptr<InProcessWorld>> worlds;
  for (int process = 0; process < processes; ++process) {
    InProcessOptions own = options;
    if (processes > 1) own.links = links[static_cast<size_t>(process)];
    worlds.push_back(std::make_unique<InProcessWorld>(grid, own));
  }
  std::vector<std::string> errors(static_cast<size_t>(grid.num_ranks()));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < grid.num_ranks(); ++rank)
    threads.emplace_back([&, rank] {
      InProcessWorld& world = *worlds[processes == 1 ? 0 : static_cast<size_t>(links[0]->process_of(rank))];
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

inline void on_all_ranks(const planning::RankGrid& grid, const Body& body, int processes = 1) {
  for (const std::string& error : on_ranks(grid, {}, body, processes)) EXPECT_EQ(error, "");
}

// W ranks with attention-TP width A, experts over all ranks.
inline planning::RankGrid grid_of(int ranks, int attention_tp, int expert_tp = 1, int dense_tp = 1) {
  return planning::RankGrid::make(
             {.num_ranks = ranks, .attention_tp = attention_tp, .expert_tp = expert_tp, .dense_tp = dense_tp})
      .value();
}

}  // namespace lockstep::collectives::test
