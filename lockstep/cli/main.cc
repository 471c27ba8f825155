// The program: parses, runs one command, and is the last place where a failure is caught.
#include <fmt/format.h>

#include <csignal>
#include <cstdio>
#include <exception>

#include "lockstep/cli/command_line.h"
#include "lockstep/cli/library_messages.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a reader that goes away is a write error, not the end of the server
  const lockstep::cli::Parsed parsed = lockstep::cli::parse_command_line(argc, argv);
  if (!parsed.command) return parsed.exit_code;
  lockstep::set_log_level(parsed.log_level);
  lockstep::set_log_format(parsed.log_format);
  lockstep::cli::LibraryMessages library_messages;
  try {
    if (const auto code = lockstep::cli::run_as_worker(*parsed.command)) return *code;
    return std::visit([](const auto& command) { return lockstep::cli::run(command); }, *parsed.command);
  } catch (const std::exception& failure) {
    fmt::print(stderr, "lockstep: {}\n", failure.what());
    return lockstep::cli::kFailed;
  }
}
