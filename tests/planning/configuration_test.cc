#include "lockstep/planning/configuration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "lockstep/planning/verifier.h"
#include "tests/planning/lattice.h"

namespace lockstep::planning::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Result<Configuration> solve_mixed(const ParallelFlags& flags) {
  return solve(flags, mixed_model(), h200_machine());
}

// The command lines of a refusal, read as a shell and the flags' parser would.
std::vector<ParallelFlags> commands_in(const std::string& message) {
  std::vector<ParallelFlags> commands;
  std::istringstream lines(message);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("  --", 0) != 0) continue;
    std::istringstream words(line);
    ParallelFlags flags;
    const std::map<std::string, std::optional<int>*> numbers = {
        {"--tp-size", &flags.tp_size},
        {"--dp-size", &flags.dp_size},
        {"--ep-size", &flags.ep_size},
        {"--moe-dense-tp-size", &flags.moe_dense_tp_size},
        {"--attn-cp-size", &flags.attn_cp_size},
        {"--moe-dp-size", &flags.moe_dp_size},
        {"--lm-head-tp-size", &flags.lm_head_tp_size},
        {"--embedding-tp-size", &flags.embedding_tp_size},
        {"--pp-size", &flags.pp_size},
        {"--speculative-num-steps", &flags.speculative_num_steps},
        {"--speculative-num-draft-tokens", &flags.speculative_num_draft_tokens},
        {"--speculative-eagle-topk", &flags.speculative_eagle_topk},
        {"--max-running-requests", &flags.max_running_requests},
        {"--chunked-prefill-size", &flags.chunked_prefill_size}};
    for (std::string word; words >> word;) {
      if (word == "--enable-dp-attention") {
        flags.enable_dp_attention = true;
      } else if (word == "--enable-dp-lm-head") {
        flags.enable_dp_lm_head = true;
      } else if (word == "--moe-a2a-backend") {
        words >> flags.moe_a2a_backend.emplace();
      } else if (word == "--speculative-algorithm") {
        words >> flags.speculative_algorithm.emplace();
      } else if (word == "--shared-experts") {
        words >> flags.shared_experts.emplace();
      } else if (numbers.count(word) != 0) {
        words >> numbers.at(word)->emplace();
        EXPECT_FALSE(words.fail()) << line;
      } else {
        ADD_FAILURE() << "not a flag: " << word << " in " << line;
      }
    }
    commands.push_back(flags);
  }
  return commands;
}

struct Refusal {
  ParallelFlags flags;
  std::string field;
  std::vector<std::string> says;
};

