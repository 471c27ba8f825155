// The paged cache and both forms of multi-head latent attention.
#include <array>

#include "tests/kernels/attention_oracle.h"
#include "tests/kernels/implementations.h"
#include "tests/kernels/matrices.h"
#include "tests/kernels/paged_cache.h"

namespace lockstep::kernels {
namespace {

class Cache : public KernelsTest {};

TEST_P(Cache, WhatIsWrittenIsReadBack) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int page_size : {1, 4, 16}) {
      PagedCache cache(2, 21, page_size, 5, dtype);
      Matrix x = Matrix::drawn(1, 30, 5, 2);
      // 21 tokens of sequence 0 in two steps, 7 of sequence 1 in the second; rows 20 and 29 belong to nobody.
      const std::vector<PagedSequence> first = {cache.sequence(0, 0, 13, 13)};
      const std::vector<PagedSequence> second = {cache.sequence(1, 21, 7, 7), cache.sequence(0, 12, 8, 21)};
      kernels().cache_write(
          {.x = x.view(), .sequences = first, .page_size = page_size, .cache = cache.view()});
      kernels().cache_write(
          {.x = x.view(), .sequences = second, .page_size = page_size, .cache = cache.view()});
      const auto expect_rows = [&](size_t s, int32_t context, auto&& row_of_token) {
        Matrix out(context, 5, 1);
        kernels().cache_read({.sequence = cache.sequence(s, 0, 0, context),
                              .page_size = page_size,
                              .cache = cache.view(),
                              .out = out.view()});
        out.expect_written_exactly();
        for (int64_t t = 0; t < context; ++t) {
          for (int64_t c = 0; c < 5; ++c) {
            const float written = x.at(row_of_token(t), c);
            EXPECT_EQ(out.at(t, c), dtype == DType::kBF16 ? to_float(to_bf16(written)) : written)
                << "token " << t;
          }
        }
      };
      expect_rows(0, 21, [](int64_t t) { return t < 13 ? t : t - 1; });
      expect_rows(1, 7, [](int64_t t) { return t + 21; });
      expect_rows(0, 0, [](int64_t t) { return t; });
    }
  }
}

TEST_P(Cache, PagesOutsideTheCacheAreABug) {
  PagedCache cache(1, 8, 4, 3, DType::kF32);
  Matrix x = Matrix::drawn(1, 1, 3);
  const std::vector<int32_t> beyond = {2}, below = {-1};
  for (const auto& table : {beyond, below}) {
    const std::vector<PagedSequence> sequences = {
        {.page_table = table, .first_row = 0, .num_rows = 1, .context = 1}};
    EXPECT_THROW(
        kernels().cache_write({.x = x.view(), .sequences = sequences, .page_size = 4, .cache = cache.view()}),
        Fatal);
  }
  const std::vector<PagedSequence> too_long = {cache.sequence(0, 0, 1, 9)};
  EXPECT_THROW(
      kernels().cache_write({.x = x.view(), .sequences = too_long, .page_size = 4, .cache = cache.view()}),
      Fatal);
  const std::vector<PagedSequence> outside_batch = {cache.sequence(0, 1, 1, 1)};
  EXPECT_THROW(kernels().cache_write(
                   {.x = x.view(), .sequences = outside_batch, .page_size = 4, .cache = cache.view()}),
               Fatal);
}

LOCKSTEP_FOR_EVERY_IMPLEMENTATION(Cache);

constexpr int kHeads = 3;
constexpr int kLatent = 24;
constexpr int kRope = 10;
constexpr int kWidth = kLatent + kRope;
constexpr float kScale = 0.9f;

class Absorbed : public KernelsTest {
 protected:
  // Tokens of sequence s are written into its cache by rows of `tokens`.
  void fill(PagedCache& cache, size_t s, Matrix& tokens) {
    const auto count = static_cast<int32_t>(tokens.rows());
    const std::vector<PagedSequence> sequences = {cache.sequence(s, 0, count, count)};
    kernels().cache_write(
        {.x = tokens.view(), .sequences = sequences, .page_size = cache.page_size(), .cache = cache.view()});
  }

  void attend_to(PagedCache& cache, const std::vector<PagedSequence>& sequences, const TensorView& q,
                 Matrix& out) {
    kernels().mla_absorbed({.q = q,
                            .sequences = sequences,
                            .page_size = cache.page_size(),
                            .cache = cache.view(),
                            .latent = kLatent,
                            .scale = kScale,
                            .out = out.cube(kHeads)});
  }

