#pragma once
// A regular file mapped for reading, whole. Movable; bytes() lives as long as the object does.
#include <filesystem>
#include <string_view>

#include "lockstep/base/check.h"

namespace lockstep {

class MappedFile {
 public:
  // Errors name the path and what the system said. Devices, pipes and folders are refused without waiting for
  // them.
  static Result<MappedFile> open(const std::filesystem::path& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::string_view bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::string_view bytes) : bytes_(bytes) {}
  std::string_view bytes_;
};

}  // namespace lockstep
