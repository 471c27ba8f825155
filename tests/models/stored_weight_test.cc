// Weights as published files hold them: what each layout means, that a part is a part of the whole wherever
// it is cut, and that everything that does not fit is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>

#include "lockstep/base/hash.h"
#include "lockstep/models/weights.h"
#include "lockstep/tensors/number_formats.h"
#include "lockstep/tensors/safetensors_writer.h"

namespace lockstep::models {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kRows = 16, kCols = 64, kGroup = 16;
const std::string kName = "m.up_proj.weight";

// A checkpoint made of bytes that a test writes.
class Stored : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              ("stored_weight_" + std::to_string(reinterpret_cast<uintptr_t>(this)));
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  template <class T>
  void add(const std::string& name, DType dtype, std::vector<int64_t> shape, const std::vector<T>& numbers) {
    tensors_.push_back({name, dtype, std::move(shape)});
    const auto* bytes = reinterpret_cast<const std::byte*>(numbers.data());
    data_.insert(data_.end(), bytes, bytes + numbers.size() * sizeof(T));
  }

  Checkpoint checkpoint() {
    const auto path = folder_ / "model.safetensors";
    std::filesystem::remove(path);
    auto writer = SafetensorsWriter::create(path, tensors_);
    EXPECT_TRUE(writer->write(data_).ok() && writer->finish().ok());
    return Checkpoint::open(folder_).value();
  }

  // Every cut of the weight against number(row, col).
  void expect_numbers(const QuantConfig& config, const std::function<float(int64_t, int64_t)>& number) {
    const Checkpoint file = checkpoint();
    WeightReader inspecting(
        [&] {
          WeightSource source(file);
          source.purpose = WeightSource::Purpose::kInspect;
          return source;
        }(),
        config);
    inspecting.weight(kName, kRows, kCols);
    ASSERT_TRUE(inspecting.status().ok()) << inspecting.status().error().message;
    for (const int parts : {1, 2, 3, 5})
      for (int part = 0; part < parts; ++part) {
        WeightReader reader(file, config);
        const Range rows = split_range(kRows, parts, part), cols = split_range(kCols, parts, part);
        const WeightView by_rows = reader.weight_rows(kName, kRows, kCols, rows);
        const WeightView by_cols = reader.weight_cols(kName, kRows, kCols, cols);
        ASSERT_TRUE(reader.finish({}).ok()) << reader.status().error().message;
        expect_part(by_rows, rows, {0, kCols}, number);
        expect_part(by_cols, {0, kRows}, cols, number);
      }
  }

  std::string refusal(const QuantConfig& config) {
    const Checkpoint file = checkpoint();
    WeightReader reader(file, config);
    reader.weight(kName, kRows, kCols);
    const Status status = reader.status();
    return status ? "" : status.error().message;
  }

 private:
  static void expect_part(const WeightView& view, Range rows, Range cols,
                          const std::function<float(int64_t, int64_t)>& number) {
    ASSERT_EQ(view.rows(), rows.size());
    ASSERT_EQ(view.cols(), cols.size());
    std::vector<float> line(static_cast<size_t>(cols.size()));
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      decode_row(view, row - rows.begin, 0, cols.size(), line.data());
      for (int64_t col = cols.begin; col < cols.end; ++col)
        ASSERT_EQ(line[static_cast<size_t>(col - cols.begin)], number(row, col)) << row << " " << col;
    }
  }

  std::filesystem::path folder_;
  std::vector<NewTensor> tensors_;
  std::vector<std::byte> data_;
};

int draw(uint64_t seed, int64_t a, int64_t b, int below) {
  return static_cast<int>(below * uniform_draw(seed, static_cast<uint64_t>(a * 1000 + b)));
}
int code_of(int64_t row, int64_t col) { return draw(1, row, col, 16); }
int zero_of(int64_t row, int64_t group) { return draw(2, row, group, 15) + 1; }
float scale_of(int64_t row, int64_t group) { return 0.25f * static_cast<float>(1 + draw(3, row, group, 8)); }
uint16_t f16_of(float small) {  // of k / 4 for k from 1 to 8: exact
  const int exponent = std::ilogb(small);
  return static_cast<uint16_t>((exponent + 15) << 10 |
                               static_cast<int>((small / std::ldexp(1.0f, exponent) - 1) * 1024));
}

