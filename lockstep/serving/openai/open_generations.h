#pragma once
// The answers that are being made, by id: how one is found that shall be aborted. Any thread.
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "lockstep/serving/generation.h"

namespace lockstep::serving::openai {

class OpenGenerations {
 public:
  using Weak = std::weak_ptr<Generation>;

  void add(const std::string& id, const std::shared_ptr<Generation>& generation);
  // All that have the id, which clients may choose; they are forgotten here.
  std::vector<Weak> take(const std::string& id);
  std::vector<Weak> take_all();

 private:
  std::mutex mutex_;
  std::unordered_multimap<std::string, Weak> open_;
  size_t next_sweep_ = 64;  // so many entries: those that have ended are thrown away
};

}  // namespace lockstep::serving::openai
