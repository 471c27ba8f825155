// The router, against the worked example of its paper's form and against a slow selection in double
// precision.
#include <algorithm>
#include <limits>

#include "tests/kernels/implementations.h"
#include "tests/kernels/matrices.h"

namespace lockstep::kernels {
namespace {

struct Routed {
  std::vector<std::vector<int32_t>> experts;
  Matrix weight;
};

Routed run(Kernels& kernels, RouteArgs args) {
  const int64_t rows = args.logits.shape[0];
  const std::vector<uint8_t> all_valid(static_cast<size_t>(rows), 1);
  if (args.valid.empty()) args.valid = all_valid;
  const int64_t guard = 3;
  std::vector<int32_t> idx(static_cast<size_t>(rows * args.top_k + 2 * guard), -77);
  Routed routed{{}, Matrix(rows, args.top_k, 2)};
  args.expert_idx = view_of(idx.data() + guard, {rows, args.top_k});
  args.weight = routed.weight.view();
  kernels.route(args);
  routed.weight.expect_written_exactly();
  for (int64_t i = 0; i < guard; ++i) {
    EXPECT_EQ(idx[static_cast<size_t>(i)], -77);
    EXPECT_EQ(idx[idx.size() - 1 - static_cast<size_t>(i)], -77);
  }
  for (int64_t r = 0; r < rows; ++r) {
    const auto begin = idx.begin() + guard + r * args.top_k;
    routed.experts.emplace_back(begin, begin + args.top_k);
  }
  return routed;
}

// One row the slow way: groups and experts are chosen one by one by looking at all that are left.
struct Slow {
  std::vector<int32_t> experts;
  std::vector<double> weight;
};

Slow route_slowly(const RouteArgs& args, const Matrix& logits, const Matrix* bias, int64_t row) {
  const int64_t num_experts = logits.cols();
  const int64_t group_size = num_experts / args.num_groups;
  std::vector<double> score, biased;
  double sum = 0;
  for (int64_t e = 0; e < num_experts; ++e) sum += std::exp(static_cast<double>(logits.at(row, e)));
  for (int64_t e = 0; e < num_experts; ++e) {
    const double logit = logits.at(row, e);
    score.push_back(args.scoring == Scoring::kSoftmax ? std::exp(logit) / sum : 1 / (1 + std::exp(-logit)));
    biased.push_back(score.back() + (bias == nullptr ? 0.0 : static_cast<double>(bias->at(0, e))));
  }
  std::vector<bool> open(static_cast<size_t>(num_experts), args.top_groups == args.num_groups);
  std::vector<bool> taken(static_cast<size_t>(args.num_groups), false);
  for (int kept = 0; args.top_groups < args.num_groups && kept < args.top_groups; ++kept) {
    int64_t best = -1;
    double best_sum = 0;
    for (int64_t g = 0; g < args.num_groups; ++g) {
      std::vector<double> of_group(biased.begin() + g * group_size, biased.begin() + (g + 1) * group_size);
      std::sort(of_group.rbegin(), of_group.rend());
      const bool best_alone = args.group_score == RouteArgs::GroupScore::kBest;
      const double two = of_group[0] + (group_size > 1 && !best_alone ? of_group[1] : 0.0);
      if (!taken[static_cast<size_t>(g)] && (best < 0 || two > best_sum)) {
        best = g;
        best_sum = two;
      }
    }
    taken[static_cast<size_t>(best)] = true;
    for (int64_t e = best * group_size; e < (best + 1) * group_size; ++e) open[static_cast<size_t>(e)] = true;
  }
  Slow slow;
  double chosen_sum = 0;
  for (int k = 0; k < args.top_k; ++k) {
    int64_t best = -1;
    for (int64_t e = 0; e < num_experts; ++e) {
      const auto i = static_cast<size_t>(e);
      if (open[i] && (best < 0 || biased[i] > biased[static_cast<size_t>(best)])) best = e;
    }
    open[static_cast<size_t>(best)] = false;
    slow.experts.push_back(static_cast<int32_t>(best));
    slow.weight.push_back(score[static_cast<size_t>(best)]);
    chosen_sum += slow.weight.back();
  }
  for (double& w : slow.weight) {
    if (args.weights == RouteArgs::Weights::kNormalised) w /= chosen_sum;
    w *= static_cast<double>(args.scale);
  }
  return slow;
}

float logit_of(double probability) { return static_cast<float>(std::log(probability / (1 - probability))); }

class Route : public KernelsTest {};

// Eight experts in four groups of two, two groups kept, two experts chosen. Scores and biases give the biased
// scores .60 .10 | .60 .60 | .40 .05 | .40 .50, so groups 1 and 3 stay, experts 2 and 3 are chosen, and each
// weighs 2.5 · ½. Expert 4 has the largest score of all and is not chosen.
TEST_P(Route, WorkedExampleOfGroupLimitedRouting) {
  const std::vector<double> z = {.60, .10, .50, .50, .70, .05, .20, .30};
  std::vector<float> bias = {0, 0, .1f, .1f, -.3f, 0, .2f, .2f};
  Matrix logits(1, 8);
  for (int64_t e = 0; e < 8; ++e) logits.at(0, e) = logit_of(z[static_cast<size_t>(e)]);
  const Routed routed = run(kernels(), {.logits = logits.view(),
                                        .bias = view_of(bias.data(), {8}),
                                        .top_k = 2,
                                        .num_groups = 4,
                                        .top_groups = 2,
                                        .scoring = Scoring::kSigmoid,
                                        .scale = 2.5f});
  EXPECT_EQ(routed.experts[0], (std::vector<int32_t>{2, 3}));
  EXPECT_FLOAT_EQ(routed.weight.at(0, 0), 1.25f);
  EXPECT_FLOAT_EQ(routed.weight.at(0, 1), 1.25f);
}

// Groups .30 .05 | .20 .20 | .25 .00: by its best alone the first and the third stay, by two the first and
// the second.
TEST_P(Route, GroupsMayBeRankedByTheirBestAlone) {
  Matrix logits(1, 6);
  const std::vector<double> p = {.30, .05, .20, .20, .25, .0001};
  for (int64_t e = 0; e < 6; ++e) logits.at(0, e) = static_cast<float>(std::log(p[static_cast<size_t>(e)]));
  RouteArgs args{.logits = logits.view(), .top_k = 2, .num_groups = 3, .top_groups = 2};
  args.group_score = RouteArgs::GroupScore::kBest;
  EXPECT_EQ(run(kernels(), args).experts[0], (std::vector<int32_t>{0, 4}));
  args.group_score = RouteArgs::GroupScore::kTwoBest;
  EXPECT_EQ(run(kernels(), args).experts[0], (std::vector<int32_t>{0, 2}));
}

// Excluded groups are out even when everything admissible has a negative biased score.
TEST_P(Route, NegativeBiasedScoresAreStillBetterThanExcludedOnes) {
  Matrix logits = Matrix::of({{logit_of(.5), logit_of(.5), logit_of(.9), logit_of(.1)}});
  std::vector<float> bias = {-.6f, -.7f, -2.0f, 0.5f};  // biased -.1 -.2 | -1.1 .6: sums -.3 and -.5
  const Routed routed = run(kernels(), {.logits = logits.view(),
                                        .bias = view_of(bias.data(), {4}),
                                        .top_k = 2,
                                        .num_groups = 2,
                                        .top_groups = 1,
                                        .scoring = Scoring::kSigmoid});
  EXPECT_EQ(routed.experts[0], (std::vector<int32_t>{0, 1}));
}

TEST_P(Route, AgreesWithTheSlowSelection) {
  struct Shape {
    int64_t experts;
    int groups, top_groups, top_k;
  };
  for (const Shape s :
       {Shape{16, 4, 2, 4}, Shape{256, 8, 4, 8}, Shape{64, 1, 1, 6}, Shape{8, 8, 3, 2}, Shape{1, 1, 1, 1}}) {
    for (const Scoring scoring : {Scoring::kSoftmax, Scoring::kSigmoid}) {
      for (const auto weights : {RouteArgs::Weights::kAsScored, RouteArgs::Weights::kNormalised}) {
        for (const auto& [with_bias, group_score] : {std::pair{false, RouteArgs::GroupScore::kTwoBest},
                                                     {true, RouteArgs::GroupScore::kTwoBest},
                                                     {false, RouteArgs::GroupScore::kBest},
                                                     {true, RouteArgs::GroupScore::kBest}}) {
          Matrix logits = Matrix::drawn(21, 9, s.experts);
          Matrix bias = Matrix::drawn(22, 1, s.experts);
          RouteArgs args{.logits = logits.view(),
                         .top_k = s.top_k,
                         .num_groups = s.groups,
                         .top_groups = s.top_groups,
                         .group_score = group_score,
                         .scoring = scoring,
                         .weights = weights,
                         .scale = 2.5f};
          if (with_bias) args.bias = view_of(&bias.at(0, 0), {s.experts});
          const Routed routed = run(kernels(), args);
          for (int64_t r = 0; r < 9; ++r) {
            const Slow slow = route_slowly(args, logits, with_bias ? &bias : nullptr, r);
            EXPECT_EQ(routed.experts[static_cast<size_t>(r)], slow.experts)
                << s.experts << " experts, row " << r;
            for (size_t k = 0; k < slow.weight.size(); ++k) {
              // Scores are computed in double and rounded once, the weight once more.
              EXPECT_NEAR(routed.weight.at(r, static_cast<int64_t>(k)), slow.weight[k],
                          4 * kRound * slow.weight[k]);
            }
          }
        }
      }
    }
  }
}

TEST_P(Route, TiesGoToTheSmallerExpertAndTheSmallerGroup) {
  Matrix logits = Matrix::of({{1, 1, 1, 1, 1, 1, 1, 1}});
  const Routed plain = run(kernels(), {.logits = logits.view(), .top_k = 3});
  EXPECT_EQ(plain.experts[0], (std::vector<int32_t>{0, 1, 2}));
  const Routed grouped =
      run(kernels(), {.logits = logits.view(), .top_k = 3, .num_groups = 4, .top_groups = 2});
  EXPECT_EQ(grouped.experts[0], (std::vector<int32_t>{0, 1, 2}));
}

TEST_P(Route, AllExpertsCanBeChosen) {
  Matrix logits = Matrix::of({{0, 3, 1, 2}});
  const Routed routed = run(kernels(), {.logits = logits.view(), .top_k = 4});
  EXPECT_EQ(routed.experts[0], (std::vector<int32_t>{1, 3, 2, 0}));
  double sum = 0;
  for (int64_t k = 0; k < 4; ++k) sum += static_cast<double>(routed.weight.at(0, k));
  EXPECT_NEAR(sum, 1.0, 4 * kRound);
}

TEST_P(Route, PaddingRowsGoNowhere) {
  Matrix logits = Matrix::drawn(23, 3, 8);
  for (int64_t e = 0; e < 8; ++e) logits.at(1, e) = std::nanf("");  // whatever stands in a padding row
  const std::vector<uint8_t> valid = {1, 0, 1};
  const Routed routed = run(kernels(), {.logits = logits.view(), .valid = valid, .top_k = 2});
  EXPECT_EQ(routed.experts[1], (std::vector<int32_t>{-1, -1}));
  EXPECT_EQ(routed.weight.at(1, 0), 0.0f);
  EXPECT_EQ(routed.weight.at(1, 1), 0.0f);
  for (const int64_t r : {0, 2}) {
    const Routed alone = run(kernels(), {.logits = logits.view().row_range(r, 1), .top_k = 2});
    EXPECT_EQ(routed.experts[static_cast<size_t>(r)], alone.experts[0]);
    EXPECT_TRUE(routed.weight.row_equals(r, alone.weight, 0));
    EXPECT_GE(alone.experts[0][0], 0);
  }
}

// A row of NaN chooses experts that exist, once each, and says so in its weights.
TEST_P(Route, NanRowsStayInsideTheTable) {
  Matrix logits = Matrix::drawn(24, 2, 8);
  for (int64_t e = 0; e < 8; ++e) logits.at(0, e) = std::nanf("");
  logits.at(1, 3) = std::numeric_limits<float>::infinity();
  for (const Scoring scoring : {Scoring::kSoftmax, Scoring::kSigmoid}) {
    const Routed routed =
        run(kernels(),
            {.logits = logits.view(), .top_k = 3, .num_groups = 4, .top_groups = 2, .scoring = scoring});
    EXPECT_EQ(routed.experts[0], (std::vector<int32_t>{0, 1, 2}));
    EXPECT_TRUE(std::isnan(routed.weight.at(0, 0)));
    for (const int32_t e : routed.experts[1]) {
      EXPECT_GE(e, 0);
      EXPECT_LT(e, 8);
    }
  }
}

TEST_P(Route, NothingToRoute) {
  Matrix no_rows(0, 8), logits = Matrix::drawn(25, 2, 8);
  EXPECT_TRUE(run(kernels(), {.logits = no_rows.view(), .top_k = 2}).experts.empty());
  EXPECT_EQ(run(kernels(), {.logits = logits.view(), .top_k = 0}).experts[1], std::vector<int32_t>{});
}

TEST_P(Route, MoreThanThereIsIsABug) {
  Matrix logits = Matrix::drawn(26, 1, 8);
  EXPECT_THROW(run(kernels(), {.logits = logits.view(), .top_k = 9}), Fatal);
  EXPECT_THROW(run(kernels(), {.logits = logits.view(), .top_k = 3, .num_groups = 4, .top_groups = 1}),
               Fatal);
  EXPECT_THROW(run(kernels(), {.logits = logits.view(), .top_k = 1, .num_groups = 3}), Fatal);
}

LOCKSTEP_FOR_EVERY_IMPLEMENTATION(Route);

}  // namespace
}  // namespace lockstep::kernels
