#include "lockstep/tensors/safetensors.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <unordered_set>
#include <utility>

#include "lockstep/tensors/strict_json.h"

namespace lockstep {
namespace {

constexpr uint64_t kLengthBytes = 8;
constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
constexpr size_t kMaxDims = 8;

constexpr std::array<std::pair<std::string_view, DType>, 9> kDTypes = {{{"F32", DType::kF32},
                                                                        {"BF16", DType::kBF16},
                                                                        {"F16", DType::kF16},
                                                                        {"F8_E4M3", DType::kF8E4M3},
                                                                        {"F8_E8M0", DType::kF8E8M0},
                                                                        {"I8", DType::kI8},
                                                                        {"I32", DType::kI32},
                                                                        {"I64", DType::kI64},
                                                                        {"U8", DType::kU8}}};

std::optional<DType> dtype_named(std::string_view name) {
  for (const auto& [known, dtype] : kDTypes) {
    if (known == name) return dtype;
  }
  return std::nullopt;
}

class HeaderReader final : public StrictJsonReader {
 public:
  SafetensorsHeader header;

  bool start_object(std::size_t) override {
    switch (at_) {
      case At::kStart:
        at_ = At::kTop;
        return true;
      case At::kTop:
        return start_member();
      default:
        return refuse_here("an object is not expected");
    }
  }

  bool end_object() override {
    if (at_ == At::kTensor && !finish_tensor()) return false;
    at_ = at_ == At::kTop ? At::kEnd : At::kTop;
    return true;
  }

  bool key(string_t& name) override {
    if (at_ == At::kTensor) return start_field(name);
    if (at_ == At::kTop) {
      name_ = name;
      return names_.insert(name).second || refuse(fmt::format("\"{}\" stands twice", name));
    }
    metadata_key_ = name;
    return !header.metadata.contains(name) || refuse(fmt::format("__metadata__ has \"{}\" twice", name));
  }

  bool string(string_t& text) override {
    if (at_ == At::kMetadata) {
      header.metadata.emplace(metadata_key_, text);
      return true;
    }
    if (at_ != At::kTensor || field_ != Field::kDType)
      return refuse_here(fmt::format("the string \"{}\" is not expected", text));
    const std::optional<DType> dtype = dtype_named(text);
    if (!dtype)
      return refuse_here(fmt::format(
          "dtype {} cannot be read; F32, BF16, F16, F8_E4M3, F8_E8M0, I8, I32, I64 and U8 can", text));
    tensor_.dtype = *dtype;
    return true;
  }

  bool start_array(std::size_t) override {
    if (at_ != At::kTensor || field_ == Field::kDType) return refuse_here("an array is not expected");
    at_ = field_ == Field::kShape ? At::kShape : At::kOffsets;
    return true;
  }

  bool end_array() override {
    at_ = At::kTensor;
    return field_ == Field::kShape || offsets_.size() == 2 ||
           refuse_here(fmt::format("data_offsets has {} numbers, not 2", offsets_.size()));
  }

  bool number_unsigned(number_unsigned_t value) override {
    if (at_ == At::kOffsets) {
      offsets_.push_back(value);
      return offsets_.size() <= 2 || refuse_here("data_offsets has more than 2 numbers");
    }
    if (at_ != At::kShape) return refuse_here(fmt::format("the number {} is not expected", value));
    if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
      return refuse_here(fmt::format("a dimension of {} is larger than 2^63 - 1", value));
    }
    tensor_.shape.push_back(static_cast<int64_t>(value));
    return tensor_.shape.size() <= kMaxDims ||
           refuse_here(fmt::format("the shape has more than {} dimensions", kMaxDims));
  }

 private:
  enum class At : uint8_t { kStart, kTop, kTensor, kShape, kOffsets, kMetadata, kEnd };
  enum class Field : uint8_t { kDType, kShape, kOffsets };

  bool refuse_here(std::string_view why) {
    return refuse(name_.empty() ? std::string(why) : fmt::format("\"{}\": {}", name_, why));
  }

  bool start_member() {
    tensor_ = {};
    offsets_.clear();
    seen_ = {};
    at_ = name_ == "__metadata__" ? At::kMetadata : At::kTensor;
    return true;
  }

  bool start_field(std::string_view name) {
    if (name == "dtype") {
      field_ = Field::kDType;
    } else if (name == "shape") {
      field_ = Field::kShape;
    } else if (name == "data_offsets") {
      field_ = Field::kOffsets;
    } else {
      return refuse_here(fmt::format("the field \"{}\" is none of dtype, shape, data_offsets", name));
    }
    const bool again = std::exchange(seen_[static_cast<size_t>(field_)], true);
    return !again || refuse_here(fmt::format("the field \"{}\" stands twice", name));
  }

  bool finish_tensor() {
    if (!seen_[0] || !seen_[1] || !seen_[2])
      return refuse_here("one of dtype, shape, data_offsets is missing");
    tensor_.name = name_;
    tensor_.begin = offsets_[0];
    tensor_.end = offsets_[1];
    header.entries.push_back(std::move(tensor_));
    return true;
  }