const Refusal kRefusals[] = {
    {{.tp_size = 0}, "--tp-size", {"--tp-size 0", "1 and 1024"}},
    {{.tp_size = 4096}, "--tp-size", {"--tp-size 4096", "1 and 1024"}},
    {{.tp_size = 4, .dp_size = -1, .enable_dp_attention = true}, "--dp-size", {"--dp-size -1", "between 1"}},
    {{.tp_size = 4, .ep_size = 0}, "--ep-size", {"--ep-size 0", "between 1"}},
    {{.tp_size = 4, .moe_dense_tp_size = 0}, "--moe-dense-tp-size", {"--moe-dense-tp-size 0", "between 1"}},
    {{.tp_size = 4, .max_running_requests = 0},
     "--max-running-requests",
     {"--max-running-requests 0", "1 and 1048576"}},
    {{.tp_size = 4, .chunked_prefill_size = 1 << 30}, "--chunked-prefill-size", {"1073741824", "1048576"}},
    {{.tp_size = 4, .attn_cp_size = 3}, "--attn-cp-size", {"--attn-cp-size 3", "4 ranks of a replica"}},
    {{.tp_size = 8, .dp_size = 4, .enable_dp_attention = true, .attn_cp_size = 4},
     "--attn-cp-size",
     {"--attn-cp-size 4", "2 ranks of a replica", "--dp-size 4"}},
    {{.tp_size = 12, .moe_dense_tp_size = 2, .attn_cp_size = 4},
     "--attn-cp-size",
     {"--attn-cp-size 4", "split over 3 ranks", "--moe-dense-tp-size 2", "do not nest"}},
    {{.tp_size = 4, .moe_dp_size = 0}, "--moe-dp-size", {"--moe-dp-size 0", "between 1"}},
    {{.tp_size = 4, .moe_dp_size = 3}, "--moe-dp-size", {"--moe-dp-size 3", "--tp-size 4"}},
    {{.tp_size = 8, .ep_size = 4, .moe_dp_size = 4},
     "--moe-dp-size",
     {"--ep-size 4", "--moe-dp-size 4", "--tp-size 8"}},
    {{.tp_size = 12, .dp_size = 3, .enable_dp_attention = true, .ep_size = 6, .moe_dp_size = 2},
     "--moe-dp-size",
     {"--moe-dp-size 2", "6 ranks a copy", "--dp-size 3", "do not nest"}},
    {{.tp_size = 8, .lm_head_tp_size = 3}, "--lm-head-tp-size", {"--lm-head-tp-size 3", "--tp-size 8"}},
    {{.tp_size = 8,
      .dp_size = 2,
      .enable_dp_attention = true,
      .enable_dp_lm_head = true,
      .lm_head_tp_size = 2},
     "--lm-head-tp-size",
     {"--lm-head-tp-size 2", "--enable-dp-lm-head"}},
    {{.tp_size = 12, .dp_size = 3, .enable_dp_attention = true, .lm_head_tp_size = 6},
     "--lm-head-tp-size",
     {"--lm-head-tp-size 6", "--dp-size 3", "do not nest"}},
    {{.tp_size = 8, .embedding_tp_size = 5}, "--embedding-tp-size", {"--embedding-tp-size 5", "--tp-size 8"}},
    {{.tp_size = 12, .moe_dense_tp_size = 4, .embedding_tp_size = 6},
     "--embedding-tp-size",
     {"--embedding-tp-size 6", "--moe-dense-tp-size 4", "do not nest"}},
    {{.tp_size = 4, .shared_experts = "sharded"},
     "--shared-experts",
     {"--shared-experts sharded", "split, whole"}},
    {{.tp_size = 4, .pp_size = 3}, "--pp-size", {"--pp-size 3", "--pp-size 1"}},
    {{.tp_size = 4, .speculative_algorithm = "NGRAM"},
     "--speculative-algorithm",
     {"--speculative-algorithm NGRAM", "NEXTN", "EAGLE"}},
    {{.tp_size = 4, .speculative_num_steps = 2},
     "--speculative-num-steps",
     {"--speculative-num-steps 2", "without --speculative-algorithm NEXTN"}},
    {{.tp_size = 4, .speculative_algorithm = "NEXTN", .speculative_num_steps = 17},
     "--speculative-num-steps",
     {"--speculative-num-steps 17", "1 and 16"}},
    {{.tp_size = 4, .speculative_algorithm = "EAGLE", .speculative_num_draft_tokens = 1},
     "--speculative-num-draft-tokens",
     {"--speculative-num-draft-tokens 1", "2 and 17"}},
    {{.tp_size = 4,
      .speculative_algorithm = "EAGLE",
      .speculative_num_steps = 3,
      .speculative_num_draft_tokens = 8},
     "--speculative-num-draft-tokens",
     {"--speculative-num-draft-tokens 8", "--speculative-num-steps 3",
      "--speculative-algorithm EAGLE --speculative-num-steps 3"}},
    {{.tp_size = 4, .speculative_algorithm = "EAGLE", .speculative_eagle_topk = 4},
     "--speculative-eagle-topk",
     {"--speculative-eagle-topk 4", "not a tree", "--speculative-algorithm EAGLE --speculative-num-steps 3"}},
    {{.tp_size = 8, .dp_size = 3, .enable_dp_attention = true}, "--dp-size", {"--dp-size 3", "--tp-size 8"}},
    {{.tp_size = 8, .dp_size = 2}, "--dp-size", {"--dp-size 2", "--enable-dp-attention"}},
    {{.tp_size = 8, .enable_dp_lm_head = true},
     "--enable-dp-lm-head",
     {"--enable-dp-lm-head", "--enable-dp-attention"}},
    {{.tp_size = 8, .ep_size = 3}, "--ep-size", {"--ep-size 3", "--tp-size 8"}},
    {{.tp_size = 16, .ep_size = 16}, "--ep-size", {"--ep-size 16", "8 experts"}},
    {{.tp_size = 4, .moe_a2a_backend = "in_process"},
     "--moe-a2a-backend",
     {"--moe-a2a-backend in_process", "--ep-size 1"}},
    {{.tp_size = 4, .ep_size = 4, .moe_a2a_backend = "deepep"},
     "--moe-a2a-backend",
     {"--moe-a2a-backend deepep", "none, in_process, in_process_expert_major, in_process_token_major"}},
    {{.tp_size = 8, .moe_dense_tp_size = 3}, "--moe-dense-tp-size", {"--moe-dense-tp-size 3", "--tp-size 8"}},
    {{.tp_size = 6, .dp_size = 3, .enable_dp_attention = true, .ep_size = 2},
     "--ep-size",
     {"--dp-size 3", "width 2", "--ep-size 2", "width 3", "do not nest"}},
    {{.tp_size = 12, .dp_size = 3, .enable_dp_attention = true, .moe_dense_tp_size = 6},
     "--moe-dense-tp-size",
     {"--dp-size 3", "width 4", "--moe-dense-tp-size 6", "do not nest"}},
};

