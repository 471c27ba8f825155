#include <algorithm>
#include <cstring>
#include <deque>
#include <mutex>
#include <numeric>
#include <utility>

#include "lockstep/base/file.h"
#include "lockstep/base/log.h"
#include "lockstep/tensors/mapped_file.h"
#include "lockstep/tensors/safetensors.h"
#include "lockstep/tensors/strict_json.h"

namespace lockstep {
namespace {

constexpr std::string_view kSingleFile = "model.safetensors";
constexpr std::string_view kIndexFile = "model.safetensors.index.json";
constexpr size_t kMaxIndexBytes = size_t{256} << 20;
constexpr int kMaxIndexDepth = 64;
constexpr int kShownShards = 8;

using Path = std::filesystem::path;

// model.safetensors.index.json: {"metadata": anything, "weight_map": {tensor: shard}}.
class IndexReader final : public StrictJsonReader {
 public:
  std::map<std::string, std::string> shard_of;
  bool has_weight_map() const { return has_weight_map_; }

  bool null() override { return skip() || refuse("null is not expected"); }
  bool boolean(bool) override { return skip() || refuse("a boolean is not expected"); }
  bool number_integer(number_integer_t) override { return skip() || refuse("a number is not expected"); }
  bool number_unsigned(number_unsigned_t) override { return skip() || refuse("a number is not expected"); }
  bool number_float(number_float_t, const string_t&) override {
    return skip() || refuse("a number is not expected");
  }
  bool start_array(std::size_t) override { return skip() ? enter() : refuse("an array is not expected"); }
  bool end_array() override { return leave(); }
  bool start_object(std::size_t) override { return enter(); }
  bool end_object() override { return leave(); }

  bool key(string_t& name) override {
    if (depth_ == 1) {
      top_key_ = name;
      if (name == "weight_map" && std::exchange(has_weight_map_, true))
        return refuse("weight_map stands twice");
    }
    if (in_weight_map()) tensor_ = name;
    return true;
  }

  bool string(string_t& text) override {
    if (!in_weight_map()) return skip() || refuse("a string is not expected");
    return shard_of.emplace(tensor_, text).second || refuse(fmt::format("\"{}\" stands twice", tensor_));
  }

 private:
  bool in_weight_map() const { return depth_ == 2 && top_key_ == "weight_map"; }
  // True where a value of any kind may stand: in any member but weight_map.
  bool skip() const { return depth_ >= 1 && top_key_ != "weight_map"; }
  bool enter() {
    if (top_key_ == "weight_map" && depth_ == 2)
      return refuse(fmt::format("the shard of \"{}\" is not a string", tensor_));
    return ++depth_ <= kMaxIndexDepth || refuse(fmt::format("nested deeper than {} levels", kMaxIndexDepth));
  }
  bool leave() {
    --depth_;
    return true;
  }

  int depth_ = 0;
  bool has_weight_map_ = false;
  std::string top_key_, tensor_;
};

Error in_file(const Path& path, const Error& error) {
  return {error.code, fmt::format("{}: {}", path.string(), error.message), path.string()};
}

// A shard lies in the folder itself. It may be a symbolic link, as in the cache of the model hub.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

Result<std::map<std::string, std::string>> read_index(const Path& path) {
  Result<std::string> text = read_file(path, kMaxIndexBytes);
  if (!text.ok()) return text.error();
  IndexReader reader;
  if (Status status = reader.read(*text, 0); !status.ok()) return in_file(path, status.error());
  if (!reader.has_weight_map()) return invalid_argument(path.string(), "{} has no weight_map", path.string());
  for (const auto& [tensor, shard] : reader.shard_of) {
    if (!is_plain_name(shard)) {
      return invalid_argument(tensor,
                              "{} puts \"{}\" into \"{}\", which is not the name of a file in its folder",
                              path.string(), tensor, shard);
    }
  }
  return std::move(reader.shard_of);
}

struct Shard {
  MappedFile file;
  SafetensorsHeader header;
};

Result<Shard> open_shard(const Path& path) {
  Result<MappedFile> file = MappedFile::open(path);
  if (!file.ok()) return file.error();
  constexpr std::string_view kLfsPointer = "version https://git-lfs.github.com/spec";
  if (file->bytes().starts_with(kLfsPointer)) {
    return invalid_argument(
        path.string(), "{} is a pointer of Git LFS and not the weights themselves: fetch them (git lfs pull)",
        path.string());
  }
  Result<SafetensorsHeader> header = parse_safetensors_header(file->bytes(), file->bytes().size());
  if (!header.ok()) return in_file(path, header.error());
  const auto misaligned =
      std::count_if(header->entries.begin(), header->entries.end(), [&](const TensorEntry& entry) {
        return (header->data_offset + entry.begin) % size_of(entry.dtype) != 0;
      });
  if (misaligned > 0) {
    log_warning(
        "{}: {} of {} tensors are not aligned and are copied when used; save the file again to map them",
        path.string(), misaligned, header->entries.size());
  }
  return Shard{std::move(file).value(), std::move(header).value()};
}

// Numbers between -1/32 and 1/32, as weights are.
class RandomNumbers {
 public:
  // `elements` of the dtype at an address that no earlier call gave.
  void* take(int64_t elements, DType dtype) {
    const std::scoped_lock lock(mutex_);
    const size_t bytes = static_cast<size_t>(elements) * size_of(dtype);
    auto& blocks = dtype == DType::kF32 ? f32_ : bf16_;
    if (blocks.empty() || blocks.back().size() < bytes + kShifts)
      blocks.push_back(made(bytes + kShifts, dtype));
    next_ = (next_ + kStep) % kShifts;
    return blocks.back().data() + next_;
  }

