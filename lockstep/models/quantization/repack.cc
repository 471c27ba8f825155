#include "lockstep/models/quantization/repack.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "lockstep/models/weights.h"

namespace lockstep::models {
namespace {

// Words of 32 bits that hold codes side by side.
struct Packing {
  int bits = 4;
  std::array<int, 8> place = {0, 1, 2, 3, 4, 5, 6, 7};  // of the code with this number in its word
  int per_word() const { return 32 / bits; }
  uint8_t code(int32_t word, int64_t at) const {
    const int shift = place[static_cast<size_t>(at % per_word())] * bits;
    return static_cast<uint8_t>(static_cast<uint32_t>(word) >> shift & ((1u << bits) - 1));
  }
};

constexpr std::array<int, 8> kAwqPlaces = {0, 4, 1, 5, 2, 6, 3, 7};  // a word holds outputs 0 2 4 6 1 3 5 7

// What both layouts share: where the kept part begins and its memory.
class Repacked {
 public:
  Repacked(WeightReader& reader, const IntegerWords& words, const Packing& packing, int64_t group_size)
      : reader_(reader),
        words_(words),
        packing_(packing),
        group_cols_(group_size > 0 ? group_size : std::max<int64_t>(words.cols, 1)),
        num_groups_(blocks_of(words.cols, group_cols_)) {}

  int64_t num_groups() const { return num_groups_; }
  int64_t group_cols() const { return group_cols_; }

  // code_at(row, col): of the stored matrix.
  template <class CodeAt>
  WeightView make(const TensorView& scales, const TensorView& zeros, int zero_offset, const int32_t* index,
                  CodeAt&& code_at) {
    const int64_t rows = words_.keep_rows.size();
    // Whole groups; with a group for each input all of them.
    const int64_t first_group = index != nullptr ? 0 : words_.keep_cols.begin / group_cols_;
    const int64_t end_group =
        index != nullptr ? num_groups_ : std::max(first_group, blocks_of(words_.keep_cols.end, group_cols_));
    const int64_t first_col = index != nullptr ? words_.keep_cols.begin / 2 * 2 : first_group * group_cols_;
    const int64_t cols = std::max<int64_t>(words_.keep_cols.end - first_col, 0);
    const int64_t groups = end_group - first_group;
    WeightView weight;
    weight.scheme = {.element = packing_.bits == 4 ? QuantScheme::Element::kU4 : QuantScheme::Element::kU8,
                     .scale = QuantScheme::Scale::kF32,
                     .block_cols = group_cols_};
    weight.row_bytes = blocks_of(cols * packing_.bits, 8);
    auto* codes = reinterpret_cast<uint8_t*>(reader_.allocate(static_cast<size_t>(rows * weight.row_bytes)));
    std::memset(codes, 0, static_cast<size_t>(rows * weight.row_bytes));
    for (int64_t col = 0; col < cols; ++col)
      for (int64_t row = 0; row < rows; ++row) {
        const uint8_t code = code_at(words_.keep_rows.begin + row, first_col + col);
        uint8_t* to = codes + row * weight.row_bytes;
        if (packing_.bits == 8) {
          to[col] = code;
        } else {
          to[col / 2] = static_cast<uint8_t>(to[col / 2] | code << (col % 2 == 0 ? 0 : 4));
        }
      }
    weight.codes = codes;
    add_grid(weight, scales, zeros, zero_offset, first_group, groups);
    weight.block_of_col = index == nullptr ? nullptr : index + first_col;
    weight.num_rows = rows;
    weight.num_cols = words_.keep_cols.size();
    weight.first_col = words_.keep_cols.begin - first_col;
    reader_.count_read(static_cast<uint64_t>(rows * (weight.row_bytes + groups * 5)));
    return weight;
  }

 private:
  // scales [groups, rows], zeros [groups, words of rows], both transposed.
  void add_grid(WeightView& weight, const TensorView& scales, const TensorView& zeros, int zero_offset,
                int64_t first_group, int64_t groups) {
    const int64_t rows = words_.keep_rows.size();
    auto* to_scales =
        reinterpret_cast<float*>(reader_.allocate(static_cast<size_t>(rows * groups) * sizeof(float)));
    auto* to_zeros = reinterpret_cast<uint8_t*>(reader_.allocate(static_cast<size_t>(rows * groups)));
    std::vector<float> line(static_cast<size_t>(words_.rows));
    for (int64_t group = 0; group < groups; ++group) {
      decode_scales(scales, first_group + group, line);
      const int32_t* words = zeros.as<int32_t>() + (first_group + group) * zeros.stride[0];
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t stored_row = words_.keep_rows.begin + row;
        to_scales[row * groups + group] = line[static_cast<size_t>(stored_row)];
        to_zeros[row * groups + group] = static_cast<uint8_t>(
            packing_.code(words[stored_row / packing_.per_word()], stored_row) + zero_offset);
      }
    }
    weight.scales = to_scales;
    weight.zeros = to_zeros;
    weight.scale_stride = groups;
  }

