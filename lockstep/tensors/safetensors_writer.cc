#include "lockstep/tensors/safetensors_writer.h"

#include <cerrno>
#include <cstring>

#include "lockstep/base/json.h"

namespace lockstep {
namespace {

std::string_view format_name_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kF8E4M3:
      return "F8_E4M3";
    case DType::kF8E8M0:
      return "F8_E8M0";
    case DType::kI8:
      return "I8";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kU8:
      return "U8";
  }
  return "?";
}

// Written piece by piece: a document of a hundred thousand keys would look each of them up.
std::string header_of(const std::vector<NewTensor>& tensors) {
  std::string text = R"({"__metadata__":{"format":"pt"})";
  uint64_t at = 0;
  for (const NewTensor& tensor : tensors) {
    const uint64_t begin = at;
    at += tensor.bytes();
    const Json entry = {
        {"dtype", format_name_of(tensor.dtype)}, {"shape", tensor.shape}, {"data_offsets", {begin, at}}};
    text += "," + to_text(Json(tensor.name)) + ":" + to_text(entry);
  }
  text += "}";
  text.resize((text.size() + 7) / 8 * 8, ' ');  // data that begins at a multiple of 8 is mapped, not copied
  return text;
}

}  // namespace

uint64_t NewTensor::bytes() const {
  uint64_t bytes = size_of(dtype);
  for (const int64_t size : shape) bytes *= static_cast<uint64_t>(size);
  return bytes;
}

Result<SafetensorsWriter> SafetensorsWriter::create(const std::filesystem::path& path,
                                                    const std::vector<NewTensor>& tensors) {
  if (std::error_code ignored; std::filesystem::exists(path, ignored))
    return invalid_argument(path.string(), "{} is there already", path.string());
  uint64_t data_bytes = 0;
  for (const NewTensor& tensor : tensors) data_bytes += tensor.bytes();
  SafetensorsWriter writer(path, std::ofstream(path, std::ios::binary), data_bytes);
  const std::string header = header_of(tensors);
  char length[8];
  for (size_t i = 0; i < sizeof length; ++i) length[i] = static_cast<char>(header.size() >> (8 * i));
  writer.file_.write(length, sizeof length);
  writer.file_.write(header.data(), static_cast<std::streamsize>(header.size()));
  if (const Status status = writer.check_file(); !status) return status.error();
  return writer;
}

Status SafetensorsWriter::write(std::span<const std::byte> bytes) {
  LOCKSTEP_CHECK_LE(bytes.size(), left_);
  left_ -= bytes.size();
  file_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return check_file();
}

Status SafetensorsWriter::finish() {
  LOCKSTEP_CHECK_EQ(left_, uint64_t{0});
  file_.close();
  return check_file();
}

Status SafetensorsWriter::check_file() {
  if (file_) return Done{};
  return Error{ErrorCode::kUnavailable,
               fmt::format("cannot write {}: {}", path_.string(), std::strerror(errno)), path_.string()};
}

}  // namespace lockstep
