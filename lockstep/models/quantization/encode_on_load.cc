#include "lockstep/models/quantization/encode_on_load.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "lockstep/models/weights.h"

namespace lockstep::models {
namespace {

constexpr int64_t kPieceRows = 128;  // of FP8's blocks

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

// Rows [begin, end) as they would be encoded alone, to their places in the whole; false where a number is not
// finite.
bool encode_rows(const WeightEncoding& encoding, const WeightView& whole, Range rows,
                 std::vector<EncodedTensor>& tensors) {
  const int64_t cols = whole.cols();
  std::vector<float> numbers(static_cast<size_t>(rows.size() * cols));
  for (int64_t row = rows.begin; row < rows.end; ++row)
    decode_row(whole, row, 0, cols, numbers.data() + (row - rows.begin) * cols);
  if (!std::all_of(numbers.begin(), numbers.end(), [](float number) { return std::isfinite(number); }))
    return false;
  const auto part = encode_weight(encoding, numbers.data(), rows.size(), cols);
  for (size_t i = 0; i < 2; ++i) {  // codes and factors; what else there is does not change with the rows
    const int64_t per_line = tensors[i].shape[1] * static_cast<int64_t>(size_of(tensors[i].dtype));
    const int64_t lines_each = i == 0 || tensors[i].shape[0] == whole.rows() ? 1 : kPieceRows;
    std::copy(part[i].bytes.begin(), part[i].bytes.end(),
              tensors[i].bytes.begin() + rows.begin / lines_each * per_line);
  }
  if (rows.begin == 0)
    for (size_t i = 2; i < part.size(); ++i) tensors[i].bytes = part[i].bytes;
  return true;
}

// All threads together, some rows each: factors are of rows or of blocks that a piece holds whole. Only NVFP4
// has one that is of the whole weight.
std::optional<std::vector<EncodedTensor>> encode_in_pieces(WeightReader& reader,
                                                           const WeightEncoding& encoding,
                                                           const WeightView& whole) {
  auto tensors = encoded_tensors(encoding, whole.rows(), whole.cols());
  const int64_t rows_each =
      encoding.format == QuantFormat::kNvfp4 ? std::max<int64_t>(1, whole.rows()) : kPieceRows;
  std::atomic<bool> is_finite = true;
  reader.threads().for_each((whole.rows() + rows_each - 1) / rows_each, [&](int64_t piece, int) {
    const Range rows{piece * rows_each, std::min((piece + 1) * rows_each, whole.rows())};
    if (!encode_rows(encoding, whole, rows, tensors)) is_finite = false;
  });
  if (!is_finite) return std::nullopt;
  return tensors;
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
  const auto tensors = encode_in_pieces(reader, encoding, whole);
  if (!tensors) {
    reader.report(fmt::format("{} holds numbers that are not finite", name));
    return {};
  }
  return copy_part(reader, view_of(encoding, *tensors, rows, cols), size_of((*tensors)[1].dtype), keep_rows,
                   keep_cols);
}

}  // namespace lockstep::models
