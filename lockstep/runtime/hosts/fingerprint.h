#pragma once
// What must be the same in every process of an engine, as short texts: the program, the vector instructions
// that it computes with, the checkpoint, and everything that the flags solved to. Ranks that differ in one of
// these would compute different numbers and never know.
#include "lockstep/collectives/hosts/joining.h"
#include "lockstep/runtime/described_engine.h"

namespace lockstep::runtime {

Result<collectives::Passport> passport_of(const EngineConfig& config, const DescribedEngine& described);

}  // namespace lockstep::runtime