  static void expect_row(const PagedCache& cache, size_t s, int64_t position, const Matrix& q,
                         const Matrix& out, int64_t row) {
    for (int64_t head = 0; head < kHeads; ++head) {
      std::vector<double> score;
      for (int64_t t = 0; t <= position; ++t) {
        double product = 0;
        for (int64_t c = 0; c < kWidth; ++c)
          product += static_cast<double>(q.at(row, head * kWidth + c)) * cache.at(s, t, c);
        score.push_back(static_cast<double>(kScale) * product);
      }
      for (int64_t c = 0; c < kLatent; ++c) {
        const double want = attend(score, [&](int64_t t) { return cache.at(s, t, c); });
        ASSERT_NEAR(out.at(row, head * kLatent + c), want, kAttentionTolerance)
            << "row " << row << " head " << head;
      }
    }
  }
};

TEST_P(Absorbed, TwoSequencesAndPadding) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int page_size : {1, 16}) {
      PagedCache cache(2, 140, page_size, kWidth, dtype);
      Matrix long_tokens = Matrix::drawn(31, 140, kWidth), short_tokens = Matrix::drawn(32, 5, kWidth);
      fill(cache, 0, long_tokens);
      fill(cache, 1, short_tokens);
      Matrix q = Matrix::drawn(33, 12, kHeads * kWidth, 3);
      for (const int64_t row : {0, 6, 11}) {
        for (int64_t c = 0; c < kHeads * kWidth; ++c) q.at(row, c) = std::nanf("");  // padding
      }
      Matrix out(12, kHeads * kLatent, 2);
      attend_to(cache, {cache.sequence(1, 7, 4, 5), cache.sequence(0, 1, 5, 140)}, q.cube(kHeads), out);
      out.expect_written_exactly();
      for (int64_t j = 0; j < 5; ++j) expect_row(cache, 0, 135 + j, q, out, 1 + j);
      for (int64_t j = 0; j < 4; ++j) expect_row(cache, 1, 1 + j, q, out, 7 + j);
      for (const int64_t row : {0, 6, 11}) {
        for (int64_t c = 0; c < kHeads * kLatent; ++c)
          EXPECT_EQ(out.at(row, c), 0.0f) << "padding row " << row;
      }
    }
  }
}

// One token sees itself alone: its weight is 1, whatever the score.
TEST_P(Absorbed, TheFirstTokenGivesItsOwnValue) {
  PagedCache cache(1, 1, 16, kWidth, DType::kF32);
  Matrix token = Matrix::drawn(34, 1, kWidth);
  fill(cache, 0, token);
  Matrix q = Matrix::drawn(35, 1, kHeads * kWidth);
  Matrix out(1, kHeads * kLatent);
  attend_to(cache, {cache.sequence(0, 0, 1, 1)}, q.cube(kHeads), out);
  for (int64_t c = 0; c < kHeads * kLatent; ++c) EXPECT_EQ(out.at(0, c), token.at(0, c % kLatent));
}

// A row's bits depend on its position and the cache, not on how the rows before it were cut into steps, which
// other sequences are in the batch, or how large a page is.
TEST_P(Absorbed, ChunksNeighboursAndPagesLeaveNoTrace) {
  const int32_t num_tokens = 150;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Matrix tokens = Matrix::drawn(36, num_tokens, kWidth);
    Matrix q = Matrix::drawn(37, num_tokens, kHeads * kWidth);
    PagedCache cache(1, num_tokens, 16, kWidth, dtype);
    fill(cache, 0, tokens);
    Matrix whole(num_tokens, kHeads * kLatent);
    attend_to(cache, {cache.sequence(0, 0, num_tokens, num_tokens)}, q.cube(kHeads), whole);
    for (const auto& chunks : {std::vector<int32_t>{1, 63, 64, 22}, std::vector<int32_t>{65, 1, 1, 80, 3},
                               std::vector<int32_t>(150, 1)}) {
      PagedCache other(2, num_tokens, 7, kWidth, dtype);
      fill(other, 1, tokens);
      Matrix neighbour = Matrix::drawn(38, 9, kWidth);
      fill(other, 0, neighbour);
      int32_t done = 0;
      for (const int32_t count : chunks) {
        Matrix out(count + 1, kHeads * kLatent);
        Matrix q_now = Matrix::drawn(39, count + 1, kHeads * kWidth);
        for (int64_t r = 0; r < count; ++r) {
          for (int64_t c = 0; c < kHeads * kWidth; ++c) q_now.at(r + 1, c) = q.at(done + r, c);
        }
        attend_to(other, {other.sequence(0, 0, 1, 9), other.sequence(1, 1, count, done + count)},
                  q_now.cube(kHeads), out);
        for (int32_t r = 0; r < count; ++r)
          ASSERT_TRUE(out.row_equals(r + 1, whole, done + r)) << "token " << done + r;
        done += count;
      }
    }
  }
}

