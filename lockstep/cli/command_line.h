#pragma once
// argv to a Command. The only source that knows CLI11.
#include "lockstep/base/log_format.h"
#include "lockstep/cli/commands.h"

namespace lockstep::cli {

struct Parsed {
  std::optional<Command> command;  // none: help, version or an error was printed
  int exit_code = kOk;             // then
  LogLevel log_level = LogLevel::kInfo;
  LogFormat log_format = LogFormat::kText;
};

Parsed parse_command_line(int argc, const char* const* argv);

}  // namespace lockstep::cli
