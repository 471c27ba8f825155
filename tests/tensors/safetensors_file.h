#pragma once
// Safetensors files made by hand for the tests, well-formed or not.
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace lockstep {

inline std::string length_bytes(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<char>(length >> (8 * i)));
  return bytes;
}

inline std::string safetensors(std::string_view header, std::string_view data = {}) {
  return length_bytes(header.size()) + std::string(header) + std::string(data);
}

// A folder of its own, gone with the object.
class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "lockstep-XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() { std::filesystem::remove_all(path_); }

  const std::filesystem::path& path() const { return path_; }
  void write(const std::string& name, std::string_view bytes) const {
    std::ofstream(path_ / name, std::ios::binary)
        .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }

 private:
  std::filesystem::path path_;
};

}  // namespace lockstep
