// A folder with two shards and any bytes as model.safetensors.index.json opens with tensors of these shards,
// or is refused with a message.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "lockstep/base/log.h"
#include "lockstep/tensors/safetensors.h"

namespace {

void write(const std::filesystem::path& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string shard_of(std::string_view tensor) {
  const std::string header =
      "{\"" + std::string(tensor) + "\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());  // below 256
  return bytes + header + "x";
}

std::filesystem::path make_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "lockstep-fuzz-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) std::abort();
  write(std::filesystem::path(name) / "1", shard_of("a"));
  write(std::filesystem::path(name) / "2", shard_of("b"));
  lockstep::set_log_level(lockstep::LogLevel::kOff);
  return name;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::filesystem::path folder = make_folder();
  write(folder / "model.safetensors.index.json", {reinterpret_cast<const char*>(data), size});
  const auto checkpoint = lockstep::Checkpoint::open(folder);
  if (!checkpoint) {
    if (checkpoint.error().message.empty()) std::abort();
    return 0;
  }
  for (const std::string& name : checkpoint->names()) {
    if (name != "a" && name != "b") std::abort();
    if (*checkpoint->find(name).value().as<uint8_t>() != 'x') std::abort();
  }
  return 0;
}