TEST(Configuration, EveryRefusalNamesBothSettingsAndNeighboursThatWork) {
  for (const Refusal& refusal : kRefusals) {
    const auto solved = solve_mixed(refusal.flags);
    ASSERT_FALSE(solved.ok()) << refusal.field;
    const Error& error = solved.error();
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    EXPECT_EQ(error.field, refusal.field) << error.message;
    for (const std::string& part : refusal.says) EXPECT_THAT(error.message, HasSubstr(part));
    const auto commands = commands_in(error.message);
    EXPECT_GE(commands.size(), 1u) << error.message;
    EXPECT_LE(commands.size(), 3u) << error.message;
    for (const ParallelFlags& command : commands) {
      const auto neighbour = solve_mixed(command);
      ASSERT_TRUE(neighbour.ok()) << error.message << "\n-> " << neighbour.error().message;
      const auto plans = make_plans(*neighbour, mixed_model(), h200_machine());
      ASSERT_TRUE(plans.ok());
      // A thousand ranks of one replica take seconds to prove, and other tests prove their like.
      if (neighbour->grid.num_ranks > 64) continue;
      EXPECT_TRUE(prove(*plans, neighbour->capacity).ok()) << error.message;
    }
  }
}

TEST(Configuration, EveryRefusalOfTheLatticeHasNeighboursThatWork) {
  int num_refused = 0;
  for (const int ranks : {4, 6, 12})
    for_each_flags(ranks, [&](const ParallelFlags& flags) {
      const auto solved = solve_mixed(flags);
      if (solved) return;
      const auto commands = commands_in(solved.error().message);
      EXPECT_EQ(commands.size(), 3u) << solved.error().message;
      for (const ParallelFlags& command : commands) {
        EXPECT_EQ(command.tp_size, flags.tp_size);
        EXPECT_TRUE(solve_mixed(command).ok()) << solved.error().message;
      }
      ++num_refused;
    });
  EXPECT_GT(num_refused, 100);
}

// One setting is wrong, so one setting changes.
TEST(Configuration, TheNearestSettingsChangeAsLittleAsCanBe) {
  const auto solved = solve_mixed({.tp_size = 8,
                                   .dp_size = 3,
                                   .enable_dp_attention = true,
                                   .ep_size = 4,
                                   .moe_dense_tp_size = 2,
                                   .enable_dp_lm_head = true,
                                   .moe_a2a_backend = "in_process"});
  ASSERT_FALSE(solved.ok());
  for (const ParallelFlags& command : commands_in(solved.error().message)) {
    EXPECT_NE(command.dp_size, 3);
    EXPECT_EQ(command.ep_size, 4);
    EXPECT_EQ(command.moe_dense_tp_size, 2);
    EXPECT_EQ(command.moe_a2a_backend, "in_process");
    EXPECT_TRUE(command.enable_dp_lm_head);
  }
}

