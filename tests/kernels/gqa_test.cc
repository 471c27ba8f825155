// Grouped-query attention over paged caches of keys and values.
#include "tests/kernels/attention_oracle.h"
#include "tests/kernels/implementations.h"
#include "tests/kernels/matrices.h"
#include "tests/kernels/paged_cache.h"

namespace lockstep::kernels {
namespace {

constexpr int kHeadDim = 20;
constexpr float kScale = 0.9f;

// Which heads a rank has.
struct Heads {
  int count = 0, group = 1, first_in_group = 0;
  int kv_of(int head) const { return (first_in_group + head) / group; }
  int num_kv() const { return count == 0 ? 0 : kv_of(count - 1) + 1; }
  int query_width() const { return count * kHeadDim; }
  int kv_width() const { return num_kv() * kHeadDim; }
};

constexpr Heads kThree = {.count = 5, .group = 2, .first_in_group = 1};  // heads 1, 2 + 3, 4 + 5 of the model

struct Caches {
  PagedCache k, v;
  Caches(int num_sequences, int max_tokens, int page_size, const Heads& heads, DType dtype)
      : k(num_sequences, max_tokens, page_size, heads.kv_width(), dtype),
        v(num_sequences, max_tokens, page_size, heads.kv_width(), dtype) {}
  PagedSequence sequence(size_t s, int32_t first_row, int32_t num_rows, int32_t context) const {
    return k.sequence(s, first_row, num_rows, context);  // both lie in the same pages
  }
};

class Gqa : public KernelsTest {
 protected:
  void fill(Caches& caches, size_t s, Matrix& keys, Matrix& values) {
    const auto count = static_cast<int32_t>(keys.rows());
    const std::vector<PagedSequence> sequences = {caches.sequence(s, 0, count, count)};
    const int page_size = caches.k.page_size();
    kernels().cache_write(
        {.x = keys.view(), .sequences = sequences, .page_size = page_size, .cache = caches.k.view()});
    kernels().cache_write(
        {.x = values.view(), .sequences = sequences, .page_size = page_size, .cache = caches.v.view()});
  }

  // Keys and values drawn from the seed.
  void fill(Caches& caches, size_t s, const Heads& heads, int32_t num_tokens, uint64_t seed) {
    Matrix keys = Matrix::drawn(seed, num_tokens, heads.kv_width());
    Matrix values = Matrix::drawn(seed + 1000, num_tokens, heads.kv_width());
    fill(caches, s, keys, values);
  }

  void attend_to(Caches& caches, const Heads& heads, const std::vector<PagedSequence>& sequences, Matrix& q,
                 Matrix& out, int window = 0, const TensorView& sinks = {}) {
    kernels().gqa({.q = q.cube(heads.count),
                   .sequences = sequences,
                   .page_size = caches.k.page_size(),
                   .k = caches.k.view(),
                   .v = caches.v.view(),
                   .group = heads.group,
                   .first_in_group = heads.first_in_group,
                   .scale = kScale,
                   .window = window,
                   .sinks = sinks,
                   .out = out.cube(heads.count)});
  }

