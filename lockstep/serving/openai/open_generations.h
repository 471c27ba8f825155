#pragma once
// The answers that are being made, by whose they are and their id: how one is found that shall be aborted.
// Any thread.
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/serving/generation.h"

namespace lockstep::serving::openai {

class OpenGenerations : public std::enable_shared_from_this<OpenGenerations> {
 public:
  using Weak = std::weak_ptr<Generation>;

  // The generation is found as long as what comes back lives, which the generation itself should keep.
  std::shared_ptr<void> add(const std::string& owner, const std::string& id, Weak generation);
  // All of the owner that have the id, which clients may choose.
  std::vector<Weak> find(const std::string& owner, const std::string& id) const;
  std::vector<Weak> find_all(const std::string& owner) const;
  std::vector<Weak> all() const;
  size_t size() const;

 private:
  using Open = std::multimap<std::pair<std::string, std::string>, Weak>;  // by owner and id
  class Place;

  mutable std::mutex mutex_;
  Open open_;
};

}  // namespace lockstep::serving::openai
