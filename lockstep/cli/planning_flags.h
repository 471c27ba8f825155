#pragma once
// The flags of `lockstep plan`, `verify` and `doctor` beside those of an engine, which `app` has already: a
// flag that changes nothing beside another is refused, and not passed over. Private to command_line.cc.
#include <CLI/CLI.hpp>

#include "lockstep/cli/commands.h"

namespace lockstep::cli {

void add_plan_flags(CLI::App& app, PlanCommand& command);
void add_verify_flags(CLI::App& app, VerifyCommand& command);
void add_doctor_flags(CLI::App& app, DoctorCommand& command);

}  // namespace lockstep::cli
