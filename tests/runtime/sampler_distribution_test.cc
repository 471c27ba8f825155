// Draws against distributions: chi-square on fixed seeds, and one by one against a plain implementation that
// sorts all tokens and works in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "lockstep/base/hash.h"
#include "lockstep/runtime/sampler/sampler.h"

namespace lockstep::runtime {
namespace {

int32_t draw(std::vector<float> logits, const SamplingParams& params, uint64_t seed, uint64_t position) {
  const TokenCounts counts;
  return draw_token(
             {.logits = logits, .params = params, .counts = counts, .seed = seed, .position = position})
      ->token_id;
}

double chi_square(const std::vector<int>& counts, const std::vector<double>& probabilities) {
  int total = 0;
  for (const int count : counts) total += count;
  double sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = probabilities[i] * total;
    sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return sum;
}

// Critical values at 0.999, from the tables of the chi-square distribution.
constexpr double kCritical3 = 16.27, kCritical7 = 24.32, kCritical9 = 27.88;

const std::vector<double> kEight = {0.30, 0.05, 0.20, 0.01, 0.14, 0.09, 0.11, 0.10};

std::vector<float> eight_logits() {
  std::vector<float> logits;
  for (const double p : kEight) logits.push_back(static_cast<float>(std::log(p)) + 3);
  return logits;
}

// contract: sample.seed-and-position
TEST(SamplerDistribution, PositionsOfOneSeedFollowTheSoftmax) {
  for (const uint64_t seed : {uint64_t{0}, uint64_t{1}, uint64_t{0xffffffffffffffff}}) {
    std::vector<int> counts(8);
    for (uint64_t position = 0; position < 20000; ++position)
      ++counts[static_cast<size_t>(draw(eight_logits(), {}, seed, position))];
    EXPECT_LT(chi_square(counts, kEight), kCritical7) << seed;
  }
}

TEST(SamplerDistribution, SeedsAtOnePositionFollowTheSoftmax) {
  std::vector<int> counts(8);
  for (uint64_t seed = 0; seed < 20000; ++seed)
    ++counts[static_cast<size_t>(draw(eight_logits(), {}, seed, 17))];
  EXPECT_LT(chi_square(counts, kEight), kCritical7);
}

TEST(SamplerDistribution, NeighbouringDrawsAreIndependent) {
  std::vector<int> pairs(4), across(4);
  const std::vector<float> even = {0, 0};
  for (uint64_t i = 0; i < 20000; ++i) {
    const int here = draw(even, {}, 5, i);
    ++pairs[static_cast<size_t>(2 * here + draw(even, {}, 5, i + 1))];
    ++across[static_cast<size_t>(2 * here + draw(even, {}, 6, i))];
  }
  const std::vector<double> quarters(4, 0.25);
  EXPECT_LT(chi_square(pairs, quarters), kCritical3);
  EXPECT_LT(chi_square(across, quarters), kCritical3);
}

TEST(SamplerDistribution, TemperatureRaisesToAPower) {
  SamplingParams params;
  params.temperature = 0.5f;
  std::vector<double> squares;
  double total = 0;
  for (const double p : kEight) total += p * p;
  for (const double p : kEight) squares.push_back(p * p / total);
  std::vector<int> counts(8);
  for (uint64_t position = 0; position < 40000; ++position)
    ++counts[static_cast<size_t>(draw(eight_logits(), params, 3, position))];
  EXPECT_LT(chi_square(counts, squares), kCritical7);
}

TEST(SamplerDistribution, WhatTopPLeavesIsRenormalised) {
  SamplingParams params;
  params.top_p = 0.6f;  // 0.30, 0.20, 0.14 of 0.64
  std::vector<int> counts(8);
  for (uint64_t position = 0; position < 20000; ++position)
    ++counts[static_cast<size_t>(draw(eight_logits(), params, 4, position))];
  EXPECT_EQ(counts[0] + counts[2] + counts[4], 20000);
  EXPECT_LT(chi_square({counts[0], counts[2], counts[4]}, {0.30 / 0.64, 0.20 / 0.64, 0.14 / 0.64}),
            kCritical3);
}

// Thousands of tokens, so that the draw goes through many blocks: every tenth of the ids has its share.
TEST(SamplerDistribution, LargeVocabulary) {
  constexpr size_t kVocab = 10007;
  std::mt19937_64 engine(9);
  std::vector<float> logits;
  for (size_t i = 0; i < kVocab; ++i) logits.push_back(std::normal_distribution<float>(0, 2)(engine));
  std::vector<double> shares(10);
  double total = 0;
  for (size_t i = 0; i < kVocab; ++i) {
    shares[i * 10 / kVocab] += std::exp(static_cast<double>(logits[i]));
    total += std::exp(static_cast<double>(logits[i]));
  }
  for (double& share : shares) share /= total;
  std::vector<int> counts(10);
  for (uint64_t position = 0; position < 5000; ++position)
    ++counts[static_cast<size_t>(draw(logits, {}, 8, position)) * 10 / kVocab];
  EXPECT_LT(chi_square(counts, shares), kCritical9);
}

struct Plain {
  int32_t id = -1;
  bool is_close = false;  // so near to a boundary that rounding decides
};

// Sorts everything, in double. The kept tokens and the draw as sampler.h words them.
Plain draw_plainly(const std::vector<float>& logits, const SamplingParams& params, double uniform) {
  struct Token {
    double weight;
    int32_t id;
  };
  const double most = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  std::vector<Token> tokens;
  for (size_t i = 0; i < logits.size(); ++i)
    tokens.push_back(
        {std::exp((static_cast<double>(logits[i]) - most) / static_cast<double>(params.temperature)),
         static_cast<int32_t>(i)});
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const Token& a, const Token& b) { return a.weight > b.weight; });
  if (params.top_k > 0) tokens.resize(std::min(tokens.size(), static_cast<size_t>(params.top_k)));
  Plain plain;
  const auto total_of = [&] {
    double total = 0;
    for (const Token& token : tokens) total += token.weight;
    return total;
  };
  if (params.top_p < 1) {
    const double wanted = static_cast<double>(params.top_p) * total_of();
    double mass = 0;
    size_t kept = 0;
    while (kept < tokens.size()) {
      mass += tokens[kept++].weight;
      plain.is_close |= std::abs(mass - wanted) < 1e-5 * wanted;
      if (mass >= wanted) break;
    }
    tokens.resize(kept);
  }
  for (const Token& token : tokens)
    plain.is_close |= params.min_p > 0 && std::abs(token.weight - static_cast<double>(params.min_p)) < 1e-6;
  std::erase_if(tokens, [&](const Token& token) { return token.weight < static_cast<double>(params.min_p); });
  std::sort(tokens.begin(), tokens.end(), [](const Token& a, const Token& b) { return a.id < b.id; });
  const double total = total_of();
  double left = uniform * total;
  for (const Token& token : tokens) {
    plain.is_close |= std::abs(left - token.weight) < 1e-5 * total;
    plain.id = token.id;
    if (left < token.weight) break;
    left -= token.weight;
  }
  return plain;
}

