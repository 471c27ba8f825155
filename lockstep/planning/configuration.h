#pragma once
// From the flags that a user typed to a configuration that every room can trust, before a weight is read.
// Contradictions are errors that print the clashing settings and the nearest settings that work; derived
// values carry their reason; nothing is silently overwritten.
#include <memory>
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
  std::optional<int> ep_size;            // --ep-size: E
  std::optional<int> moe_dense_tp_size;  // --moe-dense-tp-size: N
  bool enable_dp_lm_head = false;        // --enable-dp-lm-head: vocabulary over attention-TP instead of W
  std::optional<int> moe_dp_size;  // --moe-dp-size: M, copies of the experts; their TP width is W / (E * M)
  std::optional<int>
      lm_head_tp_size;  // --lm-head-tp-size: over how many ranks the head's vocabulary is split
  std::optional<int> embedding_tp_size;        // --embedding-tp-size: the same of the embedding
  std::optional<std::string> shared_experts;   // --shared-experts: split | whole
  std::optional<std::string> moe_a2a_backend;  // --moe-a2a-backend: none, or one that exchanges
  std::optional<int> attn_cp_size;         // --attn-cp-size: C, ranks of a replica that share out its rows
  std::optional<std::string> cp_strategy;  // --cp-strategy: zigzag | contiguous
  std::optional<int> pp_size;              // known, and refused above 1
  std::optional<std::string> speculative_algorithm;  // --speculative-algorithm: NEXTN | EAGLE
  std::optional<int> speculative_num_steps;          // drafts of a request and step
  std::optional<int> speculative_num_draft_tokens;   // rows that verify them: one more
  std::optional<int> speculative_eagle_topk;         // known, and refused above 1
  std::optional<int> max_running_requests;           // of the whole engine
  std::optional<int> chunked_prefill_size;           // prompt rows of one replica and step
  std::vector<std::string> skip_passes;              // --disable-pass
};

// One resolved value: what, how much, and who said so.
struct Setting {
  std::string flag, value;
  enum class Source : uint8_t { kGiven, kDefault, kDerived } source = Source::kDefault;
  std::string reason;  // for kDerived and kDefault
};

struct Configuration {
  ParallelFlags flags;  // as typed
  GridShape grid;
  StageOptions stages;
  Capacity capacity;
  int max_running_requests = 0;  // of the whole engine
  int chunked_prefill_size = 0;  // of one replica and step
  int num_drafts = 0;            // of a request and step; 0: nothing drafts
  std::vector<std::string> skip_passes;
  std::vector<Setting> settings;  // all of the above, for people
};

// Errors name the flag of the first clash in Error::field; the message holds every clash with both settings,
// and up to three command lines that work, nearest first: fewest settings changed, then cheapest decode step
// under the cost model.
Result<Configuration> solve(const ParallelFlags& flags, const ModelShape& model, const Machine& machine);

// Would solve() accept these? Without the search for what would.
bool works(const ParallelFlags& flags, const ModelShape& model);

// The plans of a configuration, one a regime, each made for its own load.
struct Plans {
  RankGrid grid;
  std::vector<Stage> chain;
  Load decode_load, prefill_load;
  Plan decode, prefill;
  // Made for one row a rank, where latency is all.
  Load decode_small_load = {};
  Plan decode_small = {};
  // Of the module that drafts, by the same grid; none where nothing drafts.
  std::shared_ptr<const Plans> draft = {};
  const Plan& of(Regime regime) const {
    if (regime == Regime::kDecodeSmall) return decode_small;
    return regime == Regime::kDecode ? decode : prefill;
  }
  const Load& load_of(Regime regime) const {
    if (regime == Regime::kDecodeSmall) return decode_small_load;
    return regime == Regime::kDecode ? decode_load : prefill_load;
  }
};
inline constexpr Regime kRegimes[] = {Regime::kDecodeSmall, Regime::kDecode, Regime::kPrefill};

// What the plan of a regime is made for.
Load load_of(Regime regime, const Capacity& capacity, const ModelShape& model);

// kAfterEveryPass: what a pass made is proven before the next one sees it.
enum class Proofs : uint8_t { kNone, kAfterEveryPass };
Result<Plans> make_plans(const Configuration& configuration, const ModelShape& model, const Machine& machine,
                         Proofs proofs = Proofs::kNone);
uint64_t hash_of(const Plans& plans);

// Runs the verifier over all plans and all probing step plans; layers that repeat others once (verifier.h
// says why that is enough). The error holds the first violation.
Status prove(const Plans& plans, const Capacity& capacity);

// The flags that were given, as a command line.
std::string launch_line(const ParallelFlags& flags);

std::string to_text(const std::vector<Setting>& settings);
Json to_json(const std::vector<Setting>& settings);

}  // namespace lockstep::planning
