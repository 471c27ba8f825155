#include "lockstep/serving/openai/open_generations.h"

#include <algorithm>

namespace lockstep::serving::openai {

void OpenGenerations::add(const std::string& id, const std::shared_ptr<Generation>& generation) {
  constexpr size_t kLeast = 64;
  const std::lock_guard lock(mutex_);
  if (open_.size() >= next_sweep_) {
    std::erase_if(open_, [](const auto& entry) { return entry.second.expired(); });
    next_sweep_ = std::max(kLeast, 2 * open_.size());
  }
  open_.emplace(id, generation);
}

std::vector<OpenGenerations::Weak> OpenGenerations::take(const std::string& id) {
  const std::lock_guard lock(mutex_);
  std::vector<Weak> found;
  const auto [begin, end] = open_.equal_range(id);
  for (auto entry = begin; entry != end; ++entry) found.push_back(entry->second);
  open_.erase(begin, end);
  return found;
}

std::vector<OpenGenerations::Weak> OpenGenerations::take_all() {
  const std::lock_guard lock(mutex_);
  std::vector<Weak> all;
  for (auto& [id, generation] : open_) all.push_back(generation);
  open_.clear();
  return all;
}

}  // namespace lockstep::serving::openai