  static void expect_row(const Caches& caches, const Heads& heads, size_t s, int64_t position,
                         const Matrix& q, const Matrix& out, int64_t row, int window = 0,
                         const Matrix* sinks = nullptr) {
    const int64_t first = window == 0 ? 0 : std::max<int64_t>(0, position - window + 1);
    for (int head = 0; head < heads.count; ++head) {
      const int64_t column = heads.kv_of(head) * kHeadDim;
      std::vector<double> score;
      for (int64_t t = first; t <= position; ++t) {
        double product = 0;
        for (int64_t c = 0; c < kHeadDim; ++c)
          product += static_cast<double>(q.at(row, head * kHeadDim + c)) * caches.k.at(s, t, column + c);
        score.push_back(static_cast<double>(kScale) * product);
      }
      const int64_t num_tokens = position - first + 1;
      if (sinks != nullptr) score.push_back(static_cast<double>(sinks->at(0, head)));
      for (int64_t c = 0; c < kHeadDim; ++c) {
        const double want = attend(
            score, [&](int64_t t) { return t < num_tokens ? caches.v.at(s, first + t, column + c) : 0.0; });
        ASSERT_NEAR(out.at(row, head * kHeadDim + c), want, kAttentionTolerance)
            << "row " << row << " head " << head;
      }
    }
  }
};

TEST_P(Gqa, TwoSequencesAndPadding) {
  const Heads splits[] = {{.count = 4, .group = 4},
                          {.count = 3, .group = 1},
                          kThree,
                          {.count = 2, .group = 8, .first_in_group = 5},
                          {.count = 60, .group = 60}};
  for (const Heads& heads : splits) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (const int page_size : {1, 16}) {
        Caches caches(2, 140, page_size, heads, dtype);
        fill(caches, 0, heads, 140, 31);
        fill(caches, 1, heads, 5, 32);
        Matrix q = Matrix::drawn(33, 12, heads.query_width(), 3);
        for (const int64_t row : {0, 6, 11}) {
          for (int64_t c = 0; c < heads.query_width(); ++c) q.at(row, c) = std::nanf("");  // padding
        }
        Matrix out(12, heads.query_width(), 2);
        attend_to(caches, heads, {caches.sequence(1, 7, 4, 5), caches.sequence(0, 1, 5, 140)}, q, out);
        out.expect_written_exactly();
        for (int64_t j = 0; j < 5; ++j) expect_row(caches, heads, 0, 135 + j, q, out, 1 + j);
        for (int64_t j = 0; j < 4; ++j) expect_row(caches, heads, 1, 1 + j, q, out, 7 + j);
        for (const int64_t row : {0, 6, 11}) {
          for (int64_t c = 0; c < heads.query_width(); ++c)
            EXPECT_EQ(out.at(row, c), 0.0f) << "padding row " << row;
        }
      }
    }
  }
}

// A whole prompt of 150 tokens: windows that begin in the same block of tokens as their row, in an earlier
// one, at its first token, and before the sequence.
TEST_P(Gqa, AWindowHidesWhatIsOlder) {
  const Heads heads = kThree;
  Caches caches(1, 150, 16, heads, DType::kF32);
  fill(caches, 0, heads, 150, 41);
  Matrix q = Matrix::drawn(42, 150, heads.query_width());
  for (const int window : {1, 7, 64, 65, 149, 1000}) {
    Matrix out(150, heads.query_width());
    attend_to(caches, heads, {caches.sequence(0, 0, 150, 150)}, q, out, window);
    for (int64_t row = 0; row < 150; ++row) expect_row(caches, heads, 0, row, q, out, row, window);
  }
}

// A sink takes its share of every row's softmax and gives nothing back: small ones, equal ones, and one that
// takes nearly all; prompts and single rows, with and without a window.
TEST_P(Gqa, SinksTakeAShare) {
  const Heads heads = kThree;
  Caches caches(2, 150, 16, heads, DType::kF32);
  fill(caches, 0, heads, 150, 44);
  fill(caches, 1, heads, 1, 45);
  Matrix sinks = Matrix::of({{0, -3, 9, 1.5f, 0.25f}});
  Matrix q = Matrix::drawn(46, 151, heads.query_width());
  for (const int window : {0, 7, 65}) {
    Matrix out(151, heads.query_width());
    attend_to(caches, heads, {caches.sequence(0, 0, 150, 150), caches.sequence(1, 150, 1, 1)}, q, out, window,
              view_of(&sinks.at(0, 0), {heads.count}));
    for (int64_t row = 0; row < 150; ++row) expect_row(caches, heads, 0, row, q, out, row, window, &sinks);
    expect_row(caches, heads, 1, 0, q, out, 150, window, &sinks);
  }
  Matrix bf16_sinks = Matrix::of({{0.1f, -3, 9, 1.5f, 0.25f}});  // 0.1 is not exact
  std::vector<BF16> stored;
  for (int64_t head = 0; head < heads.count; ++head) {
    stored.push_back(to_bf16(bf16_sinks.at(0, head)));
    bf16_sinks.at(0, head) = to_float(stored.back());
  }
  Matrix last = Matrix::drawn(47, 1, heads.query_width()), out(1, heads.query_width());
  attend_to(caches, heads, {caches.sequence(0, 0, 1, 150)}, last, out, 0,
            view_of(stored.data(), DType::kBF16, {heads.count}));
  expect_row(caches, heads, 0, 149, last, out, 0, 0, &bf16_sinks);
  EXPECT_THROW(attend_to(caches, heads, {}, last, out, 0, view_of(stored.data(), DType::kBF16, {3})), Fatal);
}

