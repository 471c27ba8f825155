#pragma once
// How commands speak: errors, progress on standard error, and Ctrl-C.
#include <atomic>
#include <chrono>
#include <string>
#include <string_view>

#include "lockstep/base/check.h"
#include "lockstep/runtime/start.h"

namespace lockstep::cli {

// Prints "lockstep: message" and gives the exit code of the error's kind.
int report(const Error& error);

// Progress lines through the log.
runtime::Progress progress_lines();

// What drafts did: {"steps", "drafted", "accepted", "accept_length"}.
Json speculation_json(const runtime::EngineStats& stats);

// A line that is renewed in place on a terminal, and at most every few seconds elsewhere.
class ProgressLine {
 public:
  ProgressLine();
  ~ProgressLine();  // ends the line
  void show(std::string_view text);

 private:
  const bool is_terminal_;
  bool shown_ = false;
  std::chrono::steady_clock::time_point next_;
};

// Set by SIGINT and SIGTERM from the moment that this is called; the same flag every time.
const std::atomic<int>& interrupted();

}  // namespace lockstep::cli
