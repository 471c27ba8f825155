#pragma once
// Writes one safetensors file: first all entries, then their bytes in the same order. For `lockstep
// quantize`.
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "lockstep/tensors/safetensors.h"

namespace lockstep {

struct NewTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t bytes() const;
};

class SafetensorsWriter {
 public:
  // Begins a new file; one that is there is refused.
  static Result<SafetensorsWriter> create(const std::filesystem::path& path,
                                          const std::vector<NewTensor>& tensors);

  // The bytes of the next tensor or of a part of it.
  Status write(std::span<const std::byte> bytes);
  // All bytes must have come.
  Status finish();

 private:
  SafetensorsWriter(std::filesystem::path path, std::ofstream file, uint64_t data_bytes)
      : path_(std::move(path)), file_(std::move(file)), left_(data_bytes) {}
  Status check_file();
  std::filesystem::path path_;
  std::ofstream file_;
  uint64_t left_;
};

}  // namespace lockstep
