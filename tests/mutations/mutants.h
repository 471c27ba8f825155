#pragma once
// Configurations with their proven plans, and how a plan is broken and tried.
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/planning/configuration.h"
#include "lockstep/planning/verifier.h"

namespace lockstep::planning::test {

// A plan that is right, with all that a proof of it needs.
struct Subject {
  std::string name;  // flags and plan, for messages
  RankGrid grid;
  std::vector<Stage> chain;
  Plan plan;
  std::vector<StepPlan> step_plans;  // the one that finds most first
};

ModelShape mutation_model();  // two dense layers, then experts, dense, experts
// Both plans of a configuration, with and without fusion; equal ones once. Empty where the flags are refused.
std::vector<Subject> subjects_of(const ParallelFlags& flags, const ModelShape& model);
// The configurations that the named faults are tried on: one, two and three axes, with and without exchange.
std::vector<Subject> chosen_subjects();

// How far the fault goes along with what the plan claims beside its steps.
enum class Guise {
  kAsWritten,   // the other steps still claim what they claimed: a fault in one place
  kConsistent,  // every layout of the edge is rewritten to fit the faulty steps: a fault in the planner
  kExecuted,    // no claim is looked at: what is found is found by what the steps do
};
std::string_view name_of(Guise guise);

// Steps are numbered anew, and under kConsistent the claims of edge `edge` are made to fit.
Plan in_guise(Plan mutant, size_t edge, Guise guise);

// What the verifier says of a mutant with the first step plan that finds it; nullopt: proven with all of
// them.
std::optional<Violation> caught(const Subject& subject, const Plan& mutant, Guise guise);

}  // namespace lockstep::planning::test