std::vector<uint16_t> transposed_scales() {
  std::vector<uint16_t> scales;
  for (int64_t group = 0; group < kCols / kGroup; ++group)
    for (int64_t row = 0; row < kRows; ++row) scales.push_back(f16_of(scale_of(row, group)));
  return scales;
}

// GPTQ: eight inputs to a word, lowest bits first; zero points are stored less one.
TEST_F(Stored, Gptq) {
  std::vector<uint32_t> codes(kCols / 8 * kRows), zeros(kCols / kGroup * kRows / 8);
  for (int64_t col = 0; col < kCols; ++col)
    for (int64_t row = 0; row < kRows; ++row)
      codes[static_cast<size_t>(col / 8 * kRows + row)] |= static_cast<uint32_t>(code_of(row, col))
                                                           << (4 * (col % 8));
  for (int64_t group = 0; group < kCols / kGroup; ++group)
    for (int64_t row = 0; row < kRows; ++row)
      zeros[static_cast<size_t>(group * kRows / 8 + row / 8)] |=
          static_cast<uint32_t>(zero_of(row, group) - 1) << (4 * (row % 8));
  add("m.up_proj.qweight", DType::kI32, {kCols / 8, kRows}, codes);
  add("m.up_proj.qzeros", DType::kI32, {kCols / kGroup, kRows / 8}, zeros);
  add("m.up_proj.scales", DType::kF16, {kCols / kGroup, kRows}, transposed_scales());
  QuantConfig config{.method = QuantConfig::Method::kGptq, .bits = 4, .group_size = kGroup};
  expect_numbers(config, [](int64_t row, int64_t col) {
    return static_cast<float>(code_of(row, col) - zero_of(row, col / kGroup)) * scale_of(row, col / kGroup);
  });

  // With desc_act every input has a group of its own choice.
  std::vector<int32_t> index;
  for (int64_t col = 0; col < kCols; ++col) index.push_back(draw(4, col, 0, kCols / kGroup));
  add("m.up_proj.g_idx", DType::kI32, {kCols}, index);
  expect_numbers(config, [&](int64_t row, int64_t col) {
    const int64_t group = index[static_cast<size_t>(col)];
    return static_cast<float>(code_of(row, col) - zero_of(row, group)) * scale_of(row, group);
  });
}

TEST_F(Stored, GptqIndexOutsideOfItsGroupsIsRefused) {
  add("m.up_proj.qweight", DType::kI32, {kCols / 8, kRows}, std::vector<int32_t>(kCols / 8 * kRows));
  add("m.up_proj.qzeros", DType::kI32, {4, kRows / 8}, std::vector<int32_t>(4 * kRows / 8));
  add("m.up_proj.scales", DType::kF16, {4, kRows}, transposed_scales());
  std::vector<int32_t> index(kCols, 0);
  index[7] = 4;
  add("m.up_proj.g_idx", DType::kI32, {kCols}, index);
  EXPECT_THAT(refusal({.method = QuantConfig::Method::kGptq, .bits = 4, .group_size = kGroup}),
              HasSubstr("puts input 7 into group 4 of 4"));
}

// AWQ: a word holds outputs 0, 2, 4, 6, 1, 3, 5, 7 of its eight.
TEST_F(Stored, Awq) {
  constexpr int kOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};
  std::vector<uint32_t> codes, zeros;
  const auto pack = [&](const std::function<int(int64_t)>& code, int64_t word) {
    uint32_t packed = 0;
    for (int64_t place = 0; place < 8; ++place)
      packed |= static_cast<uint32_t>(code(8 * word + kOrder[place])) << (4 * place);
    return packed;
  };
  for (int64_t col = 0; col < kCols; ++col)
    for (int64_t word = 0; word < kRows / 8; ++word)
      codes.push_back(pack([&](int64_t row) { return code_of(row, col); }, word));
  for (int64_t group = 0; group < kCols / kGroup; ++group)
    for (int64_t word = 0; word < kRows / 8; ++word)
      zeros.push_back(pack([&](int64_t row) { return zero_of(row, group); }, word));
  add("m.up_proj.qweight", DType::kI32, {kCols, kRows / 8}, codes);
  add("m.up_proj.qzeros", DType::kI32, {kCols / kGroup, kRows / 8}, zeros);
  add("m.up_proj.scales", DType::kF16, {kCols / kGroup, kRows}, transposed_scales());
  expect_numbers({.method = QuantConfig::Method::kAwq, .bits = 4, .group_size = kGroup}, [](int64_t row,
                                                                                            int64_t col) {
    return static_cast<float>(code_of(row, col) - zero_of(row, col / kGroup)) * scale_of(row, col / kGroup);
  });
}

