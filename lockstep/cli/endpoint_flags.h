#pragma once
// The flags of `lockstep bench --base-url`. Private to command_line.cc.
#include <CLI/CLI.hpp>

#include "lockstep/cli/commands.h"

namespace lockstep::cli {

void add_endpoint_flags(CLI::App& app, EndpointBench& bench);

}  // namespace lockstep::cli