// Logits as bf16 gives them: many are equal.
std::vector<float> rough_logits(std::mt19937_64& engine, size_t size) {
  std::vector<float> logits;
  const float width = std::uniform_real_distribution<float>(0.5f, 6)(engine);
  for (size_t i = 0; i < size; ++i)
    logits.push_back(std::round(std::normal_distribution<float>(0, width)(engine) * 8) / 8);
  return logits;
}

TEST(SamplerDistribution, EveryDrawIsThatOfThePlainImplementation) {
  std::mt19937_64 engine(10);
  const auto between = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(engine);
  };
  const auto real = [&](float low, float high) {
    return std::uniform_real_distribution<float>(low, high)(engine);
  };
  int num_close = 0;
  constexpr int kRounds = 3000;
  for (int round = 0; round < kRounds; ++round) {
    const auto logits =
        rough_logits(engine, static_cast<size_t>(between(0, 9) == 0 ? between(1000, 3000) : between(1, 200)));
    SamplingParams params;
    params.temperature = real(0.2f, 3);
    if (between(0, 1) == 1) params.top_k = between(1, 60);
    if (between(0, 1) == 1) params.top_p = real(0, 1);
    if (between(0, 2) == 0) params.min_p = real(0, 0.2f);
    const auto position = static_cast<uint64_t>(round);
    const Plain plain = draw_plainly(logits, params, uniform_draw(77, position));
    num_close += plain.is_close ? 1 : 0;
    if (plain.is_close) continue;
    EXPECT_EQ(draw(logits, params, 77, position), plain.id)
        << "round " << round << ", " << logits.size() << " logits, temperature " << params.temperature
        << ", top_k " << params.top_k << ", top_p " << params.top_p << ", min_p " << params.min_p;
  }
  EXPECT_LT(num_close, kRounds / 50) << "hardly any draw may be left out of the comparison";
}

}  // namespace
}  // namespace lockstep::runtime