// Tokens after a row, in its own block of tokens, may hold anything.
TEST_P(Absorbed, NanInALaterTokenOrAnotherRowStaysThere) {
  Matrix tokens = Matrix::drawn(40, 20, kWidth);
  Matrix q = Matrix::drawn(41, 20, kHeads * kWidth);
  Matrix clean(20, kHeads * kLatent), spoilt(20, kHeads * kLatent);
  for (Matrix* out : {&clean, &spoilt}) {
    PagedCache cache(1, 20, 16, kWidth, DType::kF32);
    if (out == &spoilt) {
      tokens.at(12, kWidth - 1) = std::nanf("");  // of the key alone
      tokens.at(17, 0) = std::nanf("");           // of key and value
      q.at(3, 0) = std::nanf("");
    }
    fill(cache, 0, tokens);
    attend_to(cache, {cache.sequence(0, 0, 20, 20)}, q.cube(kHeads), *out);
  }
  for (int64_t row = 0; row < 12; ++row) {
    if (row == 3) {
      EXPECT_TRUE(std::isnan(spoilt.at(3, 0))) << "a NaN may not be hidden";
      continue;
    }
    EXPECT_TRUE(spoilt.row_equals(row, clean, row)) << row;
  }
  for (int64_t row = 12; row < 20; ++row) EXPECT_TRUE(std::isnan(spoilt.at(row, 0))) << row;
}

TEST_P(Absorbed, NothingToDo) {
  PagedCache cache(1, 4, 4, kWidth, DType::kF32);
  Matrix no_rows(0, kHeads * kWidth), no_out(0, kHeads * kLatent);
  attend_to(cache, {}, no_rows.cube(kHeads), no_out);
  attend_to(cache, {cache.sequence(0, 0, 0, 0)}, no_rows.cube(kHeads), no_out);
  no_out.expect_written_exactly();
  Matrix q(3, kHeads * kWidth), out(3, kHeads * kLatent);
  attend_to(cache, {}, q.cube(kHeads), out);
  for (int64_t r = 0; r < 3; ++r) EXPECT_EQ(out.at(r, 0), 0.0f);
}

LOCKSTEP_FOR_EVERY_IMPLEMENTATION(Absorbed);

constexpr int kNope = 14;
constexpr int kValue = 13;

class Expanded : public KernelsTest {
 protected:
  struct Inputs {
    Matrix q, kv, k_rope;
    Inputs(int64_t tokens, uint64_t seed)
        : q(Matrix::drawn(seed, tokens, kHeads * (kNope + kRope), 1)),
          kv(Matrix::drawn(seed + 1, tokens, kHeads * (kNope + kValue))),
          k_rope(Matrix::drawn(seed + 2, tokens, kRope, 6)) {}
  };

  // Rows [first, first + count) of a sequence of which first + count tokens are known.
  Matrix run(Inputs& in, int64_t first, int64_t count) {
    Matrix out(count, kHeads * kValue, 2);
    TensorView q = in.q.cube(kHeads).row_range(first, count);
    kernels().mla_expanded({.q = q,
                            .kv = in.kv.cube(kHeads).row_range(0, first + count),
                            .k_rope = in.k_rope.view().row_range(0, first + count),
                            .nope = kNope,
                            .scale = kScale,
                            .out = out.cube(kHeads)});
    out.expect_written_exactly();
    return out;
  }
};

TEST_P(Expanded, EveryRowSeesTheTokensUpToItself) {
  Inputs in(135, 51);
  const Matrix out = run(in, 4, 131);
  for (int64_t j = 0; j < 131; ++j) {
    for (int64_t head = 0; head < kHeads; ++head) {
      std::vector<double> score;
      for (int64_t t = 0; t <= 4 + j; ++t) {
        double product = 0;
        for (int64_t c = 0; c < kNope + kRope; ++c) {
          const double key =
              c < kNope ? in.kv.at(t, head * (kNope + kValue) + c) : in.k_rope.at(t, c - kNope);
          product += static_cast<double>(in.q.at(4 + j, head * (kNope + kRope) + c)) * key;
        }
        score.push_back(static_cast<double>(kScale) * product);
      }
      for (int64_t c = 0; c < kValue; ++c) {
        const double want =
            attend(score, [&](int64_t t) { return in.kv.at(t, head * (kNope + kValue) + kNope + c); });
        ASSERT_NEAR(out.at(j, head * kValue + c), want, kAttentionTolerance)
            << "row " << j << " head " << head;
      }
    }
  }
}

TEST_P(Expanded, ChunksLeaveNoTrace) {
  Inputs in(150, 54);
  const Matrix whole = run(in, 0, 150);
  for (const auto& chunks : {std::vector<int64_t>{1, 63, 64, 22}, std::vector<int64_t>{49, 1, 1, 99},
                             std::vector<int64_t>(150, 1)}) {
    int64_t done = 0;
    for (const int64_t count : chunks) {
      const Matrix part = run(in, done, count);
      for (int64_t r = 0; r < count; ++r)
        ASSERT_TRUE(part.row_equals(r, whole, done + r)) << "token " << done + r;
      done += count;
    }
  }
}

