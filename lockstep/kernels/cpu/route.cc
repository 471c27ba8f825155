#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "lockstep/kernels/cpu/arguments.h"
#include "lockstep/kernels/cpu/elements.h"
#include "lockstep/kernels/cpu/scalar_ops.h"

namespace lockstep::kernels::cpu {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();
constexpr double kWeightFloor =
    1e-20;  // keeps the quotient of weights defined when every chosen score is zero

void score_softmax(const float* logits, std::vector<float>& score) {
  if (score.empty()) return;
  const double highest = *std::max_element(logits, logits + score.size());
  double sum = 0;
  for (size_t e = 0; e < score.size(); ++e) sum += std::exp(logits[e] - highest);
  for (size_t e = 0; e < score.size(); ++e)
    score[e] = static_cast<float>(std::exp(logits[e] - highest) / sum);
}

void score_sigmoid(const float* logits, std::vector<float>& score) {
  for (size_t e = 0; e < score.size(); ++e) {
    score[e] = static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(logits[e]))));
  }
}

// NaN orders below everything, so that a sort stays a sort; it still reaches the weights.
float order_key(float biased) { return std::isnan(biased) ? kLowest : biased; }

// Moves the k best to the front, best first; of equals the smaller index.
void keep_best(std::vector<int32_t>& idx, const std::vector<float>& value, int k) {
  std::partial_sort(idx.begin(), idx.begin() + k, idx.end(), [&](int32_t a, int32_t b) {
    const float of_a = value[static_cast<size_t>(a)];
    const float of_b = value[static_cast<size_t>(b)];
    return of_a != of_b ? of_a > of_b : a < b;
  });
  idx.resize(static_cast<size_t>(k));
}

float best_of(const float* values, size_t count) {
  return count == 0 ? kLowest : *std::max_element(values, values + count);
}

float sum_of_two_best(const float* values, size_t count) {
  float first = kLowest;
  float second = kLowest;
  for (size_t i = 0; i < count; ++i) {
    if (values[i] > first) {
      second = first;
      first = values[i];
    } else if (values[i] > second) {
      second = values[i];
    }
  }
  return count < 2 ? first : first + second;
}

void choose(const RouteArgs& args, RouteScratch& scratch) {
  const size_t num_groups = static_cast<size_t>(args.num_groups);
  const size_t group_size = scratch.biased.size() / num_groups;
  scratch.groups.resize(num_groups);
  std::iota(scratch.groups.begin(), scratch.groups.end(), 0);
  if (args.top_groups < args.num_groups) {
    scratch.group_score.resize(num_groups);
    const auto score_of = args.group_score == RouteArgs::GroupScore::kBest ? best_of : sum_of_two_best;
    for (size_t g = 0; g < num_groups; ++g) {
      scratch.group_score[g] = score_of(scratch.biased.data() + g * group_size, group_size);
    }
    keep_best(scratch.groups, scratch.group_score, args.top_groups);
  }
  scratch.candidates.clear();
  for (const int32_t group : scratch.groups) {
    const auto first = static_cast<size_t>(group) * group_size;
    for (size_t e = first; e < first + group_size; ++e) scratch.candidates.push_back(static_cast<int32_t>(e));
  }
  keep_best(scratch.candidates, scratch.biased, args.top_k);
}

void weigh(const RouteArgs& args, const RouteScratch& scratch, float* weight) {
  double divisor = 1;
  if (args.weights == RouteArgs::Weights::kNormalised) {
    divisor = kWeightFloor;
    for (const int32_t expert : scratch.candidates) divisor += scratch.score[static_cast<size_t>(expert)];
  }
  for (size_t k = 0; k < scratch.candidates.size(); ++k) {
    const double score = scratch.score[static_cast<size_t>(scratch.candidates[k])];
    weight[k] = static_cast<float>(score / divisor * args.scale);
  }
}

void route_row(const RouteArgs& args, RouteScratch& scratch, const float* logits) {
  if (args.scoring == Scoring::kSoftmax) {
    score_softmax(logits, scratch.score);
  } else {
    score_sigmoid(logits, scratch.score);
  }
  const float* bias = args.bias.empty() ? nullptr : args.bias.as<float>();
  for (size_t e = 0; e < scratch.score.size(); ++e) {
    scratch.biased[e] = order_key(bias == nullptr ? scratch.score[e] : scratch.score[e] + bias[e]);
  }
  choose(args, scratch);
}

}  // namespace

void route(const RouteArgs& args, RouteScratch& scratch) {
  check(args);
  scratch.score.resize(static_cast<size_t>(args.logits.shape[1]));
  scratch.biased.resize(scratch.score.size());
  for (int64_t row = 0; row < args.logits.shape[0]; ++row) {
    auto* expert_idx = row_of<int32_t>(args.expert_idx, row);
    auto* weight = row_of<float>(args.weight, row);
    if (args.valid[static_cast<size_t>(row)] == 0) {
      std::fill_n(expert_idx, args.top_k, -1);
      std::fill_n(weight, args.top_k, 0.0f);
      continue;
    }
    route_row(args, scratch, row_of<float>(args.logits, row));
    std::copy(scratch.candidates.begin(), scratch.candidates.end(), expert_idx);
    weigh(args, scratch, weight);
  }
}

}  // namespace lockstep::kernels::cpu