TEST(Configuration, AllBrokenRulesAreNamedAtOnce) {
  const auto solved = solve_mixed({.tp_size = 8,
                                   .dp_size = 3,
                                   .enable_dp_attention = true,
                                   .ep_size = 5,
                                   .moe_dense_tp_size = 7,
                                   .pp_size = 2});
  ASSERT_FALSE(solved.ok());
  EXPECT_THAT(solved.error().message, AllOf(HasSubstr("--dp-size 3"), HasSubstr("--ep-size 5"),
                                            HasSubstr("--moe-dense-tp-size 7"), HasSubstr("--pp-size 2")));
}

TEST(Configuration, AModelWithoutExpertsHasNoExpertParallelism) {
  const ModelShape dense = [] {
    ModelShape model = small_model({ModelShape::Ffn::kDense});
    model.num_experts = 0;
    return model;
  }();
  const auto solved = solve({.tp_size = 4, .ep_size = 2}, dense, h200_machine());
  ASSERT_FALSE(solved.ok());
  EXPECT_THAT(solved.error().message, AllOf(HasSubstr("--ep-size 2"), HasSubstr("no experts")));
  for (const ParallelFlags& command : commands_in(solved.error().message))
    EXPECT_TRUE(solve(command, dense, h200_machine()).ok());
}

const Setting& setting(const Configuration& solved, const std::string& flag) {
  for (const Setting& entry : solved.settings)
    if (entry.flag == flag) return entry;
  throw std::runtime_error("no setting " + flag);
}

// SGLang's ways to say three drafts; what is admitted follows from them.
TEST(Configuration, DraftsAreCountedInRows) {
  for (const ParallelFlags& flags :
       {ParallelFlags{.speculative_algorithm = "NEXTN"},
        ParallelFlags{.speculative_algorithm = "EAGLE",
                      .speculative_num_steps = 3,
                      .speculative_num_draft_tokens = 4,
                      .speculative_eagle_topk = 1},
        ParallelFlags{.speculative_algorithm = "EAGLE", .speculative_num_draft_tokens = 4}}) {
    ParallelFlags all = flags;
    all.tp_size = 4;
    all.dp_size = 2;
    all.enable_dp_attention = true;
    all.max_running_requests = 10;
    all.chunked_prefill_size = 7;
    const auto solved = solve_mixed(all);
    ASSERT_TRUE(solved.ok()) << solved.error().message;
    EXPECT_EQ(solved->num_drafts, 3);
    EXPECT_EQ(solved->capacity.max_requests, 5);
    EXPECT_EQ(solved->capacity.max_decode_rows, 20);
    EXPECT_EQ(solved->capacity.max_rows, 28);  // 5 * 4 + 7, rounded up to 2
    EXPECT_EQ(solved->capacity.max_logit_rows, 27);
  }
}

TEST(Configuration, AModelThatCannotDraftSaysWhy) {
  ModelShape model = mixed_model();
  const ParallelFlags flags{.speculative_algorithm = "NEXTN"};
  EXPECT_TRUE(solve(flags, model, h200_machine()).ok());
  model.no_drafts_because = "its layers keep a state";
  EXPECT_THAT(solve(flags, model, h200_machine()).error().message, HasSubstr("its layers keep a state"));
  model.no_drafts_because = "";
  model.draft_layers = {};
  EXPECT_THAT(solve(flags, model, h200_machine()).error().message, HasSubstr("no MTP module"));
  EXPECT_EQ(solve(flags, model, h200_machine()).error().field, "--speculative-algorithm");
}

