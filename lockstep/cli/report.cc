#include "lockstep/cli/report.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "lockstep/base/log.h"
#include "lockstep/cli/commands.h"

namespace lockstep::cli {
namespace {

constexpr std::chrono::milliseconds kOnTerminal{200};
constexpr std::chrono::milliseconds kElsewhere{5000};

// A signal handler can reach nothing but a static; this is the process's one.
std::atomic<int>& signal_flag() {
  static std::atomic<int> flag{0};
  return flag;
}

void on_signal(int signal) {
  // A second one ends the process at once.
  if (signal_flag().exchange(signal) != 0) _exit(kInterrupted);
}

}  // namespace

int report(const Error& error) {
  fmt::print(stderr, "lockstep: {}\n", error.message);
  return error.code == ErrorCode::kInvalidArgument || error.code == ErrorCode::kNotFound ? kRefused : kFailed;
}

Json speculation_json(const runtime::EngineStats& stats) {
  return {{"steps", stats.verifying_steps},
          {"drafted", stats.drafted_tokens},
          {"accepted", stats.accepted_tokens},
          {"accept_length", runtime::accept_length(stats)}};
}

runtime::Progress progress_lines() {
  return [](std::string_view line) { log_info("{}", line); };
}

ProgressLine::ProgressLine()
    : is_terminal_(isatty(STDERR_FILENO) == 1),
      next_(std::chrono::steady_clock::now() + (is_terminal_ ? kOnTerminal : kElsewhere)) {}

ProgressLine::~ProgressLine() {
  if (shown_ && is_terminal_) fmt::print(stderr, "\r\x1b[K");
}

void ProgressLine::show(std::string_view text) {
  const auto now = std::chrono::steady_clock::now();
  if (now < next_) return;
  next_ = now + (is_terminal_ ? kOnTerminal : kElsewhere);
  shown_ = true;
  fmt::print(stderr, "{}{}{}", is_terminal_ ? "\r\x1b[K" : "", text, is_terminal_ ? "" : "\n");
  std::fflush(stderr);
}

const std::atomic<int>& interrupted() {
  struct sigaction action{};
  action.sa_handler = on_signal;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return signal_flag();
}

}  // namespace lockstep::cli
