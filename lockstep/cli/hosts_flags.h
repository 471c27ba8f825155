#pragma once
// The flags of an engine that is spread over several processes. Private to command_line.cc.
#include <CLI/CLI.hpp>

#include "lockstep/runtime/hosts/launch.h"

namespace lockstep::cli {

void add_hosts_flags(CLI::App& app, runtime::HostsConfig& hosts);

}  // namespace lockstep::cli
