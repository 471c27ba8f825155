#include "lockstep/models/weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <new>

#include "lockstep/models/quantization/stored_weight.h"
#include "lockstep/tensors/number_formats.h"

namespace lockstep::models {
namespace {

constexpr size_t kShownProblems = 64;
constexpr size_t kLineBytes = 64;
constexpr size_t kPageBytes = 4096;

std::vector<int64_t> shape_of(const TensorView& view) {
  return {view.shape.begin(), view.shape.begin() + view.num_dims};
}

// What serves other uses of a checkpoint than its forward in float32.
std::string_view known_purpose(std::string_view name) {
  struct Known {
    std::string_view part, what;
    enum class At : uint8_t { kBegin, kEnd, kInside } at;
  };
  using enum Known::At;
  static constexpr Known kKnown[] = {
      {"model.visual.", "vision", kBegin},
      {"visual.", "vision", kBegin},
      {"vision_tower.", "vision", kBegin},
      {"model.vision_tower.", "vision", kBegin},
      {"multi_modal_projector.", "vision", kBegin},
      {"model.multi_modal_projector.", "vision", kBegin},
      {"mtp.", "drafting", kBegin},
      {"model.mtp.", "drafting", kBegin},
      {".input_scale", "scales of activations", kEnd},
      {".activation_scale", "scales of activations", kEnd},
      {".input_global_scale", "scales of activations", kEnd},
      {".input_zero_point", "scales of activations", kEnd},
      {".k_scale", "scales of a quantized cache", kEnd},
      {".v_scale", "scales of a quantized cache", kEnd},
      {".q_scale", "scales of a quantized cache", kEnd},
      {".weight_shape", "shapes of packed weights", kEnd},
      {".rotary_emb.inv_freq", "tables that are computed", kEnd},
      {".self_attn.indexer.", "an indexer, whose choice of tokens dense attention does without", kInside},
  };
  for (const Known& known : kKnown)
    if (known.at == kBegin ? name.starts_with(known.part)
        : known.at == kEnd ? name.ends_with(known.part)
                           : name.find(known.part) != std::string_view::npos)
      return known.what;
  return {};
}

// Looks at one byte of every page.
void touch(const void* begin, size_t bytes) {
  if (bytes == 0) return;
  const auto* at = static_cast<const volatile uint8_t*>(begin);
  for (size_t i = 0; i < bytes; i += kPageBytes) (void)at[i];
  (void)at[bytes - 1];
}

struct Rows {
  const void* first = nullptr;
  int64_t count = 0;
  size_t bytes = 0, stride_bytes = 0;  // of a row, between rows
};

uint64_t read_rows(const Rows& rows) {
  if (rows.count == 0 || rows.bytes == 0) return 0;
  if (rows.bytes == rows.stride_bytes) {
    touch(rows.first, rows.bytes * static_cast<size_t>(rows.count));
  } else {
    for (int64_t row = 0; row < rows.count; ++row)
      touch(static_cast<const std::byte*>(rows.first) + static_cast<size_t>(row) * rows.stride_bytes,
            rows.bytes);
  }
  return rows.bytes * static_cast<uint64_t>(rows.count);
}

Rows rows_of(const WeightView& view) {
  if (!view.is_coded()) {
    const size_t size = size_of(view.plain.dtype);
    return {view.plain.data, view.num_rows, static_cast<size_t>(view.num_cols) * size,
            static_cast<size_t>(view.plain.stride[0]) * size};
  }
  const int bits = bits_of(view.scheme.element);
  const int64_t begin = view.first_col * bits / 8, end = ((view.first_col + view.num_cols) * bits + 7) / 8;
  return {view.codes + view.first_row * view.row_bytes + begin, view.num_rows,
          static_cast<size_t>(end - begin), static_cast<size_t>(view.row_bytes)};
}

Rows scale_rows_of(const WeightView& view) {
  if (view.scales == nullptr || view.num_rows == 0) return {};
  const auto size = static_cast<size_t>(bytes_of(view.scheme.scale));
  const int64_t first = view.first_row / view.scheme.block_rows;
  const int64_t last = (view.first_row + view.num_rows - 1) / view.scheme.block_rows;
  // Where rows alternate, those between belong to another view.
  const int64_t blocks =
      view.block_of_col != nullptr
          ? view.scale_stride
          : (view.first_col + view.num_cols + view.scheme.block_cols - 1) / view.scheme.block_cols;
  const size_t stride = static_cast<size_t>(view.scale_stride) * size;
  return {static_cast<const std::byte*>(view.scales) + static_cast<size_t>(first) * stride, last - first + 1,
          static_cast<size_t>(blocks) * size, stride};
}

float number(const TensorView& vector, int64_t at) {
  return vector.dtype == DType::kBF16 ? to_float(vector.as<BF16>()[at]) : vector.as<float>()[at];
}

}  // namespace

void WeightMemory::Free::operator()(std::byte* memory) const {
  ::operator delete[](memory, std::align_val_t{kLineBytes});
}

std::byte* WeightMemory::allocate(size_t bytes) {
  blocks_.emplace_back(new (std::align_val_t{kLineBytes}) std::byte[std::max<size_t>(bytes, 1)]);
  bytes_ += bytes;
  return blocks_.back().get();
}

WeightReader::WeightReader(const WeightSource& source, QuantConfig quantization, const Memory& memory)
    : checkpoint_(source.checkpoint),
      purpose_(source.purpose),
      encode_as_(source.encode_as),
      bytes_read_(source.bytes_read),
      uses_(source.uses),
      left_aside_(source.left_aside),
      quantization_(std::move(quantization)),
      placed_(std::make_shared<PlacedWeights>(memory)),
      threads_(std::make_unique<kernels::cpu::ComputeThreads>(source.threads,
                                                              kernels::cpu::ComputeThreads::Wait::kSleep)) {}

void WeightReader::report(const std::string& problem) {
  if (reported_.insert(problem).second) problems_.push_back(problem);
}

std::optional<TensorView> WeightReader::peek(const std::string& name) {
  if (inspects()) read_.insert(name);
  const auto found = checkpoint_.find(name);
  if (found) return *found;
  report(checkpoint_.has(name) ? found.error().message : fmt::format("{} is missing", name));
  return std::nullopt;
}

std::optional<TensorView> WeightReader::take(const std::string& name,
                                             const std::vector<std::vector<int64_t>>& shapes,
                                             std::initializer_list<DType> dtypes) {
  if (inspects()) read_.insert(name);
  if (!checkpoint_.has(name) && !is_random()) {
    report(fmt::format("{} is missing, expected [{}]", name, fmt::join(shapes.front(), ", ")));
    return std::nullopt;
  }
  const bool takes_bf16 = std::find(dtypes.begin(), dtypes.end(), DType::kBF16) != dtypes.end();
  const auto found =
      is_random()
          ? std::optional(
                checkpoint_.find(name, shapes.front(), takes_bf16 ? DType::kBF16 : *dtypes.begin()).value())
          : peek(name);
  if (!found) return std::nullopt;
  const std::vector<int64_t> has = shape_of(*found);
  if (std::find(shapes.begin(), shapes.end(), has) == shapes.end()) {
    report(fmt::format("{} is [{}], expected [{}]", name, fmt::join(has, ", "),
                       fmt::join(shapes.front(), ", ")));
    return std::nullopt;
  }
  if (std::find(dtypes.begin(), dtypes.end(), found->dtype) == dtypes.end()) {
    std::vector<std::string_view> handled;
    for (const DType dtype : dtypes) handled.push_back(name_of(dtype));
    report(fmt::format("{} is {}, expected {}", name, name_of(found->dtype), fmt::join(handled, " or ")));
    return std::nullopt;
  }
  return found;
}

TensorView WeightReader::take_plain(const std::string& name, std::vector<int64_t> shape) {
  if (uses_ != nullptr) uses_->push_back({.as = WeightUse::As::kNumbers, .name = name});
  const auto found = take(name, {std::move(shape)}, {DType::kF32, DType::kBF16, DType::kF16});
  if (!found) return {};
  if (found->dtype != DType::kF16 || inspects()) return *found;
  TensorView wide = *found;
  const auto count = static_cast<size_t>(found->num_elements());
  auto* numbers = reinterpret_cast<float*>(allocate(count * sizeof(float)));
  for (size_t i = 0; i < count; ++i) numbers[i] = from_f16(static_cast<const uint16_t*>(found->data)[i]);
  wide.data = numbers;
  wide.dtype = DType::kF32;
  return wide;
}

TensorView WeightReader::keep(TensorView view) {
  if (inspects() || view.data == nullptr) return view;
  if (!placed_->is_on_host()) {
    count_read(static_cast<uint64_t>(view.num_elements()) * size_of(view.dtype));
    return placed_->place(view);
  }
  if (view.num_dims == 2) kept_.emplace_back(view);
  return view;
}

WeightView WeightReader::keep(WeightView view) {
  if (inspects() || view.empty()) return view;
  if (!placed_->is_on_host()) {
    const Rows rows = rows_of(view);
    count_read(rows.bytes * static_cast<uint64_t>(rows.count));
    return placed_->place(view);
  }
  kept_.push_back(view);
  return view;
}

void WeightReader::note_weight(const std::string& name, int64_t count, int64_t rows, int64_t cols) {
  if (uses_ != nullptr)
    uses_->push_back(
        {.as = WeightUse::As::kWeight, .name = name, .count = count, .rows = rows, .cols = cols});
}

TensorView WeightReader::matrix(const std::string& name, int64_t rows, int64_t cols) {
  return keep(take_plain(name, {rows, cols}));
}

TensorView WeightReader::matrix_rows(const std::string& name, int64_t rows, int64_t cols, Range keep_rows) {
  const TensorView whole = take_plain(name, {rows, cols});
  return whole.data == nullptr ? whole : keep(whole.row_range(keep_rows.begin, keep_rows.size()));
}

TensorView WeightReader::matrix_cols(const std::string& name, int64_t rows, int64_t cols, Range keep_cols) {
  const TensorView whole = take_plain(name, {rows, cols});
  return whole.data == nullptr ? whole : keep(whole.col_range(keep_cols.begin, keep_cols.size()));
}

TensorView WeightReader::vector(const std::string& name, int64_t size) {
  return keep(take_plain(name, {size}));
}

TensorView WeightReader::vector_part(const std::string& name, int64_t size, Range keep_part) {
  const TensorView whole = take_plain(name, {size});
  return whole.data == nullptr ? whole : keep(whole.row_range(keep_part.begin, keep_part.size()));
}

TensorView WeightReader::f32_vector(const std::string& name, int64_t size) {
  if (uses_ != nullptr) uses_->push_back({.as = WeightUse::As::kNumbers, .name = name});
  const auto found = take(name, {{size}}, {DType::kF32, DType::kBF16});
  if (!found) return {};
  if (found->dtype == DType::kF32 || inspects()) return keep(*found);
  auto* wide = reinterpret_cast<float*>(allocate(static_cast<size_t>(size) * sizeof(float)));
  for (int64_t i = 0; i < size; ++i) wide[i] = number(*found, i);
  return keep(view_of(wide, {size}));
}

namespace {

template <class T>
void transpose_into(const TensorView& whole, const Every& pick, const TensorView& out) {
  for (int64_t row = 0; row < whole.rows(); ++row) {
    const T* from = whole.as<T>() + row * whole.stride[0];
    for (int64_t i = 0; i < pick.count; ++i)
      out.as<T>()[i * out.stride[0] + row] = from[pick.first + i * pick.step];
  }
}

}  // namespace

// entry (i, j) is whole(j, pick.first + i * pick.step)
TensorView WeightReader::transpose(const TensorView& whole, const Every& pick) {
  const auto bytes = static_cast<size_t>(pick.count * whole.rows()) * size_of(whole.dtype);
  const TensorView out = view_of(allocate(bytes), whole.dtype, {pick.count, whole.rows()});
  if (whole.dtype == DType::kBF16) {
    transpose_into<BF16>(whole, pick, out);
  } else {
    transpose_into<float>(whole, pick, out);
  }
  return out;
}

std::vector<WeightView> WeightReader::transposed(const std::string& name, int64_t count, int64_t rows,
                                                 int64_t cols, Range keep_some, Range inputs,
                                                 const Every& pick) {
  if (encode_as_) report(fmt::format("{} stores its inputs first: --quantization does not reach it", name));
  const TensorView whole = take_plain(name, {count, rows, cols});
  std::vector<WeightView> parts;
  if (whole.data == nullptr || inspects()) return parts;
  for (int64_t at = keep_some.begin; at < keep_some.end; ++at) {
    const TensorView one = view_of(whole.row_range(at, 1).data, whole.dtype, {rows, cols});
    parts.push_back(keep(WeightView(transpose(one.row_range(inputs.begin, inputs.size()), pick))));
  }
  return parts;
}

std::vector<TensorView> WeightReader::vectors(const std::string& name, int64_t count, int64_t size,
                                              Range keep_some, const Every& pick) {
  const TensorView whole = take_plain(name, {count, size});
  std::vector<TensorView> parts;
  if (whole.data == nullptr || inspects()) return parts;
  for (int64_t at = keep_some.begin; at < keep_some.end; ++at) {
    const TensorView column = transpose(whole.row_range(at, 1), pick);
    parts.push_back(keep(view_of(column.data, column.dtype, {pick.count})));
  }
  return parts;
}

TensorView WeightReader::norm(const std::string& name, int64_t size, NormForm form) {
  const TensorView found = take_plain(name, {size});
  if (form == NormForm::kWhole || found.data == nullptr) return keep(found);
  auto* whole = reinterpret_cast<float*>(allocate(static_cast<size_t>(size) * sizeof(float)));
  if (!inspects())
    for (int64_t i = 0; i < size; ++i) whole[i] = 1 + number(found, i);
  return keep(view_of(whole, {size}));
}

TensorView WeightReader::taps(const std::string& name, int64_t channels, int64_t taps,
                              const std::vector<Range>& keep_channels) {
  const TensorView found = take_plain(name, {channels, 1, taps});
  if (found.data == nullptr || inspects()) return found;
  int64_t num_kept = 0;
  for (const Range& range : keep_channels) num_kept += range.size();
  auto* made = reinterpret_cast<float*>(allocate(static_cast<size_t>(taps * num_kept) * sizeof(float)));
  float* to = made;
  for (int64_t tap = 0; tap < taps; ++tap)
    for (const Range& range : keep_channels)
      for (int64_t channel = range.begin; channel < range.end; ++channel)
        *to++ = number(found, channel * taps + tap);
  return keep(view_of(made, {taps, num_kept}));
}

WeightView WeightReader::weight(const std::string& name, int64_t rows, int64_t cols) {
  return weight_rows(name, rows, cols, {0, rows});
}

WeightView WeightReader::weight_rows(const std::string& name, int64_t rows, int64_t cols, Range keep_rows) {
  note_weight(name, 0, rows, cols);
  return keep(read_stored_weight(
      *this, quantization_,
      {.name = name, .rows = rows, .cols = cols, .keep_rows = keep_rows, .keep_cols = {0, cols}}));
}

WeightView WeightReader::weight_cols(const std::string& name, int64_t rows, int64_t cols, Range keep_cols) {
  note_weight(name, 0, rows, cols);
  return keep(read_stored_weight(
      *this, quantization_,
      {.name = name, .rows = rows, .cols = cols, .keep_rows = {0, rows}, .keep_cols = keep_cols}));
}

std::vector<WeightView> WeightReader::weights(const std::string& name, int64_t count, int64_t rows,
                                              int64_t cols, Range keep_some) {
  note_weight(name, count, rows, cols);
  return read_stored_weights(*this, quantization_,
                             {.name = name, .count = count, .rows = rows, .cols = cols, .keep = keep_some});
}

bool WeightReader::has_weights(const std::string& name) const {
  return has(name) || has(name + "_blocks") || has(name + ".weight");
}

Status WeightReader::status() const {
  if (problems_.empty()) return Done{};
  const std::vector<std::string> shown(
      problems_.begin(),
      problems_.begin() + static_cast<std::ptrdiff_t>(std::min(problems_.size(), kShownProblems)));
  return invalid_argument("model.safetensors", "{} tensors do not fit the config: {}{}", problems_.size(),
                          fmt::join(shown, "; "), problems_.size() > kShownProblems ? "; …" : "");
}

Status WeightReader::finish(const std::vector<KnownTensors>& known) {
  if (inspects()) report_unread(known);
  if (const Status found = status(); !found) return found;
  if (!inspects()) read_kept();
  return Done{};
}

void WeightReader::report_unread(const std::vector<KnownTensors>& known) {
  std::map<std::string, int> num_known;
  for (const std::string& name : checkpoint_.names()) {
    if (read_.contains(name)) continue;
    std::string what(known_purpose(name));
    for (const KnownTensors& one : known)
      if (name.starts_with(one.prefix)) what = one.what;
    if (!what.empty()) {
      ++num_known[what];
      continue;
    }
    const auto found = checkpoint_.find(name);
    report(found ? fmt::format("{} {} [{}] is in the file and nothing reads it", name, name_of(found->dtype),
                               fmt::join(shape_of(*found), ", "))
                 : fmt::format("{} is in the file and nothing reads it", name));
  }
  if (left_aside_ == nullptr) return;
  for (const auto& [what, count] : num_known)
    left_aside_->push_back(fmt::format("{} tensors of the file are left aside: {}", count, what));
}

void WeightReader::count_read(uint64_t bytes) {
  if (bytes_read_ != nullptr) bytes_read_->fetch_add(bytes, std::memory_order_relaxed);
}

void WeightReader::read_kept() {
  for (const WeightView& view : kept_) count_read(read_rows(rows_of(view)) + read_rows(scale_rows_of(view)));
  kept_.clear();
}

}  // namespace lockstep::models
