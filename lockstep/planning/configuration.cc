#include "lockstep/planning/configuration.h"

#include <algorithm>
#include <tuple>

#include "lockstep/planning/divisors.h"

namespace lockstep::planning {
namespace {

constexpr int kDefaultMaxRunning = 64, kDefaultChunk = 512, kMaxRanks = 1024;
constexpr int kDefaultDrafts = 3, kMaxDrafts = 16;

std::optional<ExchangeBackend> backend_named(std::string_view name) {
  for (const ExchangeBackend backend : kExchangeBackends)
    if (planning::name_of(backend) == name) return backend;
  return std::nullopt;
}

// The flags with their defaults filled in: what the checks look at and what the search for neighbours varies.
struct Choice {
  int ranks = 1, dp = 1, ep = 1, dense = 1, moe_dp = 1;
  int cp = 1;
  int head = 0, embedding = 1;  // head 0: all ranks, or a replica's
  bool dp_attention = false, dp_head = false;
  std::string exchange = "none", shared = "split";
  auto operator<=>(const Choice&) const = default;
  int attention_tp() const { return dp_attention ? ranks / dp : ranks; }
  int expert_tp() const { return ranks / (ep * moe_dp); }
  GridShape grid() const {
    return {.num_ranks = ranks,
            .attention_tp = attention_tp(),
            .expert_tp = expert_tp(),
            .dense_tp = dense,
            .moe_dp = moe_dp,
            .head_tp = head,
            .embedding_tp = embedding,
            .attn_cp = cp};
  }
  StageOptions stages() const {
    const HeadSplit split = head > 0  ? HeadSplit::kOwnWidth
                            : dp_head ? HeadSplit::kAttentionTp
                                      : HeadSplit::kAllRanks;
    return {.exchange = backend_named(exchange).value_or(ExchangeBackend::kNone),
            .head = split,
            .shared = shared == "whole" ? SharedExpert::kAtHome : SharedExpert::kSplit};
  }
};

struct Clash {
  std::string flag;          // that the error is about
  std::string says;          // both settings and why they clash
  std::string instead = {};  // what the nearest settings say of a flag that no Choice holds
};

// Values that no engine could have are taken as the nearest that one could, so that there are neighbours.
Choice choice_of(const ParallelFlags& flags) {
  const auto width = [](std::optional<int> given, int otherwise) {
    return std::clamp(given.value_or(otherwise), 1, kMaxRanks);
  };
  const int ranks = width(flags.tp_size, 1);
  return {.ranks = ranks,
          .dp = width(flags.dp_size, 1),
          .ep = width(flags.ep_size, 1),
          .dense = width(flags.moe_dense_tp_size, ranks),
          .moe_dp = width(flags.moe_dp_size, 1),
          .cp = width(flags.attn_cp_size, 1),
          .head = flags.lm_head_tp_size ? width(flags.lm_head_tp_size, ranks) : 0,
          .embedding = width(flags.embedding_tp_size, 1),
          .dp_attention = flags.enable_dp_attention,
          .dp_head = flags.enable_dp_lm_head,
          .exchange = flags.moe_a2a_backend.value_or("none"),
          .shared = flags.shared_experts.value_or("split")};
}

std::vector<Clash> out_of_range(const ParallelFlags& flags) {
  std::vector<Clash> clashes;
  struct Bound {
    const char* flag;
    std::optional<int> value;
    int most;
    bool is_of_grid;
  };
  const Bound bounds[] = {{"--tp-size", flags.tp_size, kMaxRanks, true},
                          {"--dp-size", flags.dp_size, kMaxRanks, true},
                          {"--ep-size", flags.ep_size, kMaxRanks, true},
                          {"--moe-dense-tp-size", flags.moe_dense_tp_size, kMaxRanks, true},
                          {"--moe-dp-size", flags.moe_dp_size, kMaxRanks, true},
                          {"--attn-cp-size", flags.attn_cp_size, kMaxRanks, true},
                          {"--lm-head-tp-size", flags.lm_head_tp_size, kMaxRanks, true},
                          {"--embedding-tp-size", flags.embedding_tp_size, kMaxRanks, true},
                          {"--max-running-requests", flags.max_running_requests, 1 << 20, false},
                          {"--chunked-prefill-size", flags.chunked_prefill_size, 1 << 20, false}};
  for (const Bound& bound : bounds)
    if (bound.value && (*bound.value < 1 || *bound.value > bound.most))
      clashes.push_back(
          {bound.flag, fmt::format("{} {} is not between 1 and {}", bound.flag, *bound.value, bound.most),
           bound.is_of_grid ? "" : fmt::format(" {} {}", bound.flag, *bound.value < 1 ? 1 : bound.most)});
  const Bound later[] = {{"--pp-size", flags.pp_size, 1, false}};
  for (const Bound& bound : later)
    if (bound.value && *bound.value != 1)
      clashes.push_back({bound.flag,
                         fmt::format("{} {} is not supported: this engine runs with {} 1 only", bound.flag,
                                     *bound.value, bound.flag),
                         fmt::format(" {} 1", bound.flag)});
  return clashes;
}

// Drafts of a request and step; 0 where nothing drafts.
int num_drafts(const ParallelFlags& flags) {
  if (!flags.speculative_algorithm) return 0;
  if (flags.speculative_num_steps) return *flags.speculative_num_steps;
  return flags.speculative_num_draft_tokens ? std::max(*flags.speculative_num_draft_tokens, 0) - 1
                                            : kDefaultDrafts;
}

std::vector<Clash> draft_clashes(const ParallelFlags& flags, const ModelShape& model) {
  std::vector<Clash> clashes;
  const auto& algorithm = flags.speculative_algorithm;
  const auto clash = [&](const char* flag, std::string says) { clashes.push_back({flag, std::move(says)}); };
  struct Given {
    const char* flag;
    std::optional<int> value;
  };
  for (const Given& given : {Given{"--speculative-num-steps", flags.speculative_num_steps},
                             Given{"--speculative-num-draft-tokens", flags.speculative_num_draft_tokens},
                             Given{"--speculative-eagle-topk", flags.speculative_eagle_topk}})
    if (given.value && !algorithm)
      clash(given.flag,
            fmt::format("{} {} says how to draft, and nothing drafts without --speculative-algorithm NEXTN",
                        given.flag, *given.value));
  if (!algorithm) return clashes;
  const std::string given = fmt::format("--speculative-algorithm {}", *algorithm);
  const bool is_known = *algorithm == "NEXTN" || *algorithm == "EAGLE";
  const bool can_draft = model.no_drafts_because.empty() && !model.draft_layers.empty();
  if (!is_known)
    clash("--speculative-algorithm",
          given + " is not known; NEXTN and its other name EAGLE draft with the checkpoint's own MTP module");
  if (is_known && !can_draft)
    clash("--speculative-algorithm",
          fmt::format("{} but {}: leave it out", given,
                      model.no_drafts_because.empty()
                          ? "the model has no MTP module (config.json: num_nextn_predict_layers)"
                          : model.no_drafts_because));
  const int drafts = num_drafts(flags), rows = flags.speculative_num_draft_tokens.value_or(drafts + 1);
  if (drafts < 1 || drafts > kMaxDrafts)
    flags.speculative_num_steps
        ? clash("--speculative-num-steps",
                fmt::format("--speculative-num-steps {} is not between 1 and {}", drafts, kMaxDrafts))
        : clash("--speculative-num-draft-tokens",
                fmt::format("--speculative-num-draft-tokens {} is not between 2 and {}: a step verifies the "
                            "drafts and one row more",
                            rows, kMaxDrafts + 1));
  else if (rows != drafts + 1)
    clash(
        "--speculative-num-draft-tokens",
        fmt::format("--speculative-num-draft-tokens {} and --speculative-num-steps {} contradict each other: "
                    "one draft a step is verified, and one row more",
                    rows, drafts));
  if (flags.speculative_eagle_topk.value_or(1) != 1)
    clash("--speculative-eagle-topk",
          fmt::format("--speculative-eagle-topk {} is not supported: drafts are a chain, not a tree",
                      *flags.speculative_eagle_topk));
  if (is_known && can_draft && !clashes.empty())
    clashes.front().instead =
        fmt::format(" {} --speculative-num-steps {}", given, std::clamp(drafts, 1, kMaxDrafts));
  return clashes;
}

RowShares row_shares_of(const ParallelFlags& flags, const ModelShape& model, int context_ranks) {
  if (context_ranks == 1 || flags.cp_strategy == "contiguous") return RowShares::kContiguous;
  return model.rows_in_order_because.empty() ? RowShares::kZigzag : RowShares::kContiguous;
}

std::vector<Clash> cp_strategy_clashes(const ParallelFlags& flags, const ModelShape& model) {
  if (!flags.cp_strategy || flags.cp_strategy == "contiguous") return {};
  if (*flags.cp_strategy != "zigzag")
    return {{"--cp-strategy",
             fmt::format("--cp-strategy {} is not known; it is: zigzag, contiguous", *flags.cp_strategy)}};
  const std::string& because = model.rows_in_order_because;
  if (because.empty()) return {};
  return {
      {"--cp-strategy", fmt::format("--cp-strategy zigzag but {}", because), " --cp-strategy contiguous"}};
}

std::optional<Clash> not_dividing(const char* flag, int value, int ranks) {
  if (ranks % value == 0) return std::nullopt;
  return Clash{flag, fmt::format("{} {} does not divide --tp-size {}", flag, value, ranks)};
}

std::optional<Clash> attention_clash(const Choice& choice) {
  if (choice.dp > 1 && !choice.dp_attention)
    return Clash{"--dp-size",
                 fmt::format("--dp-size {} without --enable-dp-attention means {} whole engines of {} ranks "
                             "behind one API, which this engine does not start: run {} of them behind a "
                             "router, or add --enable-dp-attention",
                             choice.dp, choice.dp, choice.ranks, choice.dp)};
  if (auto clash = not_dividing("--dp-size", choice.dp, choice.ranks)) return clash;
  if (choice.attention_tp() % choice.cp != 0)
    return Clash{
        "--attn-cp-size",
        fmt::format("--attn-cp-size {} does not divide the {} ranks of a replica (--tp-size {} / --dp-size "
                    "{})",
                    choice.cp, choice.attention_tp(), choice.ranks, choice.dp)};
  if (choice.dp_head && !choice.dp_attention)
    return Clash{"--enable-dp-lm-head",
                 "--enable-dp-lm-head splits the vocabulary over the attention-TP ranks of a "
                 "replica, but without --enable-dp-attention there is one replica of all ranks"};
  if (choice.dp_head && choice.head > 0)
    return Clash{"--lm-head-tp-size",
                 fmt::format("--lm-head-tp-size {} and --enable-dp-lm-head both say over which ranks the "
                             "vocabulary is split: leave one out",
                             choice.head)};
  return std::nullopt;
}

std::optional<Clash> expert_clash(const Choice& choice, const ModelShape& model) {
  if (auto clash = not_dividing("--ep-size", choice.ep, choice.ranks)) return clash;
  if (auto clash = not_dividing("--moe-dp-size", choice.moe_dp, choice.ranks)) return clash;
  if (choice.ranks % (choice.ep * choice.moe_dp) != 0)
    return Clash{"--moe-dp-size",
                 fmt::format("--ep-size {} times --moe-dp-size {} does not divide --tp-size {}", choice.ep,
                             choice.moe_dp, choice.ranks)};
  if (choice.moe_dp > 1 && model.num_experts == 0)
    return Clash{"--moe-dp-size",
                 fmt::format("--moe-dp-size {} but the model has no experts", choice.moe_dp)};
  if (choice.shared != "split" && choice.shared != "whole")
    return Clash{"--shared-experts",
                 fmt::format("--shared-experts {} is not known; it is: split, whole", choice.shared)};
  if (!backend_named(choice.exchange)) {
    std::string known;
    for (const ExchangeBackend backend : kExchangeBackends)
      known += (known.empty() ? "" : ", ") + std::string(planning::name_of(backend));
    return Clash{"--moe-a2a-backend", fmt::format("--moe-a2a-backend {} is not known; the backends are: {}",
                                                  choice.exchange, known)};
  }
  if (choice.ep > 1 && model.num_experts == 0)
    return Clash{"--ep-size", fmt::format("--ep-size {} but the model has no experts", choice.ep)};
  if (choice.ep > std::max(1, model.num_experts))
    return Clash{"--ep-size", fmt::format("--ep-size {} is more than the model's {} experts", choice.ep,
                                          model.num_experts)};
  if (choice.exchange != "none" && choice.ep == 1)
    return Clash{
        "--moe-a2a-backend",
        fmt::format("--moe-a2a-backend {} has nothing to exchange with --ep-size 1", choice.exchange)};
  return std::nullopt;
}

// Do the widths have a common refinement? Prints the two flags that clash, not the roles.
std::optional<Clash> nesting_clash(const Choice& choice) {
  struct Width {
    const char* flag;
    int value;
  };
  const Width widths[] = {{"--dp-size", choice.attention_tp()},
                          {"--attn-cp-size", choice.attention_tp() / choice.cp},
                          {"--ep-size", choice.expert_tp()},
                          {"--moe-dp-size", choice.ranks / choice.moe_dp},
                          {"--moe-dense-tp-size", choice.dense},
                          {"--lm-head-tp-size", choice.head > 0 ? choice.head : choice.ranks},
                          {"--embedding-tp-size", choice.embedding}};
  const auto setting = [&](const Width& width) {
    const std::string_view flag = width.flag;
    if (flag == "--dp-size")
      return fmt::format("--dp-size {} (attention-TP width {})", choice.dp, width.value);
    if (flag == "--ep-size")
      return fmt::format("--ep-size {} (experts' TP width {})", choice.ep, width.value);
    if (flag == "--attn-cp-size")
      return fmt::format("--attn-cp-size {} (heads split over {} ranks)", choice.cp, width.value);
    if (flag == "--moe-dp-size")
      return fmt::format("--moe-dp-size {} ({} ranks a copy)", choice.moe_dp, width.value);
    return fmt::format("{} {}", flag, width.value);
  };
  for (const Width& a : widths)
    for (const Width& b : widths)
      if (a.value < b.value && b.value % a.value != 0)
        return Clash{b.flag, fmt::format("{} and {} do not nest on {} ranks: {} does not divide {}",
                                         setting(b), setting(a), choice.ranks, a.value, b.value)};
  return std::nullopt;
}

// Every rule that a choice breaks. Whether widths nest is asked only of widths that divide.
std::vector<Clash> clashes_of(const Choice& choice, const ModelShape& model) {
  std::vector<Clash> clashes;
  for (auto& clash : {attention_clash(choice), expert_clash(choice, model),
                      not_dividing("--moe-dense-tp-size", choice.dense, choice.ranks),
                      not_dividing("--lm-head-tp-size", std::max(1, choice.head), choice.ranks),
                      not_dividing("--embedding-tp-size", choice.embedding, choice.ranks)})
    if (clash) clashes.push_back(*clash);
  if (clashes.empty())
    if (auto clash = nesting_clash(choice)) clashes.push_back(*std::move(clash));
  return clashes;
}

int num_changes(const Choice& a, const Choice& b) {
  return (a.ranks != b.ranks) + (a.dp != b.dp) + (a.ep != b.ep) + (a.dense != b.dense) +
         (a.dp_attention != b.dp_attention) + (a.dp_head != b.dp_head) + (a.exchange != b.exchange) +
         (a.moe_dp != b.moe_dp) + (a.cp != b.cp) + (a.head != b.head) + (a.embedding != b.embedding) +
         (a.shared != b.shared);
}

// As flags that are all given, for a launch line.
ParallelFlags flags_of(const Choice& choice) {
  ParallelFlags flags{.tp_size = choice.ranks,
                      .enable_dp_attention = choice.dp_attention,
                      .ep_size = choice.ep,
                      .moe_dense_tp_size = choice.dense,
                      .enable_dp_lm_head = choice.dp_head,
                      .moe_a2a_backend = choice.exchange};
  if (choice.dp_attention) flags.dp_size = choice.dp;
  if (choice.cp > 1) flags.attn_cp_size = choice.cp;
  if (choice.moe_dp > 1) flags.moe_dp_size = choice.moe_dp;
  if (choice.head > 0) flags.lm_head_tp_size = choice.head;
  if (choice.embedding > 1) flags.embedding_tp_size = choice.embedding;
  if (choice.shared != "split") flags.shared_experts = choice.shared;
  return flags;
}

bool has_layer(const ModelShape& model, ModelShape::Ffn kind) {
  return std::find(model.layers.begin(), model.layers.end(), kind) != model.layers.end();
}

// Of a step with one row a rank: stages and communication.
double decode_us(const Choice& choice, const ModelShape& model, const Machine& machine) {
  const auto grid = RankGrid::make(choice.grid());
  // One layer of each kind ranks as the whole model does, in a fraction of the time.
  ModelShape probe = model;
  probe.layers.clear();
  for (const auto kind : {ModelShape::Ffn::kDense, ModelShape::Ffn::kExperts})
    if (has_layer(model, kind)) probe.layers.push_back(kind);
  const auto chain = transformer_stages(probe, *grid, choice.stages());
  // One row for every rank, however the ranks are grouped.
  const Load load{.rows_per_replica = choice.attention_tp(),
                  .hidden = model.hidden,
                  .top_k = std::max(1, model.top_k),
                  .vocab = model.vocab,
                  .latent = model.latent_width};
  const auto plan = make_plan(chain, {*grid, machine, load});
  return plan ? total_us(*plan, chain, *grid, machine, load) : 1e30;
}

// Every working choice for the same number of ranks. What few use is kept as wanted or left at its default.
std::vector<Choice> working_choices(const Choice& wanted, const ModelShape& model) {
  const auto unique = [](auto wanted_value, auto otherwise) {
    std::vector<decltype(wanted_value)> values = {wanted_value};
    if (wanted_value != otherwise) values.push_back(otherwise);
    return values;
  };
  std::vector<Choice> found;
  const auto offer = [&](Choice candidate) {
    for (const int moe_dp : unique(wanted.moe_dp, 1))
      for (const int cp : unique(wanted.cp, 1))
        for (const int head : unique(wanted.head, 0))
          for (const int embedding : unique(wanted.embedding, 1))
            for (const std::string& shared : unique(wanted.shared, std::string("split"))) {
              candidate.moe_dp = moe_dp;
              candidate.cp = cp;
              candidate.head = head;
              candidate.embedding = embedding;
              candidate.shared = shared;
              if (clashes_of(candidate, model).empty()) found.push_back(candidate);
            }
  };
  for (const int dp : divisors(wanted.ranks))
    for (const int ep : divisors(wanted.ranks))
      for (const int dense : divisors(wanted.ranks))
        for (const bool dp_head : {false, true})
          for (const std::string& exchange :
               unique(wanted.exchange, std::string(wanted.exchange == "none" ? "in_process" : "none")))
            offer({.ranks = wanted.ranks,
                   .dp = dp,
                   .ep = ep,
                   .dense = dense,
                   .dp_attention = dp > 1 || wanted.dp_attention,
                   .dp_head = dp_head,
                   .exchange = exchange});
  return found;
}

std::vector<std::string> nearest(const Choice& wanted, const ModelShape& model, const Machine& machine) {
  constexpr size_t kShown = 3, kPriced = 24;
  std::vector<Choice> found = working_choices(wanted, model);
  // Fewest changes first; among those the values closest to what was asked; only the front is priced.
  const auto distance = [&](const Choice& c) {
    return std::make_tuple(num_changes(wanted, c), std::abs(c.dp - wanted.dp) + std::abs(c.ep - wanted.ep) +
                                                       std::abs(c.dense - wanted.dense));
  };
  std::sort(found.begin(), found.end(), [&](const Choice& a, const Choice& b) {
    return std::make_pair(distance(a), a) < std::make_pair(distance(b), b);
  });
  if (found.size() > kPriced) found.resize(kPriced);
  std::vector<std::tuple<int, double, std::string>> ranked;
  for (const Choice& c : found)
    ranked.emplace_back(num_changes(wanted, c), decode_us(c, model, machine), launch_line(flags_of(c)));
  std::sort(ranked.begin(), ranked.end());
  if (ranked.size() > kShown) ranked.resize(kShown);
  std::vector<std::string> commands;
  for (const auto& entry : ranked) commands.push_back(std::get<2>(entry));
  return commands;
}

Error clash_error(const std::vector<Clash>& clashes, const Choice& wanted, const ModelShape& model,
                  const Machine& machine) {
  std::string message, instead;
  for (const Clash& clash : clashes) {
    message += (message.empty() ? "" : "; ") + clash.says;
    instead += clash.instead;
  }
  const auto commands = nearest(wanted, model, machine);
  if (!commands.empty()) message += ". Nearest settings that work:";
  for (const std::string& command : commands) message += "\n  " + command + instead;
  return {ErrorCode::kInvalidArgument, message, clashes.front().flag};
}

class SettingsTable {
 public:
  // `idle` says why a setting that was given changes nothing; empty where it does.
  void given_or_default(const char* flag, bool given, const auto& value, std::string reason,
                        std::string idle = "") {
    add(flag, fmt::format("{}", value), given ? Setting::Source::kGiven : Setting::Source::kDefault,
        given ? std::move(idle) : std::move(reason));
  }
  void derived(const char* name, const auto& value, std::string reason) {
    add(name, fmt::format("{}", value), Setting::Source::kDerived, std::move(reason));
  }
  std::vector<Setting> take() { return std::move(settings_); }