TEST_P(Expanded, NanInALaterTokenOrAnotherRowStaysThere) {
  Inputs in(20, 57);
  const Matrix clean = run(in, 0, 20);
  in.q.at(3, 0) = std::nanf("");
  in.kv.at(12, kNope) = std::nanf("");  // a value
  const Matrix spoilt = run(in, 0, 20);
  for (int64_t row = 0; row < 12; ++row) {
    if (row == 3) continue;
    EXPECT_TRUE(spoilt.row_equals(row, clean, row)) << row;
  }
  EXPECT_TRUE(std::isnan(spoilt.at(3, 0)));
  for (int64_t row = 12; row < 20; ++row) EXPECT_TRUE(std::isnan(spoilt.at(row, 0))) << row;
}

TEST_P(Expanded, NothingToDo) {
  Inputs in(5, 60);
  EXPECT_EQ(run(in, 5, 0).rows(), 0);
  EXPECT_EQ(run(in, 0, 0).rows(), 0);
}

// The identity that absorption rests on: keys W_K c and values W_V c attended to in expanded form give what
// absorbed queries W_Kᵀ q over the latents c give after W_V.
TEST_P(Expanded, EqualsTheAbsorbedForm) {
  const int32_t num_tokens = 70;
  Matrix latent_and_rope = Matrix::drawn(61, num_tokens, kWidth);
  Matrix w_kv = Matrix::drawn(62, kHeads * (kNope + kValue),
                              kLatent);  // per head: W_K [nope, latent], then W_V [value, latent]
  for (int64_t r = 0; r < w_kv.rows(); ++r) {
    for (int64_t c = 0; c < kLatent; ++c) w_kv.at(r, c) *= 0.3f;
  }
  Matrix q = Matrix::drawn(63, num_tokens, kHeads * (kNope + kRope));

  Matrix kv(num_tokens, kHeads * (kNope + kValue)), expanded(num_tokens, kHeads * kValue);
  kernels().linear({.x = latent_and_rope.view().col_range(0, kLatent), .w = w_kv.view(), .out = kv.view()});
  kernels().mla_expanded({.q = q.cube(kHeads),
                          .kv = kv.cube(kHeads),
                          .k_rope = latent_and_rope.view().col_range(kLatent, kRope),
                          .nope = kNope,
                          .scale = kScale,
                          .out = expanded.cube(kHeads)});

  PagedCache cache(1, num_tokens, 16, kWidth, DType::kF32);
  const std::vector<PagedSequence> sequences = {cache.sequence(0, 0, num_tokens, num_tokens)};
  kernels().cache_write(
      {.x = latent_and_rope.view(), .sequences = sequences, .page_size = 16, .cache = cache.view()});
  Matrix absorbed_q(num_tokens, kHeads * kWidth), over_latent(num_tokens, kHeads * kLatent),
      absorbed(num_tokens, kHeads * kValue);
  for (int64_t head = 0; head < kHeads; ++head) {
    const int64_t first_row = head * (kNope + kValue);
    kernels().matmul({.x = q.view().col_range(head * (kNope + kRope), kNope),
                      .w = w_kv.view().row_range(first_row, kNope),
                      .out = absorbed_q.view().col_range(head * kWidth, kLatent)});
    for (int64_t r = 0; r < num_tokens; ++r) {
      for (int64_t c = 0; c < kRope; ++c)
        absorbed_q.at(r, head * kWidth + kLatent + c) = q.at(r, head * (kNope + kRope) + kNope + c);
    }
  }
  kernels().mla_absorbed({.q = absorbed_q.cube(kHeads),
                          .sequences = sequences,
                          .page_size = 16,
                          .cache = cache.view(),
                          .latent = kLatent,
                          .scale = kScale,
                          .out = over_latent.cube(kHeads)});
  for (int64_t head = 0; head < kHeads; ++head) {
    kernels().linear({.x = over_latent.view().col_range(head * kLatent, kLatent),
                      .w = w_kv.view().row_range(head * (kNope + kValue) + kNope, kValue),
                      .out = absorbed.view().col_range(head * kValue, kValue)});
  }
  for (int64_t r = 0; r < num_tokens; ++r) {
    for (int64_t c = 0; c < kHeads * kValue; ++c)
      ASSERT_NEAR(expanded.at(r, c), absorbed.at(r, c), 2 * kAttentionTolerance) << r;
  }
}

LOCKSTEP_FOR_EVERY_IMPLEMENTATION(Expanded);

}  // namespace
}  // namespace lockstep::kernels
