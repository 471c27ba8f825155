#pragma once
// Which requests were running when the engine failed, by what they ask for, so that one that brings it down
// each time is found and refused while those that only ran beside it are not. Any thread. Private to the
// engine loop.
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>

#include "lockstep/runtime/engine.h"

namespace lockstep::runtime {

// Of requests that failures do not count for.
inline constexpr uint64_t kNoFingerprint = ~uint64_t{0};

// The same for the same prompt and parameters, however often and by whomever they are sent.
uint64_t fingerprint_of(const Request& request);

class Suspects {
 public:
  // A request that was running in so many failures is refused; 0: never.
  explicit Suspects(int max_failures) : max_failures_(max_failures) {}

  enum class Verdict : uint8_t {
    kFree,
    kAlone,  // one more failure convicts it: no other of these may run at the same time
    kRefused,
  };
  Verdict verdict(uint64_t fingerprint) const;
  int num_failures(uint64_t fingerprint) const;
  bool empty() const;

  void blame(uint64_t fingerprint);  // it was running when the engine failed
  void clear(uint64_t fingerprint);  // it came to its end

 private:
  static constexpr size_t kMostRemembered = 4096;  // further ones push out the oldest

  const int max_failures_;
  mutable std::mutex mutex_;
  std::map<uint64_t, int> failures_;  // guarded by mutex_, as is what follows
  std::deque<uint64_t> by_age_;
};

}  // namespace lockstep::runtime
