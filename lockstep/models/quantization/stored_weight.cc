#include "lockstep/models/quantization/stored_weight.h"

#include <algorithm>
#include <cmath>

#include "lockstep/models/quantization/encode_on_load.h"
#include "lockstep/models/quantization/repack.h"
#include "lockstep/models/weights.h"

namespace lockstep::models {
namespace {

using Element = QuantScheme::Element;
using Scale = QuantScheme::Scale;
using Method = QuantConfig::Method;
using Group = QuantConfig::Group;
using Shapes = std::vector<std::vector<int64_t>>;

constexpr int64_t kNvfp4Block = 16, kMxfp4Block = 32;

Scale scale_of(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return Scale::kBF16;
    case DType::kF16:
      return Scale::kF16;
    case DType::kF8E4M3:
      return Scale::kE4M3;
    case DType::kF8E8M0:
    case DType::kU8:
      return Scale::kE8M0;
    default:
      return Scale::kF32;
  }
}

struct BlockShape {
  int64_t rows = 1, cols = 1;
};

class Stored {
 public:
  Stored(WeightReader& reader, const QuantConfig& config, const StoredWeight& stored)
      : reader_(reader), config_(config), stored_(stored), module_(module_of(stored.name)) {}

  WeightView read() {
    if (reader_.has(module_ + ".qweight")) return coded(read_integer_words());
    if (reader_.has(module_ + ".weight_packed")) return coded(read_packed());
    if (reader_.is_random()) return read_numbers();
    const auto found = reader_.peek(stored_.name);
    if (!found) return {};
    switch (found->dtype) {
      case DType::kF8E4M3:
        return coded(cut(read_fp8()));
      case DType::kI8:
        return coded(cut(read_int8()));
      case DType::kU8:
        return coded(cut(read_nvfp4(stored_.name, ".weight_scale_2")));
      default:
        return read_numbers();
    }
  }

 private:
  static std::string module_of(const std::string& name) {
    constexpr std::string_view kSuffix = ".weight";
    return name.ends_with(kSuffix) ? name.substr(0, name.size() - kSuffix.size()) : name;
  }

  WeightView read_numbers() {
    const WeightView whole = read_plain();
    if (!reader_.encode_as() || is_table(stored_.name) || whole.empty()) return cut(whole);
    return encode_on_load(reader_, *reader_.encode_as(), stored_.name, whole, stored_.keep_rows,
                          stored_.keep_cols);
  }

  WeightView cut(const WeightView& whole) const {
    if (whole.empty()) return whole;
    return whole.row_range(stored_.keep_rows.begin, stored_.keep_rows.size())
        .col_range(stored_.keep_cols.begin, stored_.keep_cols.size());
  }

  // What the config says of a weight that the file holds as codes.
  WeightView coded(const WeightView& weight) {
    if (config_.method == Method::kNone)
      reader_.report(fmt::format("{} is quantized and config.json has no quantization_config", module_));
    if (reader_.encode_as())
      reader_.report(
          fmt::format("{} is quantized already; --quantization is for plain checkpoints", module_));
    if (config_.ignores(module_))
      reader_.report(fmt::format("{} is quantized and config.json lists it as one that is not", module_));
    return weight;
  }

  WeightView read_plain() {
    const auto found =
        reader_.take(stored_.name, {{stored_.rows, stored_.cols}}, {DType::kF32, DType::kBF16, DType::kF16});
    if (!found) return {};
    if (found->dtype != DType::kF16) return *found;
    return with_codes(*found, Element::kF16, {1, 1});
  }

  WeightView with_codes(const TensorView& codes, Element element, BlockShape block) const {
    WeightView weight;
    weight.codes = static_cast<const uint8_t*>(codes.data);
    weight.row_bytes = codes.stride[0] * static_cast<int64_t>(size_of(codes.dtype));
    weight.scheme = {.element = element, .block_rows = block.rows, .block_cols = block.cols};
    weight.num_rows = stored_.rows;
    weight.num_cols = stored_.cols;
    return weight;
  }

