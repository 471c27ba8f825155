#pragma once
// From the flags that a user typed to a configuration that every room can trust, before a weight is read.
// Contradictions are errors that print the clashing settings and the nearest settings that work; derived
// values carry their reason; nothing is silently overwritten.
#include <optional>
#include <string>
#include <vector>

#include "lockstep/planning/machine.h"
#include "lockstep/planning/planner.h"
#include "lockstep/planning/step_plan.h"

namespace lockstep::planning {

// As typed; nullopt where nothing was. Names are SGLang's.
struct ParallelFlags {
  std::optional<int> tp_size;            // --tp-size: W, the ranks
  std::optional<int> dp_size;            // --dp-size: D, attention replicas inside W
  bool enable_dp_attention = false;      // --enable-dp-attention
  std::optional<int> ep_size;            // --ep-size: E; the experts' TP width is W / E
  std::optional<int> moe_dense_tp_size;  // --moe-dense-tp-size: N
  bool enable_dp_lm_head = false;        // --enable-dp-lm-head: vocabulary over attention-TP instead of W
  std::optional<std::string> moe_a2a_backend;             // --moe-a2a-backend: none | in_process
  std::optional<int> attn_cp_size, moe_dp_size, pp_size;  // known, and refused above 1
  std::optional<int> max_running_requests;                // of the whole engine
  std::optional<int> chunked_prefill_size;                // prompt rows of one replica and step
  std::vector<std::string> skip_passes;                   // --skip-pass
};

// One resolved value: what, how much, and who said so.
struct Setting {
  std::string flag, value;
  enum class Source : uint8_t { kGiven, kDefault, kDerived } source = Source::kDefault;
  std::string reason;  // for kDerived and kDefault
};

struct Configuration {
  GridShape grid;
  StageOptions stages;
  Capacity capacity;
  int max_running_requests = 0;  // of the whole engine
  int chunked_prefill_size = 0;  // of one replica and step
  std::vector<std::string> skip_passes;
  std::vector<Setting> settings;  // all of the above, for people
};

// Errors name the flag of the first clash in Error::field; the message holds every clash with both settings,
// and up to three command lines that work, nearest first: fewest settings changed, then cheapest decode step
// under the cost model.
Result<Configuration> solve(const ParallelFlags& flags, const ModelShape& model, const Machine& machine);

// The two plans of a configuration, one a regime, each made for its own load.
struct Plans {
  RankGrid grid;
  std::vector<Stage> chain;
  Load decode_load, prefill_load;
  Plan decode, prefill;
  const Plan& of(Regime regime) const { return regime == Regime::kDecode ? decode : prefill; }
};
Result<Plans> make_plans(const Configuration& configuration, const ModelShape& model, const Machine& machine);
uint64_t hash_of(const Plans& plans);

// Runs the verifier over both plans and all probing step plans; layers that repeat others once (verifier.h
// says why that is enough). The error holds the first violation.
Status prove(const Plans& plans, const Capacity& capacity);

std::string to_text(const std::vector<Setting>& settings);
Json to_json(const std::vector<Setting>& settings);

}  // namespace lockstep::planning
