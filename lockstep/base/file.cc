#include "lockstep/base/file.h"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <system_error>

namespace lockstep {

Result<std::string> read_file(const std::filesystem::path& path, size_t max_bytes) {
  std::error_code failure;
  if (!std::filesystem::is_regular_file(path, failure))
    return Error{ErrorCode::kNotFound, fmt::format("{} is not there, or is not a file", path.string()),
                 path.string()};
  const auto size = std::filesystem::file_size(path, failure);
  if (failure)
    return Error{ErrorCode::kNotFound, fmt::format("cannot size {}: {}", path.string(), failure.message()),
                 path.string()};
  if (size > max_bytes)
    return invalid_argument(path.string(), "{} has {} bytes, more than the limit of {}", path.string(), size,
                            max_bytes);
  std::ifstream in(path, std::ios::binary);
  std::string text(size, '\0');
  if (!in.read(text.data(), static_cast<std::streamsize>(size)))
    return Error{ErrorCode::kNotFound, fmt::format("cannot read {}: {}", path.string(), std::strerror(errno)),
                 path.string()};
  return text;
}

}  // namespace lockstep