 private:
  static constexpr size_t kShifts = size_t{64} << 20, kStep = 256;
  static std::vector<std::byte> made(size_t bytes, DType dtype) {
    std::vector<std::byte> block(bytes);
    uint64_t state = 0x9e3779b97f4a7c15;
    for (size_t at = 0; at + size_of(dtype) <= bytes; at += size_of(dtype)) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      const float value = (static_cast<float>(state >> 40) / static_cast<float>(1 << 23) - 1) / 32;
      const BF16 rounded = to_bf16(value);
      if (dtype == DType::kF32) {
        std::memcpy(block.data() + at, &value, sizeof(value));
      } else {
        std::memcpy(block.data() + at, &rounded, sizeof(rounded));
      }
    }
    return block;
  }

  std::mutex mutex_;
  std::deque<std::vector<std::byte>> bf16_, f32_;
  size_t next_ = 0;
};

}  // namespace

struct Checkpoint::Impl {
  struct Place {
    const TensorEntry* entry = nullptr;
    const char* data = nullptr;
  };

  std::unique_ptr<RandomNumbers> random;  // instead of all below
  Path directory;
  std::map<std::string, Shard> shards;  // by file name; a map, so that entries stay where they are
  std::map<std::string, Place, std::less<>> places;

  // Numbers that stand in the file at an address that their type may not have.
  std::mutex mutex;  // guards aligned
  std::map<const TensorEntry*, std::vector<std::max_align_t>> aligned;

  Status add_shard(const std::string& name) {
    Result<Shard> shard = open_shard(directory / name);
    if (!shard.ok()) return shard.error();
    shards.emplace(name, std::move(shard).value());
    return Done{};
  }

  void add_place(const Shard& shard, const TensorEntry& entry) {
    places[entry.name] = {&entry, shard.file.bytes().data() + shard.header.data_offset + entry.begin};
  }

  const char* aligned_data(const Place& place) {
    const size_t alignment = size_of(place.entry->dtype);
    if (reinterpret_cast<uintptr_t>(place.data) % alignment == 0) return place.data;
    const size_t bytes = place.entry->end - place.entry->begin;
    const std::scoped_lock lock(mutex);
    auto& copy = aligned[place.entry];
    if (copy.empty() && bytes > 0) {
      copy.resize((bytes + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t));
      std::memcpy(copy.data(), place.data, bytes);
    }
    return reinterpret_cast<const char*>(copy.data());
  }

  Status open_single() {
    const std::string name(kSingleFile);
    if (Status status = add_shard(name); !status.ok()) return status;
    const Shard& shard = shards.at(name);
    for (const TensorEntry& entry : shard.header.entries) add_place(shard, entry);
    return Done{};
  }

  Status check_shards_are_there(const std::map<std::string, std::string>& shard_of) const {
    std::map<std::string, bool> there;
    std::error_code ignored;
    for (const auto& [tensor, name] : shard_of)
      if (!there.contains(name)) there[name] = std::filesystem::exists(directory / name, ignored);
    std::string missing;
    int num_missing = 0;
    for (const auto& [name, is_there] : there) {
      if (is_there) continue;
      if (++num_missing <= kShownShards) missing += (missing.empty() ? "" : ", ") + name;
    }
    if (num_missing == 0) return Done{};
    return Error{
        ErrorCode::kNotFound,
        fmt::format(
            "{} of the {} files that {} names are not there, as after a copy or download that did not "
            "finish: {}{}",
            num_missing, there.size(), (directory / kIndexFile).string(), missing,
            num_missing > kShownShards ? ", …" : ""),
        directory.string()};
  }

