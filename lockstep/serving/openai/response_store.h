#pragma once
// Responses that clients may ask for again or go on from, in memory. Bounded in number and bytes: room is
// made by whoever has most, whose response that was used least recently goes first. A response is seen only
// by who made it. Any thread.
#include <cstddef>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace lockstep::serving::openai {

class ResponseStore {
 public:
  struct Limits {
    size_t max_responses = 4096;
    size_t max_bytes = size_t{64} << 20;
  };
  struct Stored {
    std::string response;  // JSON, as it was sent
    std::string items;     // JSON: the conversation with the response's own output
  };

  explicit ResponseStore(Limits limits) : limits_(limits) {}

  // One that is larger than all together may be is not kept, nor one that would leave its owner with more
  // than anybody else has when there is no room.
  void put(const std::string& id, const std::string& owner, Stored stored);
  std::optional<Stored> get(const std::string& id, std::string_view owner);
  bool remove(const std::string& id, std::string_view owner);

  size_t num_responses() const;
  size_t num_bytes() const;

 private:
  struct Entry {
    std::string id, owner;
    Stored stored;
    size_t num_bytes() const;
  };
  using Entries = std::list<Entry>;

  struct Use {
    size_t num_responses = 0, num_bytes = 0;
  };
  // Who has most by this measure, `owner` with one of `size` bytes more; equal ones are `owner`.
  std::string who_has_most(const std::string& owner, size_t size, size_t Use::* measure) const;
  bool make_room(const Entry& entry, size_t size);

  Entries::iterator find(const std::string& id, std::string_view owner);
  void erase(Entries::iterator entry);

  const Limits limits_;
  mutable std::mutex mutex_;
  Entries entries_;  // the most recent first
  std::unordered_map<std::string, Entries::iterator> by_id_;
  std::map<std::string, Use> uses_;  // by owner
  size_t num_bytes_ = 0;
};

}  // namespace lockstep::serving::openai