QuantConfig compressed(const QuantConfig::Group& group) {
  QuantConfig config{.method = QuantConfig::Method::kCompressedTensors};
  config.groups.push_back(group);
  config.groups.back().targets_all = true;
  return config;
}

std::vector<float> row_major_scales() {
  std::vector<float> scales;
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t group = 0; group < kCols / kGroup; ++group) scales.push_back(scale_of(row, group));
  return scales;
}

// compressed-tensors packs codes along the inputs and zero points along the outputs.
TEST_F(Stored, PackQuantizedWithZeroPoints) {
  std::vector<uint32_t> codes(kRows * kCols / 8), zeros(kRows / 8 * kCols / kGroup);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t col = 0; col < kCols; ++col)
      codes[static_cast<size_t>(row * kCols / 8 + col / 8)] |= static_cast<uint32_t>(code_of(row, col))
                                                               << (4 * (col % 8));
    for (int64_t group = 0; group < kCols / kGroup; ++group)
      zeros[static_cast<size_t>(row / 8 * (kCols / kGroup) + group)] |=
          static_cast<uint32_t>(zero_of(row, group)) << (4 * (row % 8));
  }
  add("m.up_proj.weight_packed", DType::kI32, {kRows, kCols / 8}, codes);
  add("m.up_proj.weight_scale", DType::kF32, {kRows, kCols / kGroup}, row_major_scales());
  const QuantConfig config =
      compressed({.bits = 4, .strategy = QuantConfig::Group::Strategy::kGroup, .group_size = kGroup});
  expect_numbers(config, [](int64_t row, int64_t col) {
    return static_cast<float>(code_of(row, col) - 8) * scale_of(row, col / kGroup);
  });
  add("m.up_proj.weight_zero_point", DType::kI32, {kRows / 8, kCols / kGroup}, zeros);
  expect_numbers(config, [](int64_t row, int64_t col) {
    return static_cast<float>(code_of(row, col) - zero_of(row, col / kGroup)) * scale_of(row, col / kGroup);
  });
}

std::vector<uint8_t> byte_codes() {
  std::vector<uint8_t> codes;
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t col = 0; col < kCols; ++col) codes.push_back(static_cast<uint8_t>(draw(5, row, col, 0x7f)));
  return codes;
}

