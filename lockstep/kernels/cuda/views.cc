#include "lockstep/kernels/cuda/views.h"

#include <algorithm>

namespace lockstep::kernels::cuda {
namespace {

int32_t cache_row(const PagedSequence& sequence, int page_size, int32_t token) {
  return sequence.page_table[static_cast<size_t>(token / page_size)] * page_size + token % page_size;
}

int32_t narrow(int64_t row) {
  LOCKSTEP_CHECK_LE(row, int64_t{INT32_MAX});
  return static_cast<int32_t>(row);
}

}  // namespace

Num num_of(const TensorView& view) { return view.dtype == DType::kBF16 ? Num::kBF16 : Num::kF32; }

Mat mat(const TensorView& view) {
  return {.data = view.data,
          .rows = view.rows(),
          .cols = view.cols(),
          .stride = view.stride[0],
          .num = num_of(view)};
}

Sources sources_of(std::span<const TensorView> views) {
  LOCKSTEP_CHECK_LE(views.size(), static_cast<size_t>(kMaxSources));
  Sources sources;
  for (const TensorView& view : views) {
    sources.data[sources.count] = view.as<float>();
    sources.stride[sources.count++] = view.stride[0];
  }
  return sources;
}

Heads heads_of(const TensorView& cube) {
  return {.data = cube.as<float>(),
          .rows = cube.shape[0],
          .row_stride = cube.stride[0],
          .head_stride = cube.stride[1],
          .heads = static_cast<int>(cube.shape[1]),
          .width = static_cast<int>(cube.shape[2])};
}

std::vector<StateSequence> state_sequences(std::span<const PagedSequence> sequences) {
  std::vector<StateSequence> found;
  for (const PagedSequence& sequence : sequences)
    if (sequence.num_rows > 0)
      found.push_back({sequence.first_row, sequence.num_rows, sequence.slot, sequence.starts() ? 1 : 0});
  return found;
}

MoveList moves_of(std::span<const RowPiece> pieces) {
  MoveList list;
  for (const RowPiece& piece : pieces) list.moves.count += piece.num_rows;
  if (pieces.size() == 1 && pieces[0].source == 0) {
    list.moves.first = pieces[0].src_row;
    list.moves.first_out = pieces[0].dst_row;
    return list;
  }
  for (const RowPiece& piece : pieces)
    for (int64_t row = 0; row < piece.num_rows; ++row)
      list.listed.push_back({piece.source, narrow(piece.src_row + row), narrow(piece.dst_row + row)});
  return list;
}

std::vector<RowMove> store_moves(std::span<const PagedSequence> sequences, int page_size) {
  std::vector<RowMove> moves;
  for (const PagedSequence& sequence : sequences)
    for (int32_t row = 0; row < sequence.num_rows; ++row)
      moves.push_back({0, sequence.first_row + row,
                       cache_row(sequence, page_size, sequence.context - sequence.num_rows + row)});
  return moves;
}

std::vector<RowMove> load_moves(const PagedSequence& sequence, int page_size) {
  std::vector<RowMove> moves;
  for (int32_t token = 0; token < sequence.context; ++token)
    moves.push_back({0, cache_row(sequence, page_size, token), token});
  return moves;
}

QueryRows query_rows(std::span<const PagedSequence> sequences, int page_size) {
  QueryRows found;
  for (const PagedSequence& sequence : sequences) {
    const auto table = static_cast<int32_t>(found.tables.size());
    const auto pages = (static_cast<size_t>(sequence.context) + static_cast<size_t>(page_size) - 1) /
                       static_cast<size_t>(page_size);
    found.tables.insert(found.tables.end(), sequence.page_table.begin(),
                        sequence.page_table.begin() + static_cast<std::ptrdiff_t>(pages));
    auto& rows = sequence.num_rows == 1 ? found.single : found.chunked;
    for (int32_t row = 0; row < sequence.num_rows; ++row)
      rows.push_back({sequence.first_row + row, sequence.context - sequence.num_rows + row + 1, table});
    if (sequence.num_rows == 1)
      found.max_single_tokens = std::max(found.max_single_tokens, int64_t{sequence.context});
  }
  return found;
}

}  // namespace lockstep::kernels::cuda