// One token sees itself alone: its weight is 1, whatever the score.
TEST_P(Gqa, TheFirstTokenGivesItsOwnValue) {
  const Heads heads = kThree;
  Caches caches(1, 1, 16, heads, DType::kF32);
  Matrix key = Matrix::drawn(34, 1, heads.kv_width()), value = Matrix::drawn(35, 1, heads.kv_width());
  fill(caches, 0, key, value);
  Matrix q = Matrix::drawn(36, 1, heads.query_width()), out(1, heads.query_width());
  attend_to(caches, heads, {caches.sequence(0, 0, 1, 1)}, q, out);
  for (int head = 0; head < heads.count; ++head) {
    for (int c = 0; c < kHeadDim; ++c)
      EXPECT_EQ(out.at(0, head * kHeadDim + c), value.at(0, heads.kv_of(head) * kHeadDim + c));
  }
}

// A row's bits depend on its position and the caches, not on how the rows before it were cut into steps,
// which other sequences are in the batch, or how large a page is.
TEST_P(Gqa, ChunksNeighboursAndPagesLeaveNoTrace) {
  const Heads heads = kThree;
  const int32_t num_tokens = 150;
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int window : {0, 70}) {
      Matrix q = Matrix::drawn(37, num_tokens, heads.query_width());
      Caches caches(1, num_tokens, 16, heads, dtype);
      fill(caches, 0, heads, num_tokens, 36);
      Matrix whole(num_tokens, heads.query_width());
      attend_to(caches, heads, {caches.sequence(0, 0, num_tokens, num_tokens)}, q, whole, window);
      for (const auto& chunks : {std::vector<int32_t>{1, 63, 64, 22}, std::vector<int32_t>{65, 1, 1, 80, 3},
                                 std::vector<int32_t>(150, 1)}) {
        Caches other(2, num_tokens, 7, heads, dtype);
        fill(other, 1, heads, num_tokens, 36);
        fill(other, 0, heads, 9, 38);
        int32_t done = 0;
        for (const int32_t count : chunks) {
          Matrix out(count + 1, heads.query_width());
          Matrix q_now = Matrix::drawn(39, count + 1, heads.query_width());
          for (int64_t r = 0; r < count; ++r) {
            for (int64_t c = 0; c < heads.query_width(); ++c) q_now.at(r + 1, c) = q.at(done + r, c);
          }
          attend_to(other, heads, {other.sequence(0, 0, 1, 9), other.sequence(1, 1, count, done + count)},
                    q_now, out, window);
          for (int32_t r = 0; r < count; ++r)
            ASSERT_TRUE(out.row_equals(r + 1, whole, done + r)) << "token " << done + r;
          done += count;
        }
      }
    }
  }
}

// A head's bits do not depend on which other heads the rank has.
TEST_P(Gqa, SplitsOfTheHeadsLeaveNoTrace) {
  const Heads whole_heads = {.count = 8, .group = 4};
  Matrix keys = Matrix::drawn(61, 90, whole_heads.kv_width());
  Matrix values = Matrix::drawn(62, 90, whole_heads.kv_width());
  Matrix q = Matrix::drawn(63, 90, whole_heads.query_width()), whole(90, whole_heads.query_width());
  Caches caches(1, 90, 16, whole_heads, DType::kF32);
  fill(caches, 0, keys, values);
  attend_to(caches, whole_heads, {caches.sequence(0, 0, 90, 90)}, q, whole);
  for (int begin = 0; begin < 8; ++begin) {
    for (int end = begin + 1; end <= 8; ++end) {
      const Heads heads = {.count = end - begin, .group = 4, .first_in_group = begin % 4};
      Caches part(1, 90, 16, heads, DType::kF32);
      Matrix part_keys(90, heads.kv_width()), part_values(90, heads.kv_width());
      Matrix part_q(90, heads.query_width()), out(90, heads.query_width());
      for (int64_t r = 0; r < 90; ++r) {
        for (int64_t c = 0; c < heads.kv_width(); ++c) {
          part_keys.at(r, c) = keys.at(r, begin / 4 * kHeadDim + c);
          part_values.at(r, c) = values.at(r, begin / 4 * kHeadDim + c);
        }
        for (int64_t c = 0; c < heads.query_width(); ++c) part_q.at(r, c) = q.at(r, begin * kHeadDim + c);
      }
      fill(part, 0, part_keys, part_values);
      attend_to(part, heads, {part.sequence(0, 0, 90, 90)}, part_q, out);
      for (int64_t r = 0; r < 90; ++r) {
        for (int64_t c = 0; c < heads.query_width(); ++c)
          ASSERT_EQ(out.at(r, c), whole.at(r, begin * kHeadDim + c)) << "heads " << begin << " to " << end;
      }
    }
  }
}

