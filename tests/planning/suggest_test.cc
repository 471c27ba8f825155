#include "lockstep/planning/suggest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <iostream>

#include "tests/planning/lattice.h"

namespace lockstep::planning::test {
namespace {

// Published sizes of DeepSeek-V3 with weights of a byte, and of Qwen3-30B-A3B with two.
ModelShape deepseek_v3() {
  ModelShape model;
  model.hidden = 7168;
  model.vocab = 129280;
  model.num_heads = 128;
  model.layers.assign(3, ModelShape::Ffn::kDense);
  model.layers.insert(model.layers.end(), 58, ModelShape::Ffn::kExperts);
  model.dense_inter = 18432;
  model.num_experts = 256;
  model.top_k = 8;
  model.expert_inter = 2048;
  model.shared_inter = 2048;
  model.attention_params = 187e6;
  model.bytes_per_weight = 1;
  model.cache_values_per_token = 61.0 * 576;
  model.cache_split = 1;
  return model;
}
ModelShape qwen3_30b() {
  ModelShape model;
  model.hidden = 2048;
  model.vocab = 151936;
  model.num_heads = 32;
  model.layers.assign(48, ModelShape::Ffn::kExperts);
  model.num_experts = 128;
  model.top_k = 8;
  model.expert_inter = 768;
  model.attention_params = 2048.0 * 4096 * 2 + 2 * 2048.0 * 512;
  model.cache_values_per_token = 48.0 * 2 * 512;
  model.cache_split = 4;
  return model;
}

// 671e9 parameters and 30.5e9, as published.
TEST(Memory, WeightsOfOneRankAreThePublishedSizes) {
  const RankGrid one = *RankGrid::make({});
  EXPECT_NEAR(memory_of(deepseek_v3(), one, {}, {}).weight_bytes, 671e9, 671e9 * 0.01);
  EXPECT_NEAR(memory_of(qwen3_30b(), one, {}, {}).weight_bytes, 2 * 30.5e9, 61e9 * 0.01);
}

TEST(Memory, PartsAndCopiesMakeUpAllRanks) {
  const RankGrid grid = *RankGrid::make(
      {.num_ranks = 8, .attention_tp = 2, .expert_tp = 1, .dense_tp = 4, .moe_dp = 2, .embedding_tp = 4});
  const RankMemory memory = memory_of(deepseek_v3(), grid, {.exchange = ExchangeBackend::kInProcess}, {});
  const ModelShape whole = deepseek_v3();
  for (const WeightPlace& place : memory.weights) EXPECT_EQ(place.parts * place.copies, 8) << place.what;
  const auto& experts = *std::find_if(memory.weights.begin(), memory.weights.end(),
                                      [](const WeightPlace& place) { return place.what == "experts"; });
  EXPECT_EQ(experts.parts, 4);
  EXPECT_DOUBLE_EQ(experts.bytes, 58.0 * 3 * whole.hidden * whole.expert_inter * 256 / 4);
}

// A cost of reading: the design measured these bytes of that shape (6.1 GB at one row, 40 GB at 16).
TEST(CostModel, ReadsTheExpertsThatRowsChoose) {
  const ModelShape model = qwen3_30b();
  const RankGrid one = *RankGrid::make({});
  const auto chain = transformer_stages(model, one, {});
  Machine memory_only{.name = "memory", .link_gbs = 1, .memory_gbs = 1, .peak_tflops = 1e9};
  const auto gigabytes = [&](int rows) {
    double us = 0;
    for (const Stage& stage : chain)
      us += estimate(stage.signatures[0], one, memory_only, {.rows_per_replica = rows, .hidden = 2048}).us;
    return us / 1e6;  // a GB/s of memory: a second a gigabyte
  };
  EXPECT_NEAR(gigabytes(1), 6.1, 0.3);
  EXPECT_NEAR(gigabytes(16), 40, 2);
}

TEST(Suggest, TheBestThreeWorkFitAndAreInOrder) {
  for (const Objective objective : {Objective::kThroughput, Objective::kLatency})
    for (const int ranks : {8, 16}) {
      const SuggestRequest request{.machine = h200_machine(), .num_ranks = ranks, .objective = objective};
      const auto found = suggest(deepseek_v3(), request, 3);
      ASSERT_TRUE(found.ok()) << found.error().message;
      ASSERT_EQ(found->size(), 3u);
      for (size_t at = 0; at < found->size(); ++at) {
        const Suggestion& one = (*found)[at];
        EXPECT_TRUE(works(one.flags, deepseek_v3())) << one.launch;
        EXPECT_LE(one.total_gb, request.machine.memory_gb);
        EXPECT_GT(one.weight_gb, 671.0 / ranks * 0.9);
        EXPECT_GT(one.tokens_per_second, 0);
        if (at > 0 && objective == Objective::kThroughput) {
          EXPECT_LE(one.tokens_per_second, (*found)[at - 1].tokens_per_second);
        }
        if (at > 0 && objective == Objective::kLatency) {
          EXPECT_LE(one.tokens_per_second_of_request, (*found)[at - 1].tokens_per_second_of_request);
        }
      }
    }
}

// Nothing is faster than its bytes: a step reads the weights of a rank at least once.
TEST(Suggest, NoPredictionIsBelowTheFloorOfBytes) {
  const auto found = suggest(qwen3_30b(), {.machine = h200_machine(), .num_ranks = 1}, 3);
  ASSERT_TRUE(found.ok());
  const double floor_us = 0.9 * 61e9 / (h200_machine().memory_gbs * 1e9) * 1e6;
  for (const Suggestion& one : *found)
    if (one.rows_per_replica >= 128) {
      EXPECT_GT(one.step_us, floor_us);
    }
}

TEST(Suggest, WhatDoesNotFitIsRefusedWithTheNumbers) {
  const auto found = suggest(deepseek_v3(), {.machine = h200_machine(), .num_ranks = 2}, 3);
  ASSERT_FALSE(found.ok());
  EXPECT_THAT(found.error().message, ::testing::HasSubstr("144 GB"));
  EXPECT_THAT(found.error().message, ::testing::HasSubstr("2 ranks"));
}

TEST(Machines, AreNamedByCountAndKind) {
  EXPECT_EQ(machine_named("8xH200")->num_ranks, 8);
  EXPECT_EQ(machine_named("96xH200")->machine.ranks_per_host, 8);
  for (const char* wrong : {"", "x", "8", "0xH200", "8xH300", "-1xH200", "8 xH200", "9999xH200", "xH200"})
    EXPECT_FALSE(machine_named(wrong).ok()) << wrong;
}

// Bytes between hosts flow over the slower link; the group says how many of them do.
TEST(Machines, OfSeveralHostsPayTheSlowLink) {
  const Machine machine = h200_machine();
  const RankGrid grid = *RankGrid::make({.num_ranks = 16, .attention_tp = 8, .expert_tp = 1, .dense_tp = 1});
  EXPECT_DOUBLE_EQ(share_between_hosts(grid.attention_tp(), grid, machine), 0);
  EXPECT_DOUBLE_EQ(share_between_hosts(grid.all(), grid, machine), 8.0 / 15);
  EXPECT_DOUBLE_EQ(share_between_hosts(grid.attention_dp(), grid, machine), 1);
}

// Half a thousand ranks and 61 layers in under a second; sanitized builds are ten times slower.
TEST(Planner, PlansManyRanksQuickly) {
  const ModelShape model = deepseek_v3();
  ParallelFlags flags{.tp_size = 512,
                      .dp_size = 128,
                      .enable_dp_attention = true,
                      .ep_size = 256,
                      .moe_dense_tp_size = 1,
                      .moe_a2a_backend = "in_process",
                      .max_running_requests = 4096};
  const auto start = std::chrono::steady_clock::now();
  const auto solved = solve(flags, model, h200_machine());
  ASSERT_TRUE(solved.ok()) << solved.error().message;
  const auto plans = make_plans(*solved, model, h200_machine());
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  ASSERT_TRUE(plans.ok());
  std::cout << "planned in " << taken.count() << " s\n";
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(taken.count(), 3.0);  // one second on an idle machine
#endif
}

}  // namespace
}  // namespace lockstep::planning::test
