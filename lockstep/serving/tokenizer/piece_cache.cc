#include "lockstep/serving/tokenizer/piece_cache.h"

#include <algorithm>
#include <cstring>

#include "lockstep/base/hash.h"

namespace lockstep::serving::tokenizing {

PieceCache::Key PieceCache::key_of(std::string_view piece, uint8_t mode) {
  Key key{.words = {}, .num_bytes = static_cast<uint8_t>(piece.size()), .mode = mode};
  std::memcpy(key.words.data(), piece.data(), piece.size());
  return key;
}

size_t PieceCache::slot_of(const Key& key) {
  const uint64_t word = key.words[0] ^ key.words[1] * 0x9E3779B97F4A7C15 ^ key.words[2] * 0xC2B2AE3D27D4EB4F;
  return mix64(word + key.num_bytes * 2U + key.mode) & (kNumSlots - 1);
}

bool PieceCache::append(const Key& key, std::vector<int32_t>& ids) const {
  const Slot& slot = slots_[slot_of(key)];
  if (slot.num_bytes != key.num_bytes || slot.mode != key.mode || slot.words != key.words) return false;
  ids.insert(ids.end(), slot.ids.begin(), slot.ids.begin() + slot.num_ids);
  return true;
}

void PieceCache::put(const Key& key, std::span<const int32_t> ids) {
  if (ids.size() > kMaxIds) return;
  Slot& slot = slots_[slot_of(key)];
  slot.words = key.words;
  slot.num_bytes = key.num_bytes;
  slot.mode = key.mode;
  slot.num_ids = static_cast<uint8_t>(ids.size());
  std::copy(ids.begin(), ids.end(), slot.ids.begin());
}

}  // namespace lockstep::serving::tokenizing