 private:
  void add(const char* flag, std::string value, Setting::Source source, std::string reason) {
    settings_.push_back({flag, std::move(value), source, std::move(reason)});
  }
  std::vector<Setting> settings_;
};

// Where the split of a quantized weight runs through blocks that share a factor.
void add_quant_blocks(SettingsTable& table, const Configuration& solved, const ModelShape& model,
                      const Choice& choice) {
  if (model.quant_block <= 1) return;
  const RankGrid grid = RankGrid::make(solved.grid).value();  // the widths nest: no clash was found
  const WeightSplits splits = weight_splits(grid, solved.stages);
  std::string cuts;
  const auto look = [&](std::string_view what, bool is_there, int width, AxisSet split) {
    const int parts = grid.size(split);
    if (!is_there || width == 0 || (width % parts == 0 && width / parts % model.quant_block == 0) ||
        parts == 1)
      return;
    cuts += fmt::format("{}{} of {} over {} ranks", cuts.empty() ? "" : ", ", what, width, parts);
  };
  look("dense width", has_layer(model, ModelShape::Ffn::kDense), model.dense_inter, splits.dense);
  look("expert width", model.num_experts > 0, model.expert_inter, splits.expert_tp);
  look("shared expert's width", model.num_experts > 0, model.shared_inter, splits.shared);
  std::string reason = "no width is cut inside a block";
  if (!cuts.empty()) {
    reason =
        fmt::format("{} is cut inside blocks: ranks keep the factors of every block that they touch", cuts);
    if (choice.ep < choice.ranks && model.num_experts >= choice.ranks)
      reason += fmt::format("; --ep-size {} cuts no expert", choice.ranks);
  }
  table.derived("quantized weights' block", model.quant_block, std::move(reason));
}

Configuration configuration_of(const ParallelFlags& flags, const Choice& choice, const ModelShape& model) {
  Configuration solved;
  solved.flags = flags;
  solved.grid = choice.grid();
  solved.grid.row_shares = row_shares_of(flags, model, choice.cp);
  solved.stages = choice.stages();
  solved.skip_passes = flags.skip_passes;
  solved.max_running_requests = flags.max_running_requests.value_or(kDefaultMaxRunning);
  solved.chunked_prefill_size = flags.chunked_prefill_size.value_or(kDefaultChunk);
  const int replicas = choice.dp_attention ? choice.dp : 1;
  const int quantum = choice.attention_tp();
  solved.num_drafts = num_drafts(flags);
  solved.stages.drafting = solved.num_drafts > 0 ? Drafting::kMtp : Drafting::kOff;
  Capacity& capacity = solved.capacity;
  capacity.max_requests = (solved.max_running_requests + replicas - 1) / replicas;
  const int decode_rows = capacity.max_requests * (1 + solved.num_drafts);
  capacity.max_decode_rows = round_up(decode_rows, quantum);
  capacity.max_rows = round_up(decode_rows + solved.chunked_prefill_size, quantum);
  // One row a rank: where a step is that small, latency is all that is paid.
  capacity.max_small_decode_rows = capacity.max_decode_rows > quantum ? quantum : 0;
  capacity.max_logit_rows = decode_rows + std::min(solved.chunked_prefill_size, 128);

  SettingsTable table;
  table.given_or_default("--tp-size", flags.tp_size.has_value(), choice.ranks, "one rank");
  table.given_or_default("--dp-size", flags.dp_size.has_value(), choice.dp, "one attention replica");
  table.given_or_default("--enable-dp-attention", flags.enable_dp_attention, choice.dp_attention,
                         "one replica over all ranks", replicas > 1 ? "" : "no effect with --dp-size 1");
  table.given_or_default("--ep-size", flags.ep_size.has_value(), choice.ep, "experts are split, not spread");
  table.given_or_default("--moe-a2a-backend", flags.moe_a2a_backend.has_value(), choice.exchange,
                         "gather and reduce");
  table.given_or_default("--moe-dense-tp-size", flags.moe_dense_tp_size.has_value(), choice.dense,
                         "all ranks",
                         has_layer(model, ModelShape::Ffn::kDense) ? "" : "no effect: no dense layers");
  table.given_or_default("--attn-cp-size", flags.attn_cp_size.has_value(), choice.cp,
                         "a replica's rows are not shared out");
  const std::string& in_order = model.rows_in_order_because;
  table.given_or_default("--cp-strategy", flags.cp_strategy.has_value(), name_of(solved.grid.row_shares),
                         choice.cp == 1     ? "there are no shares"
                         : in_order.empty() ? "of a prompt each rank has an early run and a late one"
                                            : in_order,
                         choice.cp > 1 ? "" : "no effect with --attn-cp-size 1");
  table.given_or_default("--moe-dp-size", flags.moe_dp_size.has_value(), choice.moe_dp,
                         "one copy of the experts");
  table.given_or_default("--shared-experts", flags.shared_experts.has_value(), choice.shared,
                         "split over the ranks that owe the experts' sum",
                         model.shared_inter > 0 ? "" : "no effect: no shared experts");
  table.given_or_default("--embedding-tp-size", flags.embedding_tp_size.has_value(), choice.embedding,
                         "whole on every rank");
  table.given_or_default("--lm-head-tp-size", flags.lm_head_tp_size.has_value(),
                         choice.head > 0  ? choice.head
                         : choice.dp_head ? quantum
                                          : choice.ranks,
                         choice.dp_head ? "a replica's ranks, by --enable-dp-lm-head" : "all ranks");
  table.given_or_default("--enable-dp-lm-head", flags.enable_dp_lm_head, choice.dp_head,
                         "the vocabulary is split over all ranks",
                         replicas > 1 ? "" : "no effect with --dp-size 1: a replica has all ranks");
  table.given_or_default("--speculative-algorithm", flags.speculative_algorithm.has_value(),
                         flags.speculative_algorithm.value_or("none"), "nothing drafts");
  if (solved.num_drafts > 0) {
    table.given_or_default("--speculative-num-steps", flags.speculative_num_steps.has_value(),
                           solved.num_drafts,
                           flags.speculative_num_draft_tokens ? "one less than --speculative-num-draft-tokens"
                                                              : "drafts of a request and step");
    table.derived("rows that verify drafts", solved.num_drafts + 1, "a request and step");
  }
  table.given_or_default("--max-running-requests", flags.max_running_requests.has_value(),
                         solved.max_running_requests, "of the whole engine");
  table.given_or_default("--chunked-prefill-size", flags.chunked_prefill_size.has_value(),
                         solved.chunked_prefill_size, "of one replica and step");
  table.derived("attention TP width", quantum / choice.cp,
                choice.cp == 1
                    ? fmt::format("{} ranks / {} replicas; also the row quantum", choice.ranks, replicas)
                    : fmt::format("{} ranks / ({} replicas * --attn-cp-size {}); the row quantum is {}",
                                  choice.ranks, replicas, choice.cp, quantum));
  table.derived("experts' TP width", choice.expert_tp(),
                choice.moe_dp == 1 ? fmt::format("{} ranks / --ep-size {}", choice.ranks, choice.ep)
                                   : fmt::format("{} ranks / (--ep-size {} * --moe-dp-size {})", choice.ranks,
                                                 choice.ep, choice.moe_dp));
  table.derived("running requests a replica", capacity.max_requests,
                fmt::format("{} over {} replicas, rounded up", solved.max_running_requests, replicas));
  table.derived("rows a replica and step", capacity.max_rows,
                fmt::format("{} decode rows + {} prompt rows, rounded up to {}", decode_rows,
                            solved.chunked_prefill_size, quantum));
  table.derived("logit rows a replica and step", capacity.max_logit_rows,
                solved.num_drafts > 0 ? fmt::format("{} a running request and up to 128 of scored prompts",
                                                    1 + solved.num_drafts)
                                      : "one a running request and up to 128 of scored prompts");
  add_quant_blocks(table, solved, model, choice);
  solved.settings = table.take();
  return solved;
}

}  // namespace

bool works(const ParallelFlags& flags, const ModelShape& model) {
  return out_of_range(flags).empty() && draft_clashes(flags, model).empty() &&
         cp_strategy_clashes(flags, model).empty() && clashes_of(choice_of(flags), model).empty();
}

Result<Configuration> solve(const ParallelFlags& flags, const ModelShape& model, const Machine& machine) {
  const Choice choice = choice_of(flags);
  std::vector<Clash> clashes = out_of_range(flags);
  const bool in_range =
      std::none_of(clashes.begin(), clashes.end(), [](const Clash& clash) { return clash.instead.empty(); });
  // The choice stands for what was typed only where every width of the grid is one that could be.
  if (in_range)
    for (Clash& clash : clashes_of(choice, model)) clashes.push_back(std::move(clash));
  for (Clash& clash : draft_clashes(flags, model)) clashes.push_back(std::move(clash));
  for (Clash& clash : cp_strategy_clashes(flags, model)) clashes.push_back(std::move(clash));
  if (!clashes.empty()) return clash_error(clashes, choice, model, machine);
  return configuration_of(flags, choice, model);
}

}  // namespace lockstep::planning
