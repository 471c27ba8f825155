// Products on codes are products on the numbers that they mean: bit for bit those of the same implementation
// on the decoded weights, in every scheme, also when the weight is cut inside its blocks.
#include <cstring>

#include "lockstep/kernels/cpu/vector/vector_ops.h"
#include "tests/kernels/implementations.h"
#include "tests/kernels/matrices.h"

namespace lockstep::kernels {
namespace {

using Element = QuantScheme::Element;
using Scale = QuantScheme::Scale;

struct Scheme {
  std::string name;
  QuantScheme scheme;
  bool has_zeros = false, has_index = false;
};

const std::vector<Scheme>& schemes() {
  static const std::vector<Scheme> all = {
      {"f16", {Element::kF16, Scale::kNone, 1, 1}},
      {"fp8 blocks", {Element::kE4M3, Scale::kF32, 128, 128}},
      {"fp8 blocks of odd size", {Element::kE4M3, Scale::kBF16, 3, 5}},
      {"fp8 channels", {Element::kE4M3, Scale::kF16, 1, 4096}},
      {"nvfp4", {Element::kE2M1, Scale::kE4M3, 1, 16}},
      {"mxfp4", {Element::kE2M1, Scale::kE8M0, 1, 32}},
      {"int8", {Element::kI8, Scale::kBF16, 1, 4096}, true},
      {"uint8", {Element::kU8, Scale::kF32, 1, 32}, true},
      {"int4", {Element::kU4, Scale::kF16, 1, 32}},
      {"int4 with zero points", {Element::kU4, Scale::kF32, 1, 64}, true},
      {"int4 with groups in disorder", {Element::kU4, Scale::kF32, 1, 64}, true, true},
  };
  return all;
}

// A weight of random codes; factors near 1, so that every format can hold them.
class Coded {
 public:
  Coded(const Scheme& scheme, int64_t rows, int64_t cols, uint64_t seed) {
    const QuantScheme& s = scheme.scheme;
    view_.scheme = s;
    view_.num_rows = rows;
    view_.num_cols = cols;
    view_.row_bytes = (cols * bits_of(s.element) + 7) / 8 + 3;
    codes_.resize(static_cast<size_t>(rows * view_.row_bytes));
    for (size_t i = 0; i < codes_.size(); ++i) codes_[i] = static_cast<uint8_t>(256 * uniform_draw(seed, i));
    if (s.element == Element::kE4M3)
      for (uint8_t& code : codes_)
        if ((code & 0x7f) == 0x7f) code = 0;  // NaN has a test of its own
    if (s.element == Element::kF16)
      for (size_t i = 1; i < codes_.size(); i += 1) codes_[i] &= 0xbf;  // below 2 in either byte of a number
    const int64_t grid_rows = (rows + s.block_rows - 1) / s.block_rows;
    view_.scale_stride = (cols + s.block_cols - 1) / s.block_cols;
    const auto grid = static_cast<size_t>(grid_rows * view_.scale_stride);
    scales_.resize(grid * 4);
    for (size_t i = 0; i < grid; ++i) set_scale(s.scale, i, uniform_draw(seed + 1, i));
    zeros_.resize(grid);
    for (size_t i = 0; i < grid; ++i) zeros_[i] = static_cast<uint8_t>(16 * uniform_draw(seed + 2, i));
    index_.resize(static_cast<size_t>(cols));
    for (size_t i = 0; i < index_.size(); ++i)
      index_[i] = static_cast<int32_t>(static_cast<double>(view_.scale_stride) * uniform_draw(seed + 3, i));
    view_.codes = codes_.data();
    if (s.scale != Scale::kNone) view_.scales = scales_.data();
    if (scheme.has_zeros) view_.zeros = zeros_.data();
    if (scheme.has_index) view_.block_of_col = index_.data();
    if (s.element == Element::kU4 && !scheme.has_zeros) view_.zero = 8;
    if (s.element == Element::kE2M1) view_.factor = 0.25f;
  }

  const WeightView& view() const { return view_; }
  std::vector<uint8_t>& codes() { return codes_; }

 private:
  void set_scale(Scale type, size_t at, double draw) {
    const auto value = static_cast<float>(0.5 + draw);
    const auto put = [&](const auto& stored) {
      std::memcpy(scales_.data() + at * sizeof stored, &stored, sizeof stored);
    };
    if (type == Scale::kF32) put(value);
    if (type == Scale::kBF16) put(to_bf16(value).bits);
    if (type == Scale::kF16) put(static_cast<uint16_t>(0x3800 + static_cast<int>(0x400 * draw)));  // 0.5 … 1
    if (type == Scale::kE4M3) put(static_cast<uint8_t>(0x30 + static_cast<int>(16 * draw)));
    if (type == Scale::kE8M0) put(static_cast<uint8_t>(125 + static_cast<int>(4 * draw)));
  }

