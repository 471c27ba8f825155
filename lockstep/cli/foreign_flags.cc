#include "lockstep/cli/foreign_flags.h"

#include <fmt/format.h>

namespace lockstep::cli {
namespace {

struct Foreign {
  std::string_view flag, instead;
};

constexpr std::string_view kPlanned =
    "the plan decides it from the layouts; `lockstep plan --explain` shows what it chose, --disable-pass "
    "leaves "
    "a rewrite out";
constexpr std::string_view kExchange =
    "--moe-a2a-backend in_process; what it exchanges is sized from admission limits";
constexpr std::string_view kAttentionTp =
    "--moe-dense-tp-size with the attention-TP width (tp-size / dp-size)";
constexpr std::string_view kNoGraphs =
    "--disable-cuda-graph, or nothing: with --device cuda a step that decodes on one rank is recorded when "
    "its "
    "shape first comes, whatever the batch";
constexpr std::string_view kTransport = "nothing: the backend that carries the rows has no such switch";
constexpr std::string_view kOneEngine = "one engine for prefill and decode";
constexpr std::string_view kBalanced = "nothing: experts are placed once, in order";
constexpr std::string_view kNoDrafts =
    "--speculative-algorithm NEXTN, which drafts with the checkpoint's own MTP module, by the target's plan";
constexpr std::string_view kKernels = "nothing: kernels are chosen by --device and what the processor has";
constexpr std::string_view kScheduler = "--max-running-requests and --chunked-prefill-size";

constexpr Foreign kForeign[] = {
    {"--enable-dp-attention-local-control-broadcast", "nothing: all ranks read one step plan"},
    {"--enable-tp-lm-head-all-to-all", "nothing: the plan takes the logits from columns to rows at once"},
    {"--no-enable-tp-lm-head-all-to-all", "nothing: the plan takes the logits from columns to rows at once"},
    {"--enable-prefill-cp", "--attn-cp-size, which does it wherever it is cheaper"},
    {"--dcp-size", "--dp-size with --enable-dp-attention, which splits the cache by requests"},
    {"--dcp-comm-backend", "--dp-size with --enable-dp-attention"},
    {"--dcp-replicate-q-proj", "--dp-size with --enable-dp-attention"},
    {"--dwdp-size", "--ep-size, which moves tokens to weights"},
    {"--enable-dense-mlp-attn-tp", kAttentionTp},
    {"--enable-shared-experts-attn-tp", "--shared-experts split or whole"},
    {"--enable-attn-tp-input-scattered",
     "nothing: the plan gathers latents in place of rows wherever that is cheaper"},
    {"--enable-layernorm-sp", kPlanned},
    {"--disable-attn-tp-gather", kPlanned},
    {"--boundary-reduction", kPlanned},
    {"--flashinfer-allreduce-fusion-backend", kPlanned},
    {"--enable-flashinfer-allreduce-fusion", kPlanned},
    {"--enforce-disable-flashinfer-allreduce-fusion", "--disable-pass fuse_all_reduce_add_norm"},
    {"--enable-aiter-allreduce-fusion", kPlanned},
    {"--enable-deepep-moe", kExchange},
    {"--deepep-mode", "nothing: the protocol is a field of every step plan"},
    {"--deepep-config", kExchange},
    {"--deepep-dispatcher-output-dtype", kExchange},
    {"--deepep-v2-mode", kExchange},
    {"--flashinfer-a2a-dispatch-type", kExchange},
    {"--moe-runner-backend", kKernels},
    {"--attention-backend", kKernels},
    {"--prefill-attention-backend", kKernels},
    {"--decode-attention-backend", kKernels},
    {"--sampling-backend", kKernels},
    {"--fp8-gemm-backend", kKernels},
    {"--trust-remote-code", "nothing: no code of a checkpoint is run"},
    {"--dtype",
     "nothing: weights stay as they are stored; --quantization and --kv-cache-dtype choose others"},
    {"--enable-two-batch-overlap", "nothing: a step is one batch"},
    {"--tbo-token-distribution-threshold", "nothing: a step is one batch"},
    {"--enable-single-batch-overlap", "nothing: steps run in the plan's order"},
    {"--enable-eplb", kBalanced},
    {"--eplb-algorithm", kBalanced},
    {"--eplb-rebalance-num-iterations", kBalanced},
    {"--eplb-rebalance-layers-per-chunk", kBalanced},
    {"--eplb-min-rebalancing-utilization-threshold", kBalanced},
    {"--ep-num-redundant-experts", "--moe-dp-size, which makes copies of all experts"},
    {"--ep-dispatch-algorithm", kBalanced},
    {"--init-expert-location", kBalanced},
    {"--expert-distribution-recorder-mode", kBalanced},
    {"--expert-balancedness-report-mode", kBalanced},
    {"--enable-waterfill", "--shared-experts split or whole"},
    {"--elastic-ep-backend", "a restart with another --ep-size"},
    {"--elastic-ep-join-mode", "a restart with another --ep-size"},
    {"--max-ep-size", "--ep-size"},
    {"--load-balance-method", "nothing: requests go to the replica with the least to do"},
    {"--pp-max-micro-batch-size", "--pp-size, which is refused above 1"},
    {"--pp-async-batch-depth", "--pp-size, which is refused above 1"},
    {"--max-prefill-tokens", "--chunked-prefill-size"},
    {"--prefill-max-requests", kScheduler},
    {"--prefill-decode-interval", kScheduler},
    {"--enable-prefill-delayer", kScheduler},
    {"--schedule-conservativeness", kScheduler},
    {"--enable-priority-scheduling", "nothing: requests may have a priority in any case"},
    {"--schedule-low-priority-values-first", "priorities with their signs turned"},
    {"--schedule-policy", "nothing: tenants take turns, and what is cached is found in any case"},
    {"--enable-mixed-chunk", "nothing: prompt and decode rows share steps"},
    {"--cuda-graph-config", kNoGraphs},
    {"--cuda-graph-backend-decode", kNoGraphs},
    {"--cuda-graph-backend-prefill", kNoGraphs},
    {"--cuda-graph-max-bs", kNoGraphs},
    {"--cuda-graph-bs", kNoGraphs},
    {"--cuda-graph-max-bs-decode", kNoGraphs},
    {"--cuda-graph-max-bs-prefill", kNoGraphs},
    {"--cuda-graph-bs-decode", kNoGraphs},
    {"--cuda-graph-bs-prefill", kNoGraphs},
    {"--disable-decode-cuda-graph", kNoGraphs},
    {"--disable-prefill-cuda-graph", kNoGraphs},
    {"--disable-cuda-graph-padding", kNoGraphs},
    {"--speculative-draft-model-path", kNoDrafts},
    {"--speculative-draft-model", kNoDrafts},
    {"--speculative-draft-model-revision", kNoDrafts},
    {"--speculative-token-map", kNoDrafts},
    {"--speculative-accept-threshold-single", "nothing: a draft is accepted where the model draws the same"},
    {"--speculative-accept-threshold-acc", "nothing: a draft is accepted where the model draws the same"},
    {"--speculative-moe-runner-backend", kNoDrafts},
    {"--speculative-moe-a2a-backend", kNoDrafts},
    {"--speculative-attention-mode", kNoDrafts},
    {"--speculative-skip-dp-mlp-sync", "nothing: drafts have counts of their own in the step plan"},
    {"--speculative-adaptive", kNoDrafts},
    {"--enable-multi-layer-eagle", kNoDrafts},
    {"--disaggregation-mode", kOneEngine},
    {"--disaggregation-transfer-backend", kOneEngine},
    {"--disaggregation-bootstrap-port", kOneEngine},
    {"--num-reserved-decode-tokens", kOneEngine},
    {"--enable-pd-role-switch", kOneEngine},
    {"--enable-symm-mem", kTransport},
    {"--enable-nccl-nvls", kTransport},
    {"--disable-custom-all-reduce", "--disable-pass fuse_all_reduce_add_norm"},
    {"--enable-mscclpp", kTransport},
    {"--enable-torch-symm-mem", kTransport},
    {"--pre-warm-nccl", "nothing: every start warms up"},
};

}  // namespace

std::optional<std::string_view> instead_of(std::string_view flag) {
  for (const Foreign& foreign : kForeign)
    if (foreign.flag == flag) return foreign.instead;
  return std::nullopt;
}

std::optional<std::string> foreign_flag_in(int argc, const char* const* argv) {
  for (int at = 1; at < argc; ++at) {
    std::string_view word = argv[at];
    word = word.substr(0, word.find('='));
    if (const auto instead = instead_of(word))
      return fmt::format("{} is a flag of SGLang that Lockstep does not have; use instead: {}", word,
                         *instead);
  }
  return std::nullopt;
}

}  // namespace lockstep::cli