// Tap and join stand by the replica: what a forward keeps is where the next one looks for it.
TEST(Configuration, ADraftTakesUpWhatTheTargetKept) {
  for (const int dp : {1, 2, 4}) {
    const auto solved = solve_mixed({.tp_size = 4,
                                     .dp_size = dp,
                                     .enable_dp_attention = true,
                                     .ep_size = 4,
                                     .speculative_algorithm = "NEXTN"});
    ASSERT_TRUE(solved.ok()) << solved.error().message;
    const auto plans = make_plans(*solved, mixed_model(), h200_machine(), Proofs::kAfterEveryPass);
    ASSERT_TRUE(plans.ok()) << plans.error().message;
    ASSERT_NE(plans->draft, nullptr);
    const Edge& tapped = plans->prefill.edges[edge_into(plans->prefill, {StageKind::kTap, 5})];
    const Plan& draft = plans->draft->prefill;
    const Edge& joined = draft.edges[edge_into(draft, {StageKind::kJoin, 5})];
    const Edge& kept = draft.edges[edge_into(draft, {StageKind::kTap, 6})];
    EXPECT_EQ(tapped.needed, joined.needed);
    EXPECT_EQ(kept.needed, joined.needed);
    EXPECT_TRUE(prove(*plans, solved->capacity).ok());
  }
}

TEST(Configuration, DefaultsAreOneRankAndSaySo) {
  const auto solved = solve_mixed({});
  ASSERT_TRUE(solved.ok());
  EXPECT_EQ(solved->grid.num_ranks, 1);
  EXPECT_EQ(solved->grid.attention_tp, 1);
  EXPECT_EQ(solved->stages.exchange, ExchangeBackend::kNone);
  EXPECT_EQ(solved->stages.head, HeadSplit::kAllRanks);
  for (const char* flag :
       {"--tp-size", "--dp-size", "--enable-dp-attention", "--ep-size", "--moe-a2a-backend",
        "--moe-dense-tp-size", "--enable-dp-lm-head", "--max-running-requests", "--chunked-prefill-size"}) {
    EXPECT_EQ(setting(*solved, flag).source, Setting::Source::kDefault) << flag;
    EXPECT_FALSE(setting(*solved, flag).reason.empty()) << flag;
  }
}

TEST(Configuration, GivenValuesStandAndDerivedOnesCarryAReason) {
  const auto solved = solve_mixed({.tp_size = 8,
                                   .dp_size = 2,
                                   .enable_dp_attention = true,
                                   .ep_size = 4,
                                   .max_running_requests = 97,
                                   .chunked_prefill_size = 30});
  ASSERT_TRUE(solved.ok());
  EXPECT_EQ(setting(*solved, "--dp-size").source, Setting::Source::kGiven);
  EXPECT_EQ(setting(*solved, "--dp-size").value, "2");
  EXPECT_EQ(setting(*solved, "--moe-dense-tp-size").source, Setting::Source::kDefault);
  EXPECT_EQ(setting(*solved, "--moe-dense-tp-size").value, "8");
  // A = W / D = 4, T = W / E = 2; 97 requests over 2 replicas are 49 each; 49 + 30 rows are 80 in fours.
  EXPECT_EQ(solved->grid.attention_tp, 4);
  EXPECT_EQ(solved->grid.expert_tp, 2);
  EXPECT_EQ(solved->capacity.max_requests, 49);
  EXPECT_EQ(solved->capacity.max_decode_rows, 52);
  EXPECT_EQ(solved->capacity.max_rows, 80);
  const std::map<std::string, std::string> derived = {{"attention TP width", "4"},
                                                      {"experts' TP width", "2"},
                                                      {"running requests a replica", "49"},
                                                      {"rows a replica and step", "80"}};
  for (const auto& [name, value] : derived) {
    EXPECT_EQ(setting(*solved, name).source, Setting::Source::kDerived);
    EXPECT_EQ(setting(*solved, name).value, value);
    EXPECT_FALSE(setting(*solved, name).reason.empty());
  }
  const std::string text = to_text(solved->settings);
  const Json json = to_json(solved->settings);
  ASSERT_EQ(json.size(), solved->settings.size());
  for (size_t i = 0; i < json.size(); ++i) {
    EXPECT_EQ(json[i]["setting"], solved->settings[i].flag);
    EXPECT_EQ(json[i]["value"], solved->settings[i].value);
    EXPECT_EQ(json[i]["reason"], solved->settings[i].reason);
    EXPECT_THAT(text, HasSubstr(solved->settings[i].flag));
  }
  EXPECT_EQ(json[1]["source"], "given");
}