  // The grid of factors, in any of the shapes that stand for it.
  bool add_scales(WeightView& weight, const std::string& name, std::initializer_list<DType> dtypes) {
    const int64_t rows = blocks_of(stored_.rows, weight.scheme.block_rows);
    const int64_t cols = blocks_of(stored_.cols, weight.scheme.block_cols);
    Shapes shapes = {{rows, cols}, {rows, 1, cols, 1}};
    if (cols == 1) shapes.push_back({rows});
    if (rows == 1 && cols == 1) shapes.emplace_back();
    const auto found = reader_.take(name, shapes, dtypes);
    if (!found) return false;
    weight.scheme.scale = scale_of(found->dtype);
    weight.scales = found->data;
    weight.scale_stride = cols;
    return true;
  }

  BlockShape whole() const {
    return {std::max<int64_t>(stored_.rows, 1), std::max<int64_t>(stored_.cols, 1)};
  }

  BlockShape block_of(const Group& group) const {
    switch (group.strategy) {
      case Group::Strategy::kTensor:
        return whole();
      case Group::Strategy::kChannel:
        return {1, whole().cols};
      case Group::Strategy::kGroup:
        return {1, group.group_size};
      case Group::Strategy::kBlock:
        return {group.block_rows, group.block_cols};
    }
    return {};
  }

  // The group of a compressed-tensors config, which alone says how large blocks are.
  const Group* require_group() {
    const Group* group = config_.group_of(module_);
    if (group == nullptr)
      reader_.report(
          fmt::format("{} is quantized and no group of config.json's quantization_config names it", module_));
    return group;
  }

  BlockShape fp8_block() {
    if (config_.method == Method::kCompressedTensors) {
      const Group* group = require_group();
      return group == nullptr ? whole() : block_of(*group);
    }
    if (config_.method == Method::kModelOpt) {
      // One factor, one a row or one a block; the file says which.
      const auto scale = reader_.peek(module_ + ".weight_scale");
      if (!scale || scale->num_elements() == 1) return whole();
      if (scale->num_dims == 1) return {1, whole().cols};
    }
    return config_.block_rows == 0 ? whole() : BlockShape{config_.block_rows, config_.block_cols};
  }

  WeightView read_fp8() {
    const auto codes = reader_.take(stored_.name, {{stored_.rows, stored_.cols}}, {DType::kF8E4M3});
    WeightView weight;
    if (codes) weight = with_codes(*codes, Element::kE4M3, fp8_block());
    if (!codes) return {};
    const std::string suffix = config_.method == Method::kFp8 ? ".weight_scale_inv" : ".weight_scale";
    const bool fits = add_scales(weight, module_ + suffix,
                                 {DType::kF32, DType::kBF16, DType::kF16, DType::kF8E8M0, DType::kU8});
    return fits ? weight : WeightView();
  }

  WeightView read_int8() {
    const Group* group = require_group();
    const auto codes = reader_.take(stored_.name, {{stored_.rows, stored_.cols}}, {DType::kI8});
    if (!codes || group == nullptr) return {};
    WeightView weight = with_codes(*codes, Element::kI8, block_of(*group));
    if (!add_scales(weight, module_ + ".weight_scale", {DType::kF32, DType::kBF16, DType::kF16})) return {};
    const std::string zeros = module_ + ".weight_zero_point";
    if (!reader_.has(zeros)) return weight;
    WeightView grid = weight;
    if (!add_scales(grid, zeros, {DType::kI8})) return {};
    weight.zeros = static_cast<const uint8_t*>(grid.scales);
    return weight;
  }

  std::optional<float> read_factor(const std::string& suffix) {
    const auto found = reader_.take(module_ + suffix, {{1}, {}}, {DType::kF32});
    if (!found) return std::nullopt;
    const float factor = *found->as<float>();
    if (std::isfinite(factor) && factor > 0) return factor;
    reader_.report(fmt::format("{}{} is {}, not a positive number", module_, suffix, factor));
    return std::nullopt;
  }

