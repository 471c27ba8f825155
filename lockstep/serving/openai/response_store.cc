#include "lockstep/serving/openai/response_store.h"

#include <algorithm>
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
  if (!make_room(entry, size)) return;
  Use& use = uses_[owner];
  ++use.num_responses;
  use.num_bytes += size;
  entries_.push_front(std::move(entry));
  by_id_[id] = entries_.begin();
  num_bytes_ += size;
}

std::string ResponseStore::who_has_most(const std::string& owner, size_t size, size_t Use::* measure) const {
  const auto own = uses_.find(owner);
  Use use = own == uses_.end() ? Use{} : own->second;
  ++use.num_responses;
  use.num_bytes += size;
  std::string who = owner;
  size_t most = use.*measure;
  for (const auto& [name, other] : uses_)
    if (name != owner && other.*measure > most) who = name, most = other.*measure;
  return who;
}

bool ResponseStore::make_room(const Entry& entry, size_t size) {
  while (true) {
    const bool is_large = num_bytes_ + size > limits_.max_bytes;
    if (!is_large && entries_.size() < limits_.max_responses) return true;
    const std::string who = who_has_most(entry.owner, size, is_large ? &Use::num_bytes : &Use::num_responses);
    const auto oldest =
        std::find_if(entries_.rbegin(), entries_.rend(), [&](const Entry& one) { return one.owner == who; });
    if (oldest == entries_.rend()) return false;
    erase(std::prev(oldest.base()));
  }
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
  const size_t size = entry->num_bytes();
  num_bytes_ -= size;
  const auto use = uses_.find(entry->owner);
  use->second.num_bytes -= size;
  if (--use->second.num_responses == 0) uses_.erase(use);
  by_id_.erase(entry->id);
  entries_.erase(entry);
}

}  // namespace lockstep::serving::openai