// A setting that changes nothing is said to change nothing.
TEST(Configuration, SettingsWithoutEffectAreSaidToHaveNone) {
  const auto solved =
      solve_mixed({.tp_size = 4, .dp_size = 1, .enable_dp_attention = true, .enable_dp_lm_head = true});
  ASSERT_TRUE(solved.ok());
  EXPECT_THAT(setting(*solved, "--enable-dp-attention").reason, HasSubstr("no effect"));
  EXPECT_THAT(setting(*solved, "--enable-dp-lm-head").reason, HasSubstr("no effect"));
  const auto with = solve_mixed({.tp_size = 4, .dp_size = 2, .enable_dp_attention = true});
  EXPECT_THAT(setting(*with, "--enable-dp-attention").reason, Not(HasSubstr("no effect")));
  const ModelShape all_experts = small_model({ModelShape::Ffn::kExperts});
  const auto dense = solve({.tp_size = 4, .moe_dense_tp_size = 2}, all_experts, h200_machine());
  EXPECT_THAT(setting(*dense, "--moe-dense-tp-size").reason, HasSubstr("no effect"));
}

TEST(Configuration, AnyDivisorIsADenseWidth) {
  for (const int width : {1, 2, 4, 8})
    EXPECT_EQ(solve_mixed({.tp_size = 8, .moe_dense_tp_size = width})->grid.dense_tp, width);
}

TEST(Configuration, ExpertsNeedNotDivide) {
  const ModelShape model = mixed_model();  // eight experts
  const auto solved =
      solve({.tp_size = 6, .ep_size = 6, .moe_a2a_backend = "in_process"}, model, h200_machine());
  ASSERT_TRUE(solved.ok());
  const auto plans = make_plans(*solved, model, h200_machine());
  for (const StepPlan& step_plan : probing_step_plans(step_shape(plans->grid, solved->capacity)))
    EXPECT_TRUE(
        verify(plans->decode, plans->chain, plans->grid, step_plan, {.num_experts = 8, .top_k = 3}).empty());
}

// The design's first fault, second half: the warm-up batch was not rounded to the attention-TP width, and the
// server crashed whenever --max-running-requests was not a multiple of it.
TEST(FaultsOfTheDesign, AnyRequestLimitIsRoundedWhereverABatchIsMade) {
  for (int limit = 1; limit <= 40; ++limit) {
    const auto solved = solve_mixed({.tp_size = 8,
                                     .dp_size = 2,
                                     .enable_dp_attention = true,
                                     .moe_dense_tp_size = 1,
                                     .max_running_requests = limit,
                                     .chunked_prefill_size = 7});
    ASSERT_TRUE(solved.ok());
    const auto plans = make_plans(*solved, mixed_model(), h200_machine());
    const StepShape shape = step_shape(plans->grid, solved->capacity);
    ASSERT_EQ(shape.row_quantum(), 4);
    EXPECT_EQ(solved->capacity.max_decode_rows % 4, 0);
    EXPECT_EQ(solved->capacity.max_rows % 4, 0);
    EXPECT_GE(2 * solved->capacity.max_requests, limit);
    // The warm-up: as many one-row requests as may run, on every replica; and the fullest prefill.
    const int32_t requests = solved->capacity.max_requests;
    std::vector<ReplicaCounts> decode(2, {.num_requests = requests, .num_target_rows = requests});
    for (auto& counts : decode)
      for (int32_t row = 0; row < requests; ++row) counts.logit_rows.push_back(row);
    std::vector<ReplicaCounts> prefill(2, {.num_requests = requests, .num_target_rows = requests + 7});
    const StepPlan warm_up = make_step_plan(0, shape, decode);
    EXPECT_NE(warm_up.regime, Regime::kPrefill);
    for (const StepPlan& step_plan : {warm_up, make_step_plan(1, shape, prefill)}) {
      for (const int32_t padded : step_plan.padded_rows) EXPECT_EQ(padded % 4, 0);
      const auto found = verify(plans->of(step_plan.regime), plans->chain, plans->grid, step_plan);
      EXPECT_TRUE(found.empty()) << limit << ": " << found[0].says;
    }
  }
}

