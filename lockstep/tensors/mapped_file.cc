#include "lockstep/tensors/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace lockstep {
namespace {

struct Descriptor {
  int number = -1;
  explicit Descriptor(int n) : number(n) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number >= 0) ::close(number);
  }
};

Error system_error(const std::filesystem::path& path, std::string_view what) {
  return {ErrorCode::kNotFound, fmt::format("cannot {} {}: {}", what, path.string(), std::strerror(errno)),
          path.string()};
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::filesystem::path& path) {
  const Descriptor file(
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // opening a pipe must not wait
  if (file.number < 0) return system_error(path, "open");
  struct stat status{};
  if (::fstat(file.number, &status) != 0) return system_error(path, "size");
  if (!S_ISREG(status.st_mode))
    return invalid_argument(path.string(), "{} is not a regular file", path.string());
  if (status.st_size == 0) return MappedFile(std::string_view());
  const auto size = static_cast<size_t>(status.st_size);
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.number, 0);
  if (data == MAP_FAILED) return system_error(path, "map");
  return MappedFile(std::string_view(static_cast<const char*>(data), size));
}

MappedFile::MappedFile(MappedFile&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) ::munmap(const_cast<char*>(bytes_.data()), bytes_.size());
}

}  // namespace lockstep
