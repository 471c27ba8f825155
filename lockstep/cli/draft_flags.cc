#include "lockstep/cli/draft_flags.h"

namespace lockstep::cli {

void add_draft_flags(CLI::App& app, planning::ParallelFlags& flags, const std::string& group) {
  app.add_option("--speculative-algorithm", flags.speculative_algorithm,
                 "NEXTN (or EAGLE): the checkpoint's MTP module drafts tokens, which the next step verifies")
      ->group(group);
  app.add_option("--speculative-num-steps", flags.speculative_num_steps,
                 "Drafts of a request and step: 1 to 16, 3 unless given")
      ->group(group);
  app.add_option("--speculative-num-draft-tokens", flags.speculative_num_draft_tokens,
                 "Rows that verify them: one more than --speculative-num-steps")
      ->group(group);
  app.add_option("--speculative-eagle-topk", flags.speculative_eagle_topk, "Branches of a draft: 1 only")
      ->group(group);
}

}  // namespace lockstep::cli