TEST_F(Stored, Fp8OfOneFactorATensorAChannelOrABlock) {
  const auto codes = byte_codes();
  const auto number = [&](int64_t row, int64_t col) {
    return from_e4m3(codes[static_cast<size_t>(row * kCols + col)]);
  };
  add(kName, DType::kF8E4M3, {kRows, kCols}, codes);
  add("m.up_proj.weight_scale_inv", DType::kF32, {2, 4}, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
  expect_numbers({.method = QuantConfig::Method::kFp8, .block_rows = 10, .block_cols = 20},
                 [&](int64_t row, int64_t col) {
                   return number(row, col) * static_cast<float>(row / 10 * 4 + col / 20 + 1);
                 });
  EXPECT_THAT(refusal({.method = QuantConfig::Method::kFp8, .block_rows = 8, .block_cols = 20}), "")
      << "two block rows of 8 have the same shape";
  EXPECT_THAT(refusal({.method = QuantConfig::Method::kFp8, .block_rows = 128, .block_cols = 128}),
              HasSubstr("m.up_proj.weight_scale_inv is [2, 4], expected [1, 1]"));
}

TEST_F(Stored, Fp8OfCompressedTensors) {
  const auto codes = byte_codes();
  add(kName, DType::kF8E4M3, {kRows, kCols}, codes);
  std::vector<uint16_t> scales;
  for (int64_t row = 0; row < kRows; ++row) scales.push_back(to_bf16(static_cast<float>(row + 1)).bits);
  add("m.up_proj.weight_scale", DType::kBF16, {kRows, 1}, scales);
  using Strategy = QuantConfig::Group::Strategy;
  expect_numbers(compressed({.type = QuantConfig::Group::Type::kFloat, .strategy = Strategy::kChannel}),
                 [&](int64_t row, int64_t col) {
                   return from_e4m3(codes[static_cast<size_t>(row * kCols + col)]) *
                          static_cast<float>(row + 1);
                 });
  EXPECT_THAT(refusal(compressed({.strategy = Strategy::kTensor})),
              HasSubstr("m.up_proj.weight_scale is [16, 1], expected [1, 1]"));
  QuantConfig ignoring = compressed({.strategy = Strategy::kChannel});
  ignoring.ignored.push_back(NamePattern::parse("up_proj", NamePattern::Dialect::kModule).value());
  EXPECT_THAT(refusal(ignoring),
              HasSubstr("m.up_proj is quantized and config.json lists it as one that is not"));
  EXPECT_THAT(refusal({}), HasSubstr("m.up_proj is quantized and config.json has no quantization_config"));
  EXPECT_THAT(refusal({.method = QuantConfig::Method::kFp8, .block_rows = 128, .block_cols = 128}),
              HasSubstr("m.up_proj.weight_scale_inv is missing, expected [1, 1]"));
}

TEST_F(Stored, Int8WithZeroPoints) {
  std::vector<int8_t> codes, zeros;
  std::vector<float> scales;
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t col = 0; col < kCols; ++col)
      codes.push_back(static_cast<int8_t>(draw(6, row, col, 256) - 128));
    zeros.push_back(static_cast<int8_t>(draw(7, row, 0, 40) - 20));
    scales.push_back(scale_of(row, 0));
  }
  add(kName, DType::kI8, {kRows, kCols}, codes);
  add("m.up_proj.weight_scale", DType::kF32, {kRows, 1}, scales);
  add("m.up_proj.weight_zero_point", DType::kI8, {kRows, 1}, zeros);
  expect_numbers(compressed({.strategy = QuantConfig::Group::Strategy::kChannel}),
                 [&](int64_t row, int64_t col) {
                   return static_cast<float>(codes[static_cast<size_t>(row * kCols + col)] -
                                             zeros[static_cast<size_t>(row)]) *
                          scales[static_cast<size_t>(row)];
                 });
}

// Blocks of 16 with factors that are e4m3 too; ModelOpt keeps the tensor's factor, compressed-tensors 1 / it.
class Nvfp4 : public Stored {
 protected:
  void add_codes(const std::string& name) {
    std::vector<uint8_t> codes;
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t col = 0; col < kCols; col += 2)
        codes.push_back(static_cast<uint8_t>(code_of(row, col) | code_of(row, col + 1) << 4));
    add(name, DType::kU8, {kRows, kCols / 2}, codes);
  }
  void add_factors() {
    std::vector<uint8_t> factors;
    for (int64_t row = 0; row < kRows; ++row)
      for (int64_t block = 0; block < kCols / 16; ++block)
        factors.push_back(static_cast<uint8_t>(0x30 + draw(8, row, block, 16)));
    add("m.up_proj.weight_scale", DType::kF8E4M3, {kRows, kCols / 16}, factors);
  }
  static float number(int64_t row, int64_t col) {
    constexpr float kValues[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    const int code = code_of(row, col), factor = 0x30 + draw(8, row, col / 16, 16);
    const float scale = std::ldexp(static_cast<float>(8 + factor % 8), factor / 8 - 10);
    return (code >= 8 ? -1.0f : 1.0f) * kValues[code % 8] * scale;
  }
};

TEST_F(Nvfp4, OfModelOpt) {
  add_codes(kName);
  add_factors();
  add("m.up_proj.weight_scale_2", DType::kF32, {}, std::vector<float>{0.125f});
  expect_numbers({.method = QuantConfig::Method::kModelOpt},
                 [](int64_t row, int64_t col) { return number(row, col) * 0.125f; });
}

