#include "lockstep/serving/openai/open_generations.h"

namespace lockstep::serving::openai {

// An entry, which goes with this.
class OpenGenerations::Place {
 public:
  Place(std::shared_ptr<OpenGenerations> of, Open::iterator entry) : of_(std::move(of)), entry_(entry) {}
  ~Place() {
    const std::lock_guard lock(of_->mutex_);
    of_->open_.erase(entry_);
  }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

 private:
  const std::shared_ptr<OpenGenerations> of_;
  const Open::iterator entry_;
};

std::shared_ptr<void> OpenGenerations::add(const std::string& owner, const std::string& id, Weak generation) {
  const std::lock_guard lock(mutex_);
  return std::make_shared<Place>(shared_from_this(),
                                 open_.emplace(std::pair(owner, id), std::move(generation)));
}

std::vector<OpenGenerations::Weak> OpenGenerations::find(const std::string& owner,
                                                         const std::string& id) const {
  const std::lock_guard lock(mutex_);
  std::vector<Weak> found;
  const auto [begin, end] = open_.equal_range({owner, id});
  for (auto entry = begin; entry != end; ++entry) found.push_back(entry->second);
  return found;
}

std::vector<OpenGenerations::Weak> OpenGenerations::find_all(const std::string& owner) const {
  const std::lock_guard lock(mutex_);
  std::vector<Weak> found;
  for (auto entry = open_.lower_bound({owner, ""}); entry != open_.end() && entry->first.first == owner;
       ++entry)
    found.push_back(entry->second);
  return found;
}

std::vector<OpenGenerations::Weak> OpenGenerations::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<Weak> found;
  found.reserve(open_.size());
  for (const auto& [key, generation] : open_) found.push_back(generation);
  return found;
}

size_t OpenGenerations::size() const {
  const std::lock_guard lock(mutex_);
  return open_.size();
}

}  // namespace lockstep::serving::openai
