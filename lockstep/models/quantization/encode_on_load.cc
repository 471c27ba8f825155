#include "lockstep/models/quantization/encode_on_load.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lockstep/models/weights.h"

namespace lockstep::models {
namespace {

// Blocks [begin, end) that a range of rows or columns touches.
Range blocks_over(Range range, int64_t block) {
  return {range.begin / block, range.size() == 0 ? range.begin / block : (range.end - 1) / block + 1};
}

// Copies of the codes and factors of a part; whole blocks, so that the grid keeps its lines.
WeightView copy_part(WeightReader& reader, const WeightView& whole, size_t scale_bytes, Range keep_rows,
                     Range keep_cols) {
  const QuantScheme& scheme = whole.scheme;
  const Range block_rows = blocks_over(keep_rows, scheme.block_rows);
  const Range block_cols = blocks_over(keep_cols, scheme.block_cols);
  const int64_t first_row = block_rows.begin * scheme.block_rows;
  const int64_t first_col = block_cols.begin * scheme.block_cols;
  const int64_t rows = std::max<int64_t>(keep_rows.end - first_row, 0);
  const int bits = bits_of(scheme.element);
  const int64_t begin_byte = first_col * bits / 8,
                end_byte = (std::max(keep_cols.end, first_col) * bits + 7) / 8;
  WeightView part = whole;
  part.row_bytes = end_byte - begin_byte;
  auto* codes = reader.allocate(static_cast<size_t>(rows * part.row_bytes));
  for (int64_t row = 0; row < rows; ++row)
    std::memcpy(codes + row * part.row_bytes, whole.codes + (first_row + row) * whole.row_bytes + begin_byte,
                static_cast<size_t>(part.row_bytes));
  part.codes = reinterpret_cast<const uint8_t*>(codes);
  part.scale_stride = block_cols.size();
  const size_t line = static_cast<size_t>(part.scale_stride) * scale_bytes;
  auto* scales = reader.allocate(static_cast<size_t>(block_rows.size()) * line);
  for (int64_t row = 0; row < block_rows.size(); ++row)
    std::memcpy(scales + static_cast<size_t>(row) * line,
                static_cast<const std::byte*>(whole.scales) +
                    static_cast<size_t>((block_rows.begin + row) * whole.scale_stride + block_cols.begin) *
                        scale_bytes,
                line);
  part.scales = scales;
  part.num_rows = keep_rows.size();
  part.num_cols = keep_cols.size();
  part.first_row = keep_rows.begin - first_row;
  part.first_col = keep_cols.begin - first_col;
  return part;
}

}  // namespace

WeightEncoding encoding_for(QuantFormat format, int64_t cols) {
  WeightEncoding encoding{.format = format};
  for (const int64_t size : {128, 64, 32}) {
    encoding.group_size = size;
    if (encoding.fits(cols)) break;
  }
  return encoding;
}

WeightView encode_on_load(WeightReader& reader, QuantFormat format, const std::string& name,
                          const WeightView& whole, Range keep_rows, Range keep_cols) {
  const int64_t rows = whole.rows(), cols = whole.cols();
  const WeightEncoding encoding = encoding_for(format, cols);
  if (!encoding.fits(cols) || reader.inspects())
    return whole.row_range(keep_rows.begin, keep_rows.size()).col_range(keep_cols.begin, keep_cols.size());
  std::vector<float> numbers(static_cast<size_t>(rows * cols));
  for (int64_t row = 0; row < rows; ++row) decode_row(whole, row, 0, cols, numbers.data() + row * cols);
  if (!std::all_of(numbers.begin(), numbers.end(), [](float number) { return std::isfinite(number); })) {
    reader.report(fmt::format("{} holds numbers that are not finite", name));
    return {};
  }
  const auto tensors = encode_weight(encoding, numbers.data(), rows, cols);
  return copy_part(reader, view_of(encoding, tensors, rows, cols), size_of(tensors[1].dtype), keep_rows,
                   keep_cols);
}

}  // namespace lockstep::models
