#pragma once
// What an engine does about a step that fails or does not end. Numbers only; the engine loop obeys them.
#include <chrono>

namespace lockstep::runtime {

struct FaultPolicy {
  std::chrono::milliseconds step_timeout{300'000};  // --step-timeout: a longer step is a failure
  // From then on, or from a rank's failure: until all ranks have come back. Requests are told after this, and
  // nobody waits for those ranks any more.
  std::chrono::milliseconds grace{1000};
  int max_restarts = 5;  // --max-engine-restarts: within the window
  std::chrono::milliseconds restart_window{600'000};
  std::chrono::milliseconds first_backoff{500}, longest_backoff{30'000};  // doubled from one to the next
  // A restart that takes longer is given up, and with it the engine. A start sets it from how long it took
  // itself.
  std::chrono::milliseconds restart_timeout{1'800'000};
  int max_request_failures = 3;  // --max-request-failures: of the engine while one request ran
  // An engine that has been idle for so long runs a step without rows when it is asked for its health; 0:
  // never.
  std::chrono::milliseconds probe_after{5'000};
};

}  // namespace lockstep::runtime
