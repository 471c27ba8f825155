// Every pair of settings that can go together, on engines: a set of configurations in which each pair occurs
// is chosen for every number of ranks, and each must say what one rank says, with logits within 2e-3.
#include <gtest/gtest.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <set>

#include "lockstep/planning/divisors.h"
#include "tests/equivalence/configurations.h"
#include "tests/equivalence/run_requests.h"

namespace lockstep::test {
namespace {

constexpr const char* kModel = "models/tutor-deepseek-v3";
constexpr int kMaxTokens = 6;
constexpr float kTolerance = 2e-3f;

planning::ModelShape tutor_shape() {
  auto planned = runtime::plan_engine({.model_directory = repository(kModel)});
  if (!planned) throw std::runtime_error(planned.error().message);
  return planned->shape;
}

// The settings of a configuration as "name=value".
std::vector<std::string> settings_of(const planning::ParallelFlags& f) {
  return {fmt::format("dp={}", *f.dp_size),
          fmt::format("cp={}", *f.attn_cp_size),
          fmt::format("ep={}", *f.ep_size),
          fmt::format("copies={}", *f.moe_dp_size),
          fmt::format("dense={}", *f.moe_dense_tp_size),
          fmt::format("a2a={}", *f.moe_a2a_backend),
          fmt::format("head={}", f.lm_head_tp_size     ? std::to_string(*f.lm_head_tp_size)
                                 : f.enable_dp_lm_head ? "replica"
                                                       : "all"),
          fmt::format("embedding={}", *f.embedding_tp_size),
          fmt::format("shared={}", *f.shared_experts)};
}

using Pair = std::pair<std::string, std::string>;
std::set<Pair> pairs_of(const planning::ParallelFlags& flags) {
  const auto settings = settings_of(flags);
  std::set<Pair> pairs;
  for (size_t a = 0; a < settings.size(); ++a)
    for (size_t b = a + 1; b < settings.size(); ++b) pairs.insert({settings[a], settings[b]});
  return pairs;
}

std::vector<planning::ParallelFlags> all_of(int ranks, const planning::ModelShape& model) {
  std::vector<planning::ParallelFlags> found;
  for (const int dp : planning::divisors(ranks))
    for (const int ep : planning::divisors(ranks))
      for (const int copies : planning::divisors(ranks))
        for (const int dense : planning::divisors(ranks))
          for (const int cp : planning::divisors(ranks / dp))
            for (const planning::ExchangeBackend a2a : planning::kExchangeBackends)
              for (const int head : {0, -1, ranks / 2})
                for (const int embedding : {1, ranks / 2, ranks})
                  for (const char* shared : {"split", "whole"}) {
                    if (head > 0 && head == ranks) continue;
                    planning::ParallelFlags one{.tp_size = ranks,
                                                .dp_size = dp,
                                                .enable_dp_attention = dp > 1,
                                                .ep_size = ep,
                                                .moe_dense_tp_size = dense,
                                                .enable_dp_lm_head = head < 0,
                                                .moe_dp_size = copies,
                                                .embedding_tp_size = std::max(1, embedding),
                                                .shared_experts = shared,
                                                .moe_a2a_backend = std::string(planning::name_of(a2a)),
                                                .attn_cp_size = cp};
                    if (head > 0) one.lm_head_tp_size = head;
                    if (planning::works(one, model)) found.push_back(std::move(one));
                  }
  return found;
}

// Greedy: of what is left, the one that brings most pairs that are not there yet.
std::vector<planning::ParallelFlags> covering(int ranks, const planning::ModelShape& model) {
  const auto all = all_of(ranks, model);
  std::vector<std::set<Pair>> pairs;
  std::set<Pair> missing;
  for (const auto& flags : all) {
    pairs.push_back(pairs_of(flags));
    missing.insert(pairs.back().begin(), pairs.back().end());
  }
  std::vector<planning::ParallelFlags> chosen;
  while (!missing.empty()) {
    size_t best = 0, most = 0;
    for (size_t at = 0; at < all.size(); ++at) {
      size_t brings = 0;
      for (const Pair& pair : pairs[at]) brings += missing.count(pair);
      if (brings > most) {
        most = brings;
        best = at;
      }
    }
    for (const Pair& pair : pairs[best]) missing.erase(pair);
    chosen.push_back(all[best]);
  }
  return chosen;
}

std::vector<Outcome> outcomes_of(planning::ParallelFlags flags) {
  flags.max_running_requests = 9;  // no width divides it
  flags.chunked_prefill_size = 40;
  const auto engine = start({.model_directory = repository(kModel), .parallel = flags});
  std::vector<runtime::Request> requests;
  const Json golden = read_json_file("tests/golden/tutor-deepseek-v3/golden.json");
  for (size_t at = 0; at < 2; ++at) {
    requests.push_back(greedy(golden.at(at).at("input_ids"), kMaxTokens));
    requests.back().prompt_top_logits = 1;
  }
  return run_all(*engine, requests);
}

class AllModes : public ::testing::TestWithParam<int> {};

TEST_P(AllModes, EveryPairOfSettingsSaysWhatOneRankSays) {
  const auto expected = outcomes_of({});
  const auto chosen = covering(GetParam(), tutor_shape());
  EXPECT_GE(chosen.size(), 6u);
  std::cout << GetParam() << " ranks: " << chosen.size() << " configurations hold every pair\n";
  size_t num_run = 0;
  for (const auto& flags : chosen) {
    if (kSanitized && num_run == 3) break;
    ++num_run;
    SCOPED_TRACE(fmt::format("{}", fmt::join(settings_of(flags), " ")));
    const auto outcomes = outcomes_of(flags);
    for (size_t at = 0; at < outcomes.size(); ++at) {
      ASSERT_TRUE(outcomes[at].scores.has_value()) << outcomes[at].error;
      EXPECT_EQ(outcomes[at].ids, expected[at].ids);
      const auto &is = outcomes[at].scores->last_logits, &should = expected[at].scores->last_logits;
      ASSERT_EQ(is.size(), should.size());
      float most = 0;
      for (size_t token = 0; token < is.size(); ++token)
        most = std::max(most, std::abs(is[token] - should[token]));
      EXPECT_LE(most, kTolerance);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, AllModes, ::testing::Values(2, 4, 6, 8));

}  // namespace
}  // namespace lockstep::test