  void decode_scales(const TensorView& scales, int64_t group, std::vector<float>& line) const {
    WeightView view(scales);
    if (scales.dtype == DType::kF16) {
      view = WeightView();
      view.codes = static_cast<const uint8_t*>(scales.data);
      view.row_bytes = scales.stride[0] * 2;
      view.scheme.element = QuantScheme::Element::kF16;
      view.num_rows = scales.rows();
      view.num_cols = scales.cols();
    }
    decode_row(view, group, 0, words_.rows, line.data());
  }

  WeightReader& reader_;
  const IntegerWords& words_;
  const Packing packing_;
  const int64_t group_cols_, num_groups_;
};

bool divides(WeightReader& reader, const IntegerWords& words, int per_word) {
  if (words.rows % per_word == 0 && words.cols % per_word == 0) return true;
  reader.report(fmt::format("{}.qweight stands for [{}, {}], which words of {} codes do not divide",
                            words.module, words.rows, words.cols, per_word));
  return false;
}

constexpr auto kScaleTypes = {DType::kF16, DType::kBF16, DType::kF32};

}  // namespace

WeightView repack_gptq(WeightReader& reader, const QuantConfig& config, const IntegerWords& words) {
  const Packing packing{.bits = config.bits};
  const int per_word = packing.per_word();
  if (!divides(reader, words, per_word)) return {};
  Repacked repacked(reader, words, packing, config.group_size);
  const int64_t groups = repacked.num_groups();
  const auto codes =
      reader.take(words.module + ".qweight", {{words.cols / per_word, words.rows}}, {DType::kI32});
  const auto zeros = reader.take(words.module + ".qzeros", {{groups, words.rows / per_word}}, {DType::kI32});
  const auto scales = reader.take(words.module + ".scales", {{groups, words.rows}}, kScaleTypes);
  std::optional<const int32_t*> index = nullptr;
  if (reader.has(words.module + ".g_idx"))
    index = read_group_index(reader, words.module + ".g_idx", words.cols, groups, repacked.group_cols());
  if (!codes || !zeros || !scales || !index || reader.inspects()) return {};
  const int32_t* all = codes->as<int32_t>();
  const int offset = config.zeros == QuantConfig::Zeros::kLessOne ? 1 : 0;
  return repacked.make(*scales, *zeros, offset, *index, [&](int64_t row, int64_t col) {
    return packing.code(all[col / per_word * words.rows + row], col);
  });
}

WeightView repack_awq(WeightReader& reader, const QuantConfig& config, const IntegerWords& words) {
  const Packing packing{.bits = 4, .place = kAwqPlaces};
  const int per_word = packing.per_word();
  if (!divides(reader, words, per_word)) return {};
  Repacked repacked(reader, words, packing, config.group_size);
  const int64_t groups = repacked.num_groups();
  const int64_t row_words = words.rows / per_word;
  const auto codes = reader.take(words.module + ".qweight", {{words.cols, row_words}}, {DType::kI32});
  const auto zeros = reader.take(words.module + ".qzeros", {{groups, row_words}}, {DType::kI32});
  const auto scales = reader.take(words.module + ".scales", {{groups, words.rows}}, kScaleTypes);
  if (!codes || !zeros || !scales || reader.inspects()) return {};
  const int32_t* all = codes->as<int32_t>();
  return repacked.make(*scales, *zeros, 0, nullptr, [&](int64_t row, int64_t col) {
    return packing.code(all[col * row_words + row / per_word], row);
  });
}

const uint8_t* unpack_zeros_along_rows(WeightReader& reader, const TensorView& words, int64_t rows,
                                       int bits) {
  const Packing packing{.bits = bits};
  const int64_t groups = words.cols();
  auto* zeros = reinterpret_cast<uint8_t*>(reader.allocate(static_cast<size_t>(rows * groups)));
  for (int64_t row = 0; row < rows; ++row) {
    const int32_t* line = words.as<int32_t>() + row / packing.per_word() * words.stride[0];
    for (int64_t group = 0; group < groups; ++group)
      zeros[row * groups + group] = packing.code(line[group], row);
  }
  return zeros;
}

std::optional<const int32_t*> read_group_index(WeightReader& reader, const std::string& name, int64_t cols,
                                               int64_t num_groups, int64_t group_cols) {
  const auto found = reader.take(name, {{cols}}, {DType::kI32});
  if (!found) return std::nullopt;
  const int32_t* groups = found->as<int32_t>();
  bool usual = true;
  for (int64_t col = 0; col < cols; ++col) {
    if (groups[col] < 0 || groups[col] >= num_groups) {
      reader.report(fmt::format("{} puts input {} into group {} of {}", name, col, groups[col], num_groups));
      return std::nullopt;
    }
    usual = usual && groups[col] == col / group_cols;
  }
  return usual ? nullptr : groups;
}

}  // namespace lockstep::models