// The design's second fault: a fixed-geometry exchange with --moe-dense-tp-size 1 --enable-dp-lm-head, where
// every rank sized the exchange from its own count, so that unequal replicas had unequal geometries.
TEST(FaultsOfTheDesign, AFixedGeometryIsTheSameForVeryUnequalReplicas) {
  const auto solved = solve_mixed({.tp_size = 8,
                                   .dp_size = 4,
                                   .enable_dp_attention = true,
                                   .ep_size = 8,
                                   .moe_dense_tp_size = 1,
                                   .enable_dp_lm_head = true,
                                   .moe_a2a_backend = "in_process",
                                   .max_running_requests = 64,
                                   .chunked_prefill_size = 512});
  ASSERT_TRUE(solved.ok());
  const auto plans = make_plans(*solved, mixed_model(), h200_machine());
  const StepShape shape = step_shape(plans->grid, solved->capacity);
  const auto rows = [](int32_t count) {
    ReplicaCounts counts{.num_requests = count > 0, .num_target_rows = count};
    if (count > 0) counts.logit_rows = {count - 1};
    return counts;
  };
  // Whichever replica is the loaded one, and however idle the others are: one geometry, one regime, one plan.
  for (int loaded = 0; loaded < 4; ++loaded)
    for (const int32_t others : {0, 1, 3}) {
      std::vector<ReplicaCounts> table(4, rows(others));
      table[loaded] = rows(509);
      const StepPlan step_plan = make_step_plan(0, shape, table);
      EXPECT_EQ(step_plan.max_rows_of_any_home, 255);  // 509 padded to 510, two homes
      EXPECT_EQ(step_plan.regime, Regime::kPrefill);
      EXPECT_EQ(step_plan.counts.size(), 4u);
      EXPECT_EQ(make_step_plan(0, shape, table).hash, step_plan.hash);
      const auto found = verify(plans->prefill, plans->chain, plans->grid, step_plan);
      EXPECT_TRUE(found.empty()) << found[0].edge << ": " << found[0].says;
    }
}

// 768 over 4 ranks is 192: a block and a half (as Qwen3-30B-A3B in FP8).
TEST(Solve, SaysWhereASplitCutsQuantizedBlocks) {
  ModelShape model = mixed_model();
  model.expert_inter = 768;
  model.shared_inter = 0;
  model.dense_inter = 1024;
  const auto said = [&](const ParallelFlags& flags) {
    const auto solved = solve(flags, model, h200_machine());
    EXPECT_TRUE(solved.ok()) << solved.error().message;
    for (const Setting& entry : solved->settings)
      if (entry.flag == "quantized weights' block") return entry.value + ": " + entry.reason;
    return std::string();
  };
  EXPECT_EQ(said({.tp_size = 4}), "");
  model.quant_block = 128;
  EXPECT_THAT(said({.tp_size = 4}),
              AllOf(HasSubstr("128: expert width of 768 over 4 ranks is cut inside blocks"),
                    Not(HasSubstr("dense width"))));
  EXPECT_THAT(said({.tp_size = 4, .ep_size = 4}), HasSubstr("no width is cut"));
  EXPECT_THAT(said({.tp_size = 2}), HasSubstr("no width is cut"));
  model.dense_inter = 960;
  EXPECT_THAT(said({.tp_size = 2}), HasSubstr("dense width of 960 over 2 ranks"));
}

}  // namespace
}  // namespace lockstep::planning::test
