#pragma once
// Remembers the ids of short pieces of text, for most words of a text were seen before. One slot a hash: what
// comes later takes the place. Belongs to one thread at a time.
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace lockstep::serving::tokenizing {

class PieceCache {
 public:
  static constexpr size_t kMaxBytes = 24;
  static constexpr size_t kMaxIds = 9;

  PieceCache() : slots_(kNumSlots) {}

  struct Key {
    std::array<uint64_t, 3> words{};
    uint8_t num_bytes = 0;
    uint8_t mode = 0;  // pieces are encoded differently in different modes
    bool operator==(const Key&) const = default;
  };
  // `piece` has between 1 and kMaxBytes bytes.
  static Key key_of(std::string_view piece, uint8_t mode);

  // Appends the ids of a piece that is remembered; false when it is not.
  bool append(const Key& key, std::vector<int32_t>& ids) const;
  // Ids that are too many are not remembered.
  void put(const Key& key, std::span<const int32_t> ids);

 private:
  static constexpr size_t kNumSlots = size_t{1} << 14;
  struct Slot {
    std::array<uint64_t, 3> words{};
    std::array<int32_t, kMaxIds> ids{};
    uint8_t num_bytes = 0;  // 0: empty
    uint8_t mode = 0;
    uint8_t num_ids = 0;
  };
  static size_t slot_of(const Key& key);

  std::vector<Slot> slots_;
};

}  // namespace lockstep::serving::tokenizing
