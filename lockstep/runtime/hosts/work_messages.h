#pragma once
// What head and workers tell each other beside the rows of their ranks, and the box in which it waits for
// the thread that runs the engine. Private to hosts/.
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <string>

#include "lockstep/collectives/hosts/bytes.h"
#include "lockstep/collectives/hosts/links.h"
#include "lockstep/runtime/step.h"

namespace lockstep::runtime {

enum class WorkKind : uint8_t {
  kLoaded,    // worker: its weights are read
  kStep,      // head: run this step (step_codec.h)
  kLogits,    // worker: a wanted row of the step
  kStepDone,  // worker: all its ranks have run the step
  kStarted    // head: the engine has started, and how long ago each of its restarts was
};

class WorkBox final : public collectives::LinkUser {
 public:
  explicit WorkBox(collectives::Links& links);
  ~WorkBox() override;
  WorkBox(const WorkBox&) = delete;
  WorkBox& operator=(const WorkBox&) = delete;

  struct Letter {
    int process = 0;
    collectives::Frame frame;
  };
  // None after so long. Throws Fatal with the reason once the links failed and the box is empty.
  std::optional<Letter> wait_for(std::chrono::milliseconds patience);

  void on_frame(int process, collectives::Frame frame) override;
  void on_failure(const std::string& reason) override;

 private:
  collectives::Links& links_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::deque<Letter> letters_;  // this and what follows: guarded by mutex_
  std::string failure_;
};

// kLogits: whose row it is, of which step.
void send_logits(collectives::Links& links, uint64_t step, const LogitRow& row);
// What came, with views of the reader's bytes; throws WrongBytes.
struct ReceivedLogits {
  uint64_t step = 0;
  LogitRow row;
};
ReceivedLogits read_logits(collectives::ByteReader& reader, int vocab);

}  // namespace lockstep::runtime