  std::optional<TensorView> read_nibbles(const std::string& name) {
    if (stored_.cols % 2 != 0) {
      reader_.report(fmt::format("{} has {} columns, which do not fill bytes of two", name, stored_.cols));
      return std::nullopt;
    }
    return reader_.take(name, {{stored_.rows, stored_.cols / 2}}, {DType::kU8});
  }

  WeightView read_nvfp4(const std::string& name, const std::string& factor_suffix) {
    const auto codes = read_nibbles(name);
    const auto factor = read_factor(factor_suffix);
    if (!codes) return {};
    WeightView weight = with_codes(*codes, Element::kE2M1, {1, kNvfp4Block});
    if (!add_scales(weight, module_ + ".weight_scale", {DType::kF8E4M3}) || !factor) return {};
    // compressed-tensors keeps the reciprocal.
    weight.factor = factor_suffix == ".weight_scale_2" ? *factor : 1 / *factor;
    return weight;
  }

  WeightView read_mxfp4() {
    const auto codes = read_nibbles(module_ + ".weight_packed");
    if (!codes) return {};
    WeightView weight = with_codes(*codes, Element::kE2M1, {1, kMxfp4Block});
    return add_scales(weight, module_ + ".weight_scale", {DType::kU8, DType::kF8E8M0}) ? weight
                                                                                       : WeightView();
  }

  WeightView read_packed() {
    const auto packed = reader_.peek(module_ + ".weight_packed");
    if (!packed) return {};
    if (packed->dtype == DType::kU8) {
      return cut(reader_.has(module_ + ".weight_global_scale")
                     ? read_nvfp4(module_ + ".weight_packed", ".weight_global_scale")
                     : read_mxfp4());
    }
    return read_packed_words();
  }

  // Words of codes along the columns, lowest bits first: in a little-endian file these are bytes of codes.
  WeightView read_packed_words() {
    const Group* group = require_group();
    if (group == nullptr) return {};
    const int64_t words = blocks_of(stored_.cols * group->bits, 32);
    const auto codes = reader_.take(module_ + ".weight_packed", {{stored_.rows, words}}, {DType::kI32});
    if (!codes) return {};
    WeightView weight = with_codes(*codes, group->bits == 4 ? Element::kU4 : Element::kU8, block_of(*group));
    if (!add_scales(weight, module_ + ".weight_scale", {DType::kF32, DType::kBF16, DType::kF16})) return {};
    weight.zero = 1 << (group->bits - 1);
    const int64_t groups = weight.scale_stride;
    if (reader_.has(module_ + ".weight_zero_point")) {
      const int64_t zero_rows =
          blocks_of(blocks_of(stored_.rows, weight.scheme.block_rows) * group->bits, 32);
      const auto zeros = reader_.take(module_ + ".weight_zero_point", {{zero_rows, groups}}, {DType::kI32});
      if (!zeros) return {};
      if (!reader_.inspects())
        weight.zeros = unpack_zeros_along_rows(
            reader_, *zeros, blocks_of(stored_.rows, weight.scheme.block_rows), group->bits);
    }
    if (reader_.has(module_ + ".weight_g_idx")) {
      const auto index = read_group_index(reader_, module_ + ".weight_g_idx", stored_.cols, groups,
                                          weight.scheme.block_cols);
      if (!index) return {};
      weight.block_of_col = *index;
    }
    return cut(weight);
  }

  WeightView read_integer_words() {
    const IntegerWords words{.module = module_,
                             .rows = stored_.rows,
                             .cols = stored_.cols,
                             .keep_rows = stored_.keep_rows,
                             .keep_cols = stored_.keep_cols};
    return config_.method == Method::kAwq ? repack_awq(reader_, config_, words)
                                          : repack_gptq(reader_, config_, words);
  }

