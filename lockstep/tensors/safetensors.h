#pragma once
// Safetensors files by memory map: a header that is hostile until checked, then views straight into the
// mapping. Format: 8-byte little-endian header length, that many bytes of JSON, then the data
// (github.com/huggingface/safetensors).
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/tensors/tensor.h"

namespace lockstep {

struct TensorEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes from the start of the data section
};

struct SafetensorsHeader {
  std::vector<TensorEntry> entries;             // in the order of their data
  std::map<std::string, std::string> metadata;  // __metadata__
  uint64_t data_offset = 0;                     // of the data section in the file
};

// Pure: `head` holds the first bytes of a file of file_bytes bytes (at least the whole header when that is
// well formed). Refused with the offset: a truncated or oversized header, text that is not JSON, unknown
// dtypes, negative or overflowing shapes, ranges that leave the file, overlap, leave holes, or disagree with
// dtype × shape.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view head, uint64_t file_bytes);

// The tensors of a checkpoint: one model.safetensors or, where there is none, the shards of
// model.safetensors.index.json (of a shard only the tensors that the index puts there). Movable; find() may
// be called from many threads. The views that it gives live as long as it does and are read-only memory
// (writing faults). A tensor that stands in the file at an address that its dtype may not have is copied into
// aligned memory when it is first asked for.
class Checkpoint {
 public:
  static Result<Checkpoint> open(const std::filesystem::path& directory);
  // Random numbers of every name and shape that is asked for, so that speed can be measured where there is no
  // checkpoint. Tensors share memory: two may hold the same numbers, shifted.
  static Checkpoint random();
  bool is_random() const;
  Checkpoint(Checkpoint&&) noexcept;
  Checkpoint& operator=(Checkpoint&&) noexcept;
  ~Checkpoint();

  bool has(std::string_view name) const;
  // kNotFound names the tensor and the folder; a tensor of more than 4 dimensions may be there but cannot be
  // viewed.
  Result<TensorView> find(std::string_view name) const;
  // The same, saying what is expected, which a random checkpoint needs to know and a real one does not look
  // at.
  Result<TensorView> find(std::string_view name, std::span<const int64_t> shape, DType dtype) const;
  std::vector<std::string> names() const;  // sorted
  uint64_t total_bytes() const;

 private:
  struct Impl;
  explicit Checkpoint(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