  WeightView view_;
  std::vector<uint8_t> codes_, scales_, zeros_;
  std::vector<int32_t> index_;
};

Matrix decoded(const WeightView& view) {
  Matrix numbers(view.rows(), view.cols());
  for (int64_t row = 0; row < view.rows(); ++row) {
    std::vector<float> line(static_cast<size_t>(view.cols()));
    decode_row(view, row, 0, view.cols(), line.data());
    for (int64_t col = 0; col < view.cols(); ++col) numbers.at(row, col) = line[static_cast<size_t>(col)];
  }
  return numbers;
}

class CodedProducts : public KernelsTest {
 protected:
  void expect_same(const WeightView& view, int64_t rows) {
    Matrix numbers = decoded(view);
    Matrix x = Matrix::drawn(4, rows, view.cols()), got(rows, view.rows(), 2), want(rows, view.rows());
    kernels().linear({.x = x.view(), .w = view, .out = got.view()});
    kernels().linear({.x = x.view(), .w = numbers.view(), .out = want.view()});
    got.expect_written_exactly();
    for (int64_t r = 0; r < rows; ++r) ASSERT_TRUE(got.row_equals(r, want, r)) << "linear, row " << r;
    Matrix y = Matrix::drawn(5, rows, view.rows()), got_t(rows, view.cols(), 1), want_t(rows, view.cols());
    kernels().matmul({.x = y.view(), .w = view, .out = got_t.view()});
    kernels().matmul({.x = y.view(), .w = numbers.view(), .out = want_t.view()});
    got_t.expect_written_exactly();
    for (int64_t r = 0; r < rows; ++r) ASSERT_TRUE(got_t.row_equals(r, want_t, r)) << "matmul, row " << r;
  }
};

TEST_P(CodedProducts, EverySchemeWholeAndCut) {
  for (const Scheme& scheme : schemes()) {
    SCOPED_TRACE(scheme.name);
    const Coded weight(scheme, 37, 197, 11);
    for (const int64_t rows : {1, 3, 30}) expect_same(weight.view(), rows);
    for (const int64_t begin : {1, 17, 64, 99})
      expect_same(weight.view().row_range(5, 21).col_range(begin, 197 - begin - 3), 2);
  }
}

TEST_P(CodedProducts, BeyondOneBlockOfTheInnerDimension) {
  for (const Scheme& scheme : schemes()) {
    SCOPED_TRACE(scheme.name);
    expect_same(Coded(scheme, 40, 1100, 12).view().col_range(7, 1091), 26);
  }
}

TEST_P(CodedProducts, NoBitDependsOnHowManyThreadsThereAre) {
  if (is_reference()) return;  // has one thread
  for (const Scheme& scheme : schemes()) {
    SCOPED_TRACE(scheme.name);
    const Coded weight(scheme, 300, 200, 15);
    for (const int64_t rows : {1, 5, 40}) {
      Matrix x = Matrix::drawn(4, rows, 200), y = Matrix::drawn(5, rows, 300);
      Matrix alone(rows, 300), alone_t(rows, 200);
      for (const int count : {1, 2, 3, 7}) {
        const auto threads = make_cpu_kernels({.count = count, .wait = CpuThreads::Wait::kSleep});
        Matrix out(rows, 300), out_t(rows, 200);
        Matrix &linear = count == 1 ? alone : out, &matmul = count == 1 ? alone_t : out_t;
        threads->linear({.x = x.view(), .w = weight.view(), .out = linear.view()});
        threads->matmul({.x = y.view(), .w = weight.view(), .out = matmul.view()});
        for (int64_t r = 0; r < rows; ++r) {
          ASSERT_TRUE(linear.row_equals(r, alone, r)) << "linear, row " << r << " of " << count << " threads";
          ASSERT_TRUE(matmul.row_equals(r, alone_t, r))
              << "matmul, row " << r << " of " << count << " threads";
        }
      }
    }
  }
}

TEST_P(CodedProducts, AnyDimensionMayBeZero) {
  for (const Scheme& scheme : schemes()) {
    const Coded weight(scheme, 6, 40, 13);
    expect_same(weight.view(), 0);
    expect_same(weight.view().row_range(3, 0), 2);
    expect_same(weight.view().col_range(9, 0), 2);
  }
}

TEST_P(CodedProducts, EveryCodeOfE4M3AndNaNStaysInItsOutput) {
  Coded weight({"fp8", {Element::kE4M3, Scale::kF32, 1, 4096}}, 4, 256, 14);
  for (size_t i = 0; i < 256; ++i)
    weight.codes()[static_cast<size_t>(weight.view().row_bytes) + i] = static_cast<uint8_t>(i);
  Matrix numbers = decoded(weight.view());
  Matrix x(1, 256), out(1, 4);
  for (int64_t i = 0; i < 256; ++i) x.at(0, i) = 1;
  kernels().linear({.x = x.view(), .w = weight.view(), .out = out.view()});
  EXPECT_TRUE(std::isnan(out.at(0, 1)));
  EXPECT_FALSE(std::isnan(out.at(0, 0)));
  // One code at a time.
  for (int64_t code = 0; code < 256; ++code) {
    for (int64_t i = 0; i < 256; ++i) x.at(0, i) = i == code ? 1.0f : 0.0f;
    if ((code & 0x7f) == 0x7f) continue;
    const WeightView one = weight.view().row_range(1, 1).col_range(code, 1);
    Matrix unit = Matrix::of({{1}}), number(1, 1);
    kernels().linear({.x = unit.view(), .w = one, .out = number.view()});
    EXPECT_EQ(number.at(0, 0), numbers.at(1, code)) << code;
  }
}

TEST_P(CodedProducts, EmbeddingAndExpertsTakeCodes) {
  const Scheme& scheme = schemes()[4];
  const Coded table(scheme, 9, 48, 15);
  Matrix numbers = decoded(table.view()), rows(3, 48);
  const std::vector<int32_t> ids = {8, 0, 99};
  kernels().embed({.token_ids = ids, .table = table.view(), .out = rows.view()});
  EXPECT_TRUE(rows.row_equals(0, numbers, 8));
  EXPECT_TRUE(rows.row_equals(1, numbers, 0));
  for (int64_t i = 0; i < 48; ++i) EXPECT_EQ(rows.at(2, i), 0);

  const Coded gate(scheme, 32, 48, 16), up(scheme, 32, 48, 17), down(scheme, 48, 32, 18);
  Matrix gate_numbers = decoded(gate.view()), up_numbers = decoded(up.view()),
         down_numbers = decoded(down.view());
  Matrix x = Matrix::drawn(6, 5, 48), scratch(5, 64), got(5, 48), want(5, 48);
  std::vector<int32_t> start = {0, 5};
  const auto run = [&](const WeightView& g, const WeightView& u, const WeightView& d, Matrix& y) {
    const std::vector<WeightView> gates = {g}, ups = {u}, downs = {d};
    kernels().grouped_ffn({.x = x.view(),
                           .expert_start = view_of(start.data(), {2}),
                           .gate = gates,
                           .up = ups,
                           .down = downs,
                           .scratch = scratch.view(),
                           .y = y.view()});
  };
  run(gate.view(), up.view(), down.view(), got);
  run(gate_numbers.view(), up_numbers.view(), down_numbers.view(), want);
  for (int64_t r = 0; r < 5; ++r) EXPECT_TRUE(got.row_equals(r, want, r));
}

TEST_P(CodedProducts, DecodedWithVectorsAreTheSameBits) {
  if (is_reference()) return;
  for (const Scheme& scheme : schemes()) {
    SCOPED_TRACE(scheme.name);
    const Coded weight(scheme, 3, 133, 19);
    for (int64_t begin = 0; begin < 40; ++begin) {
      Matrix fast(1, 133 - begin), slow(1, 133 - begin);
      cpu::vector_decode_row(weight.view(), 2, begin, 133 - begin, &fast.at(0, 0));
      decode_row(weight.view(), 2, begin, 133 - begin, &slow.at(0, 0));
      fast.expect_written_exactly();
      ASSERT_TRUE(fast.row_equals(0, slow, 0)) << "from " << begin;
    }
  }
}

TEST_P(CodedProducts, WeightsThatCannotBeAreABug) {
  const Coded weight(schemes()[1], 4, 10, 20);
  Matrix x = Matrix::drawn(1, 1, 10), out(1, 4);
  WeightView wide = weight.view();
  wide.row_bytes = 5;
  EXPECT_THROW(kernels().linear({.x = x.view(), .w = wide, .out = out.view()}), Fatal);
  WeightView bare = weight.view();
  bare.scales = nullptr;
  EXPECT_THROW(kernels().linear({.x = x.view(), .w = bare, .out = out.view()}), Fatal);
  WeightView flat = weight.view();
  flat.scheme.block_cols = 0;
  EXPECT_THROW(kernels().linear({.x = x.view(), .w = flat, .out = out.view()}), Fatal);
}

LOCKSTEP_FOR_EVERY_IMPLEMENTATION(CodedProducts);

}  // namespace
}  // namespace lockstep::kernels