  At at_ = At::kStart;
  Field field_ = Field::kDType;
  std::string name_, metadata_key_;
  std::unordered_set<std::string> names_;
  std::array<bool, 3> seen_{};  // by Field
  std::vector<uint64_t> offsets_;
  TensorEntry tensor_;
};

// The bytes that shape × dtype take. Dimensions of zero are left out of the product at first, so that strides
// of an empty tensor cannot overflow either.
std::optional<uint64_t> bytes_of(const TensorEntry& entry) {
  uint64_t product = size_of(entry.dtype);
  bool is_empty = false;
  for (const int64_t dim : entry.shape) {
    if (dim == 0) {
      is_empty = true;
      continue;
    }
    const auto size = static_cast<uint64_t>(dim);
    if (product > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()) / size) return std::nullopt;
    product *= size;
  }
  return is_empty ? 0 : product;
}

Status check_entry(const TensorEntry& entry, uint64_t data_bytes) {
  if (entry.begin > entry.end || entry.end > data_bytes) {
    return invalid_argument(entry.name, "\"{}\" lies at bytes {} to {} of {} bytes of data", entry.name,
                            entry.begin, entry.end, data_bytes);
  }
  const std::optional<uint64_t> bytes = bytes_of(entry);
  if (!bytes) {
    return invalid_argument(entry.name, "\"{}\": the shape [{}] overflows 2^63 bytes", entry.name,
                            fmt::join(entry.shape, ", "));
  }
  if (*bytes != entry.end - entry.begin) {
    return invalid_argument(entry.name,
                            "\"{}\": {} [{}] takes {} bytes, but its data_offsets {} to {} hold {}",
                            entry.name, name_of(entry.dtype), fmt::join(entry.shape, ", "), *bytes,
                            entry.begin, entry.end, entry.end - entry.begin);
  }
  return Done{};
}

// A file that is shorter than its header says, where the header agrees with itself.
Status check_length(const std::vector<TensorEntry>& entries, uint64_t data_offset, uint64_t file_bytes) {
  const TensorEntry* last = nullptr;
  for (const TensorEntry& entry : entries) {
    if (entry.begin > entry.end || bytes_of(entry) != entry.end - entry.begin) return Done{};
    if (last == nullptr || entry.end > last->end) last = &entry;
  }
  const uint64_t data_bytes = file_bytes - data_offset;
  if (last == nullptr || last->end <= data_bytes) return Done{};
  return invalid_argument(
      last->name,
      "\"{}\" lies at bytes {} to {} of {} bytes of data: the file has {} bytes and should have at "
      "least {}, as after a copy or download that did not finish",
      last->name, last->begin, last->end, data_bytes, file_bytes, data_offset + last->end);
}

// Every byte of the data belongs to exactly one tensor.
Status check_cover(const std::vector<TensorEntry>& entries, uint64_t data_bytes) {
  uint64_t covered = 0;
  for (const TensorEntry& entry : entries) {
    if (entry.begin != covered) {
      return invalid_argument(
          entry.name, "\"{}\" begins at byte {} of the data, {} byte {}", entry.name, entry.begin,
          entry.begin < covered ? "inside the tensor that ends at" : "after a hole from", covered);
    }
    covered = entry.end;
  }
  if (covered != data_bytes) {
    return invalid_argument("", "the tensors end at byte {} of the data, the file goes on to {}", covered,
                            data_bytes);
  }
  return Done{};
}

uint64_t little_endian(std::string_view bytes) {
  uint64_t value = 0;
  for (size_t i = kLengthBytes; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors_header(std::string_view head, uint64_t file_bytes) {
  if (head.size() < kLengthBytes || file_bytes < kLengthBytes) {
    return invalid_argument("", "the file has {} bytes; the header's length alone takes 8",
                            std::min<uint64_t>(head.size(), file_bytes));
  }
  const uint64_t length = little_endian(head);
  if (length > kMaxHeaderBytes) {
    return invalid_argument("", "the header's length at byte 0 is {}, more than the format's limit of {}",
                            length, kMaxHeaderBytes);
  }
  const uint64_t available = std::min<uint64_t>(head.size(), file_bytes) - kLengthBytes;
  if (length > available) {
    return invalid_argument(
        "",
        "the header at byte 8 should have {} bytes, but only {} follow; is this a copy or "
        "download that did not finish?",
        length, available);
  }
  const std::string_view text = head.substr(kLengthBytes, length);
  if (!text.starts_with('{')) return invalid_argument("", "the header at byte 8 does not begin with {{");
  HeaderReader reader;
  if (Status status = reader.read(text, kLengthBytes); !status.ok()) return status.error();

  SafetensorsHeader header = std::move(reader.header);
  header.data_offset = kLengthBytes + length;
  const uint64_t data_bytes = file_bytes - header.data_offset;
  if (Status status = check_length(header.entries, header.data_offset, file_bytes); !status.ok())
    return status.error();
  for (const TensorEntry& entry : header.entries) {
    if (Status status = check_entry(entry, data_bytes); !status.ok()) return status.error();
  }
  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const TensorEntry& a, const TensorEntry& b) {
                     return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
                   });
  if (Status status = check_cover(header.entries, data_bytes); !status.ok()) return status.error();
  return header;
}

}  // namespace lockstep
