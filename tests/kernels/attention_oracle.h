#pragma once
// Attention of one row and head in double precision, for the attention tests.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

namespace lockstep::kernels {

// The softmax of `score` applied to values, in double precision.
template <class ValueAt>
double attend(const std::vector<double>& score, ValueAt&& value) {
  double highest = score.front();
  for (const double s : score) highest = std::max(highest, s);
  double sum = 0;
  double weighted = 0;
  for (size_t t = 0; t < score.size(); ++t) {
    const double weight = std::exp(score[t] - highest);
    sum += weight;
    weighted += weight * value(static_cast<int64_t>(t));
  }
  return weighted / sum;
}

// Scores below are at most some 10 in size and sums of up to 40 products: each is off by less than 40 · 2^-24
// · 10, which moves a weight by that relative amount (2.4e-5); values are below 1.
constexpr double kAttentionTolerance = 5e-5;

}  // namespace lockstep::kernels