TEST_F(Nvfp4, OfCompressedTensors) {
  add_codes("m.up_proj.weight_packed");
  add_factors();
  add("m.up_proj.weight_global_scale", DType::kF32, {1}, std::vector<float>{8});
  expect_numbers(compressed({.bits = 4, .strategy = QuantConfig::Group::Strategy::kGroup, .group_size = 16}),
                 [](int64_t row, int64_t col) { return number(row, col) * 0.125f; });
}

TEST_F(Nvfp4, WithoutItsFactorsIsRefused) {
  add_codes(kName);
  EXPECT_THAT(refusal({.method = QuantConfig::Method::kModelOpt}),
              HasSubstr("m.up_proj.weight_scale is missing"));
  EXPECT_THAT(refusal({.method = QuantConfig::Method::kModelOpt}),
              HasSubstr("m.up_proj.weight_scale_2 is missing"));
  add_factors();
  add("m.up_proj.weight_scale_2", DType::kF32, {}, std::vector<float>{std::nanf("")});
  EXPECT_THAT(refusal({.method = QuantConfig::Method::kModelOpt}), HasSubstr("not a positive number"));
}

TEST_F(Stored, Mxfp4OfExpertsThatLieTogether) {
  std::vector<uint8_t> codes, factors;
  for (int64_t expert = 0; expert < 3; ++expert)
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t col = 0; col < kCols; col += 2)
        codes.push_back(
            static_cast<uint8_t>(code_of(row + expert, col) | code_of(row + expert, col + 1) << 4));
      for (int64_t block = 0; block < kCols / 32; ++block)
        factors.push_back(static_cast<uint8_t>(120 + expert + block));
    }
  add("experts.down_proj_blocks", DType::kU8, {3, kRows, kCols / 32, 16}, codes);
  add("experts.down_proj_scales", DType::kU8, {3, kRows, kCols / 32}, factors);
  const Checkpoint file = checkpoint();
  WeightReader reader(file, {.method = QuantConfig::Method::kMxfp4});
  ASSERT_TRUE(reader.has_weights("experts.down_proj"));
  const auto parts = reader.weights("experts.down_proj", 3, kRows, kCols, {1, 3});
  ASSERT_TRUE(reader.status().ok()) << reader.status().error().message;
  ASSERT_EQ(parts.size(), 2u);
  std::vector<float> line(kCols);
  for (int64_t expert = 1; expert < 3; ++expert)
    for (int64_t row = 0; row < kRows; ++row) {
      decode_row(parts[static_cast<size_t>(expert - 1)], row, 0, kCols, line.data());
      for (int64_t col = 0; col < kCols; ++col)
        ASSERT_EQ(line[static_cast<size_t>(col)],
                  from_e2m1(static_cast<uint8_t>(code_of(row + expert, col))) *
                      std::ldexp(1.0f, static_cast<int>(expert + col / 32) - 7));
    }
}

TEST_F(Stored, HalfPrecisionIsReadAsItIs) {
  std::vector<uint16_t> numbers;
  for (int64_t i = 0; i < kRows * kCols; ++i) numbers.push_back(f16_of(scale_of(i, 0)));
  add(kName, DType::kF16, {kRows, kCols}, numbers);
  add("m.norm.weight", DType::kF16, {kCols}, std::vector<uint16_t>(numbers.begin(), numbers.begin() + kCols));
  expect_numbers({}, [](int64_t row, int64_t col) { return scale_of(row * kCols + col, 0); });
  const Checkpoint file = checkpoint();
  WeightReader reader(file);
  const TensorView norm = reader.vector("m.norm.weight", kCols);
  ASSERT_EQ(norm.dtype, DType::kF32);
  for (int64_t i = 0; i < kCols; ++i) EXPECT_EQ(norm.as<float>()[i], scale_of(i, 0));
}

