#pragma once
// Worlds to prove: every configuration of a few ranks, and a sample of larger ones. Each is solved, planned
// for every regime and proven, or found to be refused. Pure; whoever calls decides on how many threads.
#include <string>
#include <unordered_set>
#include <vector>

#include "lockstep/planning/configuration.h"

namespace lockstep::planning {

struct LatticeCase {
  ParallelFlags flags;
  std::vector<ModelShape::Ffn> layers;
};
std::string to_text(const LatticeCase& one);

// Every attention width, context-parallel width, experts' width, number of copies, dense width and embedding
// width of 1 to `most` ranks, with and without exchange, the head over all ranks, over a replica and over a
// width of its own (all of them in turn), the shared expert split and whole, and four orders of layers
// (dense, sparse, mixed, alternating), of which the first two with and without drafts, the last with latents.
std::vector<LatticeCase> small_worlds(int most);
// Drawn from the seed: up to `most` ranks.
std::vector<LatticeCase> sampled_worlds(uint64_t seed, int num, int most);

struct CaseResult {
  bool is_refused = false;
  int num_proofs = 0;   // plans under step plans, those that were proven before left out
  std::string failure;  // empty: proven or refused
};
// Of what was proven, in this case or another: plans with all that their proof depends on. Flags that change
// nothing for a model (experts' of one without experts) lead to plans that are the same, and are proven once.
using ProvenPlans = std::unordered_set<uint64_t>;
CaseResult prove_case(const LatticeCase& one, const Machine& machine, ProvenPlans& proven);
CaseResult prove_case(const LatticeCase& one, const Machine& machine);

}  // namespace lockstep::planning
