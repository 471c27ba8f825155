#pragma once
// The cost model's constants of this machine, measured with the kernels and the collectives that an engine
// runs on; and the file that keeps them. For `lockstep doctor --measure` and for --machine FILE.
#include <optional>
#include <string>
#include <vector>

#include "lockstep/planning/machine_file.h"
#include "lockstep/runtime/start.h"

namespace lockstep::runtime {

struct MeasureOptions {
  Device device = Device::kCpu;
  std::optional<int> threads;   // of each rank on the CPU
  std::string instruction_set;  // of the CPU's kernels; empty: the widest
  int max_ranks = 8;            // worlds of 1, 2, 4, … and so many ranks; of GPUs no more than there are
};

// A step that the constants were not taken from, beside what the cost model says of it with them.
struct CheckedStep {
  int num_ranks = 1;
  std::string what;
  double measured_us = 0, predicted_us = 0;
};
struct MachineMeasurement {
  planning::MeasuredMachine machine;
  std::vector<CheckedStep> checks;
};
Result<MachineMeasurement> measure_machine(const MeasureOptions& options, const Progress& progress);

// Errors name --machine, the file, the field and its value.
Result<planning::MeasuredMachine> read_machine_file(const std::string& path);

}  // namespace lockstep::runtime
