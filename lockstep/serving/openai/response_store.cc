#include "lockstep/serving/openai/response_store.h"

#include <iterator>
#include <utility>

namespace lockstep::serving::openai {

size_t ResponseStore::Entry::num_bytes() const {
  return sizeof(Entry) + 2 * id.size() + owner.size() + stored.response.size() + stored.items.size();
}

void ResponseStore::put(const std::string& id, const std::string& owner, Stored stored) {
  Entry entry{id, owner, std::move(stored)};
  const size_t size = entry.num_bytes();
  if (size > limits_.max_bytes || limits_.max_responses == 0) return;
  const std::lock_guard lock(mutex_);
  if (by_id_.contains(id)) return;
  while (!entries_.empty() &&
         (num_bytes_ + size > limits_.max_bytes || entries_.size() >= limits_.max_responses))
    erase(std::prev(entries_.end()));
  entries_.push_front(std::move(entry));
  by_id_[id] = entries_.begin();
  num_bytes_ += size;
}

std::optional<ResponseStore::Stored> ResponseStore::get(const std::string& id, std::string_view owner) {
  const std::lock_guard lock(mutex_);
  const auto entry = find(id, owner);
  if (entry == entries_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, entry);
  return entry->stored;
}

bool ResponseStore::remove(const std::string& id, std::string_view owner) {
  const std::lock_guard lock(mutex_);
  const auto entry = find(id, owner);
  if (entry == entries_.end()) return false;
  erase(entry);
  return true;
}

size_t ResponseStore::num_responses() const {
  const std::lock_guard lock(mutex_);
  return entries_.size();
}

size_t ResponseStore::num_bytes() const {
  const std::lock_guard lock(mutex_);
  return num_bytes_;
}

ResponseStore::Entries::iterator ResponseStore::find(const std::string& id, std::string_view owner) {
  const auto found = by_id_.find(id);
  return found == by_id_.end() || found->second->owner != owner ? entries_.end() : found->second;
}

void ResponseStore::erase(Entries::iterator entry) {
  num_bytes_ -= entry->num_bytes();
  by_id_.erase(entry->id);
  entries_.erase(entry);
}

}  // namespace lockstep::serving::openai