// Parts together are the whole: nothing is read twice or beside them.
TEST_F(Stored, AShardReadsItsBytesAlone) {
  add(kName, DType::kBF16, {kRows, kCols}, std::vector<uint16_t>(kRows * kCols));
  const Checkpoint file = checkpoint();
  for (const int parts : {1, 3, 4})
    for (const bool by_rows : {true, false}) {
      std::atomic<uint64_t> bytes = 0;
      for (int part = 0; part < parts; ++part) {
        WeightSource source(file);
        source.bytes_read = &bytes;
        WeightReader reader(source);
        if (by_rows) {
          reader.weight_rows(kName, kRows, kCols, split_range(kRows, parts, part));
        } else {
          reader.weight_cols(kName, kRows, kCols, split_range(kCols, parts, part));
        }
        ASSERT_TRUE(reader.finish({}).ok());
        EXPECT_EQ(reader.memory()->bytes(), 0u) << "nothing is copied";
      }
      EXPECT_EQ(bytes.load(), static_cast<uint64_t>(2 * kRows * kCols)) << parts;
    }
}

// What is encoded while it is read does not depend on how it is split.
TEST_F(Stored, EncodedWhileReadAPartIsAPartOfTheWhole) {
  std::vector<float> numbers;
  for (int64_t i = 0; i < kRows * kCols; ++i)
    numbers.push_back(static_cast<float>(2 * uniform_draw(9, static_cast<uint64_t>(i)) - 1));
  add(kName, DType::kF32, {kRows, kCols}, numbers);
  const Checkpoint file = checkpoint();
  for (const QuantFormat format : {QuantFormat::kFp8, QuantFormat::kNvfp4, QuantFormat::kMxfp4,
                                   QuantFormat::kInt8, QuantFormat::kInt4}) {
    WeightSource source(file);
    source.encode_as = format;
    WeightReader reader(source);
    const WeightView whole = reader.weight(kName, kRows, kCols);
    ASSERT_TRUE(whole.is_coded());
    std::vector<float> want(kCols), got(kCols);
    for (const int parts : {2, 3, 5, 20})
      for (int part = 0; part < parts; ++part) {
        const Range rows = split_range(kRows, parts, part), cols = split_range(kCols, parts, part);
        const WeightView by_rows = reader.weight_rows(kName, kRows, kCols, rows);
        const WeightView by_cols = reader.weight_cols(kName, kRows, kCols, cols);
        for (int64_t row = 0; row < kRows; ++row) {
          decode_row(whole, row, 0, kCols, want.data());
          decode_row(by_cols, row, 0, cols.size(), got.data());
          for (int64_t col = cols.begin; col < cols.end; ++col)
            ASSERT_EQ(got[static_cast<size_t>(col - cols.begin)], want[static_cast<size_t>(col)])
                << row << " " << col;
          if (!rows.contains(row)) continue;
          decode_row(by_rows, row - rows.begin, 0, kCols, got.data());
          ASSERT_EQ(got, want) << row;
        }
      }
    ASSERT_TRUE(reader.status().ok());
  }
}

TEST_F(Stored, AllThatDoesNotFitIsListedAtOnce) {
  add("a.weight", DType::kI64, {2}, std::vector<int64_t>{1, 2});
  add("b.weight", DType::kF32, {2, 1}, std::vector<float>{1, 2});
  add("left.over", DType::kF32, {1}, std::vector<float>{1});
  add("model.visual.patch", DType::kF32, {1}, std::vector<float>{1});
  add("model.layers.9.mlp.up_proj.weight", DType::kF32, {1}, std::vector<float>{1});
  const Checkpoint file = checkpoint();
  WeightSource source(file);
  source.purpose = WeightSource::Purpose::kInspect;
  WeightReader reader(source);
  reader.vector("a.weight", 2);
  reader.matrix("b.weight", 1, 2);
  reader.weight("c.weight", 3, 4);
  const Status status = reader.finish({{"model.layers.9.", "drafting"}});
  ASSERT_FALSE(status.ok());
  const std::string& message = status.error().message;
  EXPECT_THAT(message, HasSubstr("4 tensors do not fit the config"));
  EXPECT_THAT(message, HasSubstr("a.weight is i64, expected f32 or bf16 or f16"));
  EXPECT_THAT(message, HasSubstr("b.weight is [2, 1], expected [1, 2]"));
  EXPECT_THAT(message, HasSubstr("c.weight is missing"));
  EXPECT_THAT(message, HasSubstr("left.over f32 [1] is in the file and nothing reads it"));
}

}  // namespace
}  // namespace lockstep::models
