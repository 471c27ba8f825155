// Any bytes are either refused with a message or give tensors that cover the data of the file exactly.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "lockstep/tensors/safetensors.h"

namespace {

void require(bool held) {
  if (!held) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view head(reinterpret_cast<const char*>(data), size);
  const auto header = lockstep::parse_safetensors_header(head, size);
  if (!header) {
    require(!header.error().message.empty());
    return 0;
  }
  uint64_t covered = 0;
  for (const lockstep::TensorEntry& entry : header->entries) {
    require(entry.begin == covered && entry.end >= entry.begin);
    uint64_t bytes = lockstep::size_of(entry.dtype);
    for (const int64_t dim : entry.shape) {
      require(dim >= 0);
      bytes *= static_cast<uint64_t>(dim);
    }
    require(bytes == entry.end - entry.begin);
    covered = entry.end;
  }
  require(header->data_offset + covered == size);
  return 0;
}
