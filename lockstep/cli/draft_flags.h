#pragma once
// The flags that say whether and how much is drafted. For command_line.cc.
#include <CLI/CLI.hpp>
#include <string>

#include "lockstep/planning/configuration.h"

namespace lockstep::cli {

void add_draft_flags(CLI::App& app, planning::ParallelFlags& flags, const std::string& group);

}  // namespace lockstep::cli
