#pragma once
// A process that has no engine, only ranks: it loads them, runs the steps that the head sends, and ends when
// the head does. For the cli.
#include "lockstep/runtime/start.h"

namespace lockstep::runtime {

// Returns when the head has ended in good order. The error says what else ended it.
Status serve_ranks(const EngineConfig& config, const Progress& progress);

}  // namespace lockstep::runtime