  Status open_shards() {
    Result<std::map<std::string, std::string>> shard_of = read_index(directory / kIndexFile);
    if (!shard_of.ok()) return shard_of.error();
    if (Status status = check_shards_are_there(*shard_of); !status.ok()) return status.error();
    for (const auto& [tensor, name] : *shard_of) {
      if (shards.contains(name)) continue;
      if (Status status = add_shard(name); !status.ok()) return status;
    }
    for (const auto& [name, shard] : shards) {
      for (const TensorEntry& entry : shard.header.entries) {
        const auto listed = shard_of->find(entry.name);
        if (listed != shard_of->end() && listed->second == name) add_place(shard, entry);
      }
    }
    for (const auto& [tensor, name] : *shard_of) {
      if (!places.contains(tensor)) {
        return invalid_argument(tensor, "{} puts \"{}\" into {}, which does not hold it",
                                (directory / kIndexFile).string(), tensor, name);
      }
    }
    return Done{};
  }
};

Checkpoint::Checkpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Result<Checkpoint> Checkpoint::open(const Path& directory) {
  auto impl = std::make_unique<Impl>();
  impl->directory = directory;
  std::error_code ignored;
  const bool is_single = std::filesystem::exists(directory / kSingleFile, ignored);
  if (!is_single && !std::filesystem::exists(directory / kIndexFile, ignored)) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} holds neither {} nor {}", directory.string(), kSingleFile, kIndexFile),
                 directory.string()};
  }
  const Status status = is_single ? impl->open_single() : impl->open_shards();
  if (!status.ok()) return status.error();
  return Checkpoint(std::move(impl));
}

Checkpoint Checkpoint::random() {
  auto impl = std::make_unique<Impl>();
  impl->directory = "random weights";
  impl->random = std::make_unique<RandomNumbers>();
  return Checkpoint(std::move(impl));
}

Result<TensorView> Checkpoint::find(std::string_view name, std::span<const int64_t> shape,
                                    DType dtype) const {
  if (impl_->random == nullptr) return find(name);
  TensorView view;
  LOCKSTEP_CHECK_LE(shape.size(), view.shape.size());
  view.dtype = dtype;
  view.num_dims = static_cast<uint8_t>(shape.size());
  int64_t stride = 1;
  for (size_t dim = shape.size(); dim-- > 0;) {
    view.shape[dim] = shape[dim];
    view.stride[dim] = stride;
    stride *= shape[dim];
  }
  view.data = impl_->random->take(view.num_elements(), dtype);
  return view;
}

bool Checkpoint::is_random() const { return impl_->random != nullptr; }

bool Checkpoint::has(std::string_view name) const { return impl_->places.contains(name); }

Result<TensorView> Checkpoint::find(std::string_view name) const {
  const auto found = impl_->places.find(name);
  if (found == impl_->places.end()) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("no tensor \"{}\" among the {} of {}", name, impl_->places.size(),
                             impl_->directory.string()),
                 std::string(name)};
  }
  const TensorEntry& entry = *found->second.entry;
  TensorView view;
  if (entry.shape.size() > view.shape.size()) {
    return invalid_argument(std::string(name), "\"{}\" of {} has {} dimensions; at most {} can be used", name,
                            impl_->directory.string(), entry.shape.size(), view.shape.size());
  }
  view.data = const_cast<char*>(impl_->aligned_data(found->second));
  view.dtype = entry.dtype;
  view.num_dims = static_cast<uint8_t>(entry.shape.size());
  int64_t stride = 1;
  for (size_t dim = entry.shape.size(); dim-- > 0;) {
    view.shape[dim] = entry.shape[dim];
    view.stride[dim] = stride;
    stride *= std::max<int64_t>(entry.shape[dim], 1);
  }
  return view;
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  names.reserve(impl_->places.size());
  for (const auto& [name, place] : impl_->places) names.push_back(name);
  return names;
}

uint64_t Checkpoint::total_bytes() const {
  return std::accumulate(impl_->places.begin(), impl_->places.end(), uint64_t{0},
                         [](uint64_t sum, const auto& named) {
                           return sum + (named.second.entry->end - named.second.entry->begin);
                         });
}

}  // namespace lockstep
