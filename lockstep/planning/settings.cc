// Configurations in words: settings with their reasons, and flags as a command line.
#include <array>

#include "lockstep/planning/configuration.h"

namespace lockstep::planning {
namespace {

constexpr std::string_view name_of(Setting::Source source) {
  constexpr std::array<std::string_view, 3> kNames = {"given", "default", "derived"};
  return kNames[static_cast<size_t>(source)];
}

}  // namespace

std::string launch_line(const ParallelFlags& flags) {
  std::string line;
  const auto add = [&](std::string_view flag, const auto& value) {
    if (value) line += fmt::format("{}{} {}", line.empty() ? "" : " ", flag, *value);
  };
  const auto add_if = [&](std::string_view flag, bool given) {
    if (given) line += fmt::format("{}{}", line.empty() ? "" : " ", flag);
  };
  add("--tp-size", flags.tp_size);
  add("--dp-size", flags.dp_size);
  add_if("--enable-dp-attention", flags.enable_dp_attention);
  add("--ep-size", flags.ep_size);
  add("--moe-a2a-backend", flags.moe_a2a_backend);
  add("--moe-dense-tp-size", flags.moe_dense_tp_size);
  add_if("--enable-dp-lm-head", flags.enable_dp_lm_head);
  add("--attn-cp-size", flags.attn_cp_size);
  add("--cp-strategy", flags.cp_strategy);
  add("--moe-dp-size", flags.moe_dp_size);
  add("--lm-head-tp-size", flags.lm_head_tp_size);
  add("--embedding-tp-size", flags.embedding_tp_size);
  add("--shared-experts", flags.shared_experts);
  add("--pp-size", flags.pp_size);
  add("--speculative-algorithm", flags.speculative_algorithm);
  add("--speculative-num-steps", flags.speculative_num_steps);
  add("--speculative-num-draft-tokens", flags.speculative_num_draft_tokens);
  add("--speculative-eagle-topk", flags.speculative_eagle_topk);
  for (const std::string& pass : flags.skip_passes) line += " --disable-pass " + pass;
  add("--max-running-requests", flags.max_running_requests);
  add("--chunked-prefill-size", flags.chunked_prefill_size);
  return line;
}

std::string to_text(const std::vector<Setting>& settings) {
  std::string text;
  for (const Setting& setting : settings)
    text += fmt::format("{:<30} {:<12} {:<8} {}\n", setting.flag, setting.value, name_of(setting.source),
                        setting.reason);
  return text;
}

Json to_json(const std::vector<Setting>& settings) {
  Json list = Json::array();
  for (const Setting& setting : settings)
    list.push_back({{"setting", setting.flag},
                    {"value", setting.value},
                    {"source", name_of(setting.source)},
                    {"reason", setting.reason}});
  return list;
}

}  // namespace lockstep::planning