  WeightReader& reader_;
  const QuantConfig& config_;
  const StoredWeight& stored_;
  const std::string module_;
};

// One of the matrices that lie together.
WeightView one_of(const TensorView& all, int64_t at, int64_t rows, int64_t cols) {
  const TensorView one = all.row_range(at, 1);
  return view_of(one.data, one.dtype, {rows, cols});
}

WeightView one_of_f16(const TensorView& all, int64_t at, int64_t rows, int64_t cols) {
  WeightView weight;
  weight.codes = static_cast<const uint8_t*>(all.row_range(at, 1).data);
  weight.row_bytes = 2 * cols;
  weight.scheme = {.element = Element::kF16};
  weight.num_rows = rows;
  weight.num_cols = cols;
  return weight;
}

std::vector<WeightView> read_mxfp4_blocks(WeightReader& reader, const StoredWeights& stored) {
  std::vector<WeightView> parts;
  if (stored.cols % kMxfp4Block != 0) {
    reader.report(fmt::format("{}_blocks are of {} columns, not a multiple of {}", stored.name, stored.cols,
                              kMxfp4Block));
    return parts;
  }
  const int64_t blocks = stored.cols / kMxfp4Block;
  const auto codes = reader.take(
      stored.name + "_blocks",
      {{stored.count, stored.rows, blocks, kMxfp4Block / 2}, {stored.count, stored.rows, stored.cols / 2}},
      {DType::kU8});
  const auto scales = reader.take(stored.name + "_scales", {{stored.count, stored.rows, blocks}},
                                  {DType::kU8, DType::kF8E8M0});
  if (!codes || !scales) return parts;
  for (int64_t at = stored.keep.begin; at < stored.keep.end; ++at) {
    WeightView weight;
    weight.codes = static_cast<const uint8_t*>(codes->data) + at * stored.rows * stored.cols / 2;
    weight.row_bytes = stored.cols / 2;
    weight.scheme = {.element = Element::kE2M1, .scale = Scale::kE8M0, .block_cols = kMxfp4Block};
    weight.scales = static_cast<const uint8_t*>(scales->data) + at * stored.rows * blocks;
    weight.scale_stride = blocks;
    weight.num_rows = stored.rows;
    weight.num_cols = stored.cols;
    parts.push_back(weight);
  }
  return parts;
}

}  // namespace

WeightView read_stored_weight(WeightReader& reader, const QuantConfig& config, const StoredWeight& stored) {
  WeightView weight = Stored(reader, config, stored).read();
  if (!weight.is_coded() && weight.plain.data == nullptr) {
    weight.num_rows = stored.keep_rows.size();
    weight.num_cols = stored.keep_cols.size();
  }
  return weight;
}

std::vector<WeightView> read_stored_weights(WeightReader& reader, const QuantConfig& config,
                                            const StoredWeights& stored) {
  std::vector<WeightView> parts;
  if (reader.has(stored.name + "_blocks")) {
    if (config.method == Method::kNone)
      reader.report(fmt::format("{} is quantized and config.json has no quantization_config", stored.name));
    if (reader.encode_as())
      reader.report(fmt::format("{} is quantized already: leave out --quantization", stored.name));
    parts = read_mxfp4_blocks(reader, stored);
  } else {
    const std::string name = reader.has(stored.name) ? stored.name : stored.name + ".weight";
    const auto all = reader.take(name, {{stored.count, stored.rows, stored.cols}},
                                 {DType::kF32, DType::kBF16, DType::kF16});
    for (int64_t at = stored.keep.begin; all && at < stored.keep.end; ++at) {
      const WeightView one = all->dtype == DType::kF16 ? one_of_f16(*all, at, stored.rows, stored.cols)
                                                       : one_of(*all, at, stored.rows, stored.cols);
      parts.push_back(reader.encode_as() ? encode_on_load(reader, *reader.encode_as(), name, one,
                                                          {0, stored.rows}, {0, stored.cols})
                                         : one);
    }
  }
  return parts;
}

}  // namespace lockstep::models