// Tokens after a row or before its window, in its own block of tokens, may hold anything.
TEST_P(Gqa, NanInAnUnseenTokenOrAnotherRowStaysThere) {
  const Heads heads = {.count = 4, .group = 2};
  for (const int window : {0, 4}) {
    Matrix keys = Matrix::drawn(40, 20, heads.kv_width()), values = Matrix::drawn(43, 20, heads.kv_width());
    Matrix q = Matrix::drawn(41, 20, heads.query_width());
    Matrix clean(20, heads.query_width()), spoilt(20, heads.query_width());
    for (Matrix* out : {&clean, &spoilt}) {
      Caches caches(1, 20, 16, heads, DType::kF32);
      if (out == &spoilt) {
        keys.at(12, 0) = std::nanf("");    // of the first pair of heads
        values.at(14, 0) = std::nanf("");  // of the first pair of heads
        q.at(3, 0) = std::nanf("");        // of the first head
      }
      fill(caches, 0, keys, values);
      attend_to(caches, heads, {caches.sequence(0, 0, 20, 20)}, q, *out, window);
    }
    for (int64_t row = 0; row < 20; ++row) {
      const bool sees_nan = row == 3 || (row >= 12 && (window == 0 || row < 14 + window));
      EXPECT_EQ(std::isnan(spoilt.at(row, 0)), sees_nan) << row;
      if (!sees_nan) {
        EXPECT_TRUE(spoilt.row_equals(row, clean, row)) << row;
      }
      for (int64_t c = 2 * kHeadDim; c < heads.query_width(); ++c)
        EXPECT_EQ(spoilt.at(row, c), clean.at(row, c)) << "of the other pair of heads, row " << row;
    }
  }
}

TEST_P(Gqa, NothingToDo) {
  const Heads heads = kThree, none = {};
  Caches caches(1, 4, 4, heads, DType::kF32), empty(1, 4, 4, none, DType::kF32);
  Matrix no_rows(0, heads.query_width()), no_out(0, heads.query_width());
  attend_to(caches, heads, {}, no_rows, no_out);
  attend_to(caches, heads, {caches.sequence(0, 0, 0, 0)}, no_rows, no_out);
  no_out.expect_written_exactly();
  Matrix q(3, heads.query_width()), out(3, heads.query_width());
  attend_to(caches, heads, {}, q, out);
  for (int64_t r = 0; r < 3; ++r) EXPECT_EQ(out.at(r, 0), 0.0f);
  Matrix no_heads(3, 0), no_heads_out(3, 0);
  kernels().gqa({.q = view_of(no_heads.view().data, DType::kF32, {3, 0, kHeadDim}),
                 .sequences = std::vector<PagedSequence>{empty.sequence(0, 0, 3, 3)},
                 .page_size = 4,
                 .k = empty.k.view(),
                 .v = empty.v.view(),
                 .out = view_of(no_heads_out.view().data, DType::kF32, {3, 0, kHeadDim})});
  no_heads_out.expect_written_exactly();
}

TEST_P(Gqa, HeadsThatDoNotFitTheCachesAreABug) {
  const Heads heads = kThree;
  Caches caches(1, 4, 4, heads, DType::kF32);
  Matrix q = Matrix::drawn(50, 1, heads.query_width()), out(1, heads.query_width());
  for (const Heads& wrong : {Heads{.count = 5, .group = 1}, Heads{.count = 5, .group = 4},
                             Heads{.count = 5, .group = 2, .first_in_group = 2}}) {
    EXPECT_THROW(attend_to(caches, wrong, {caches.sequence(0, 0, 1, 1)}, q, out), Fatal);
  }
}

LOCKSTEP_FOR_EVERY_IMPLEMENTATION(Gqa);

}  // namespace
}  // namespace lockstep::kernels
