// Plans as files: what is written is proven when it is read; what was edited by hand is found, by name; what
// is no plan is refused.
#include "lockstep/planning/plan_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "lockstep/planning/plan_page.h"
#include "tests/planning/lattice.h"

namespace lockstep::planning::test {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

// The worked example of the pages: two replicas of two ranks, dense layers whole, experts exchanged.
struct Example {
  ParallelFlags flags{.tp_size = 4,
                      .dp_size = 2,
                      .enable_dp_attention = true,
                      .ep_size = 4,
                      .moe_dense_tp_size = 1,
                      .moe_a2a_backend = "in_process",
                      .max_running_requests = 16,
                      .chunked_prefill_size = 32,
                      .skip_passes = all_passes()};
  ModelShape model = mixed_model();
  Machine machine = h200_machine();
  Configuration configuration = *solve(flags, model, machine);
  Plans plans = *make_plans(configuration, model, machine);

  Json file() const {
    Json json = {{"configuration", configuration_json(configuration, model, machine)}};
    for (const Regime regime : kRegimes)
      json[std::string(name_of(regime))] = {
          {"edges", explained_json(plans.of(regime), plans.grid, machine, plans.load_of(regime))}};
    return json;
  }
  Json file_with_step(const std::vector<int>& rows, Phase phase = Phase::kDecode) const {
    Json json = file();
    const auto step_plan = step_of_rows(plans, configuration.capacity, rows, phase);
    add_trace(json, plans, *step_plan, sizes());
    return json;
  }
  TraceSizes sizes() const { return {model.hidden, model.vocab, model.top_k, machine.bytes_per_value}; }
};

// A plan that is proven and is not the one that the file speaks of.
TEST(PlanFile, SaysOfItsGridAndItsHashWhatItsPlansSay) {
  const Example example;
  Json file = example.file();
  file["hash"] = fmt::format("{:016x}", hash_of(example.plans));
  file["grid"] = {{"num_ranks", 4}, {"num_replicas", 2}};
  EXPECT_TRUE(check_plan_file(file)->found.empty());
  Json other = file;
  other["hash"] = "0123456789abcdef";
  auto report = check_plan_file(other);
  ASSERT_EQ(report->found.size(), 1u);
  EXPECT_THAT(report->found[0].violation.says, HasSubstr("it is \"0123456789abcdef\""));
  other = file;
  other["grid"]["num_replicas"] = 4;
  report = check_plan_file(other);
  ASSERT_EQ(report->found.size(), 1u);
  EXPECT_EQ(report->found[0].violation.edge, "grid num_replicas");
}

TEST(PlanFile, WhatIsWrittenIsProvenWhenItIsRead) {
  const Example example;
  for (const std::vector<int>& rows : {std::vector{3, 1}, {0, 0}, {0, 5}, {8, 8}}) {
    const auto text = lockstep::to_text(example.file_with_step(rows));
    const auto report = check_plan_file(*parse_json(text));
    ASSERT_TRUE(report.ok()) << report.error().message;
    for (const FoundInFile& found : report->found) ADD_FAILURE() << to_text(found.violation);
    EXPECT_GT(report->num_proofs, 20);
    EXPECT_EQ(report->num_edges, 3 * static_cast<int>(example.plans.decode.edges.size()));
  }
}

TEST(PlanFile, EveryConfigurationOfFourRanksReadsBack) {
  int num_files = 0;
  for_each_flags(4, [&](const ParallelFlags& flags) {
    if (!works(flags, mixed_model())) return;
    Example example{.flags = flags};
    const auto report = check_plan_file(example.file());
    ASSERT_TRUE(report.ok()) << report.error().message;
    EXPECT_TRUE(report->found.empty()) << to_text(flags);
    ++num_files;
  });
  EXPECT_GT(num_files, 50);
}

struct Edit {
  const char* name;
  std::function<void(Json&)> change;
  const char* plan;
  const char* says;
};

// The edge out of the first attention: its reduce-scatter or all-reduce comes first.
Json& first_step(Json& file) { return file["prefill"]["edges"][1]["steps"][0]; }

TEST(PlanFile, EditsAreFoundByName) {
  const Edit edits[] = {
      {"a reduction is lost", [](Json& f) { f["prefill"]["edges"][1]["steps"].erase(0); }, "prefill", "owed"},
      {"over another axis", [](Json& f) { first_step(f)["over"] = "dp"; }, "prefill", "no sum is owed"},
      {"another kind", [](Json& f) { first_step(f)["kind"] = "slice"; }, "prefill", "sum is still owed"},
      {"two steps with one number", [](Json& f) { first_step(f)["id"] = 0; }, "prefill", "follows step"},
      {"another layout is needed", [](Json& f) { f["decode"]["edges"][1]["needed"] = "Shard(tp)"; }, "decode",
       "no signature"},
      {"the geometry of one rank", [](Json& f) { f["step_plan"]["max_rows_of_any_home"] = 1; }, "step plan",
       "most rows of any home is 1"},
      {"padding is forgotten", [](Json& f) { f["step_plan"]["padded_rows"][0] = 3; }, "step plan",
       "padded rows of replica 0 is 3"},
      {"more requests than admitted", [](Json& f) { f["step_plan"]["counts"][1]["requests"] = 99; },
       "step plan", "admitted are 8"},
      {"another protocol", [](Json& f) { f["step_plan"]["protocol"] = "normal"; }, "step plan", "protocol"},
      {"a hash of something else", [](Json& f) { f["step_plan"]["hash"] = "00"; }, "step plan",
       "its hash is"},
      {"counts in the trace", [](Json& f) { f["trace"][2][5]["counts"][0] = 77; }, "trace",
       "\"counts\" is [77"},
      {"a rank skips a step", [](Json& f) { f["trace"][3].erase(4); }, "trace", "rank 3 does"},
  };
  const Example example;
  for (const Edit& edit : edits) {
    SCOPED_TRACE(edit.name);
    Json file = example.file_with_step({3, 1});
    edit.change(file);
    const auto report = check_plan_file(file);
    ASSERT_TRUE(report.ok()) << report.error().message;
    ASSERT_FALSE(report->found.empty());
    EXPECT_EQ(report->found[0].plan, edit.plan);
    EXPECT_THAT(to_text(report->found[0].violation), HasSubstr(edit.says));
  }
}

// A message names the edge, the step, its group and the ranks.
TEST(PlanFile, ViolationsNameEdgeStepGroupAndRanks) {
  const Example example;
  Json file = example.file();
  first_step(file)["kind"] = "slice";
  const auto report = check_plan_file(file);
  ASSERT_TRUE(report.ok());
  const Violation& violation = report->found.at(0).violation;
  EXPECT_EQ(violation.edge, "attention.0 -> dense.0");
  EXPECT_EQ(violation.op, "slice");
  EXPECT_EQ(violation.over, "tp");
  EXPECT_THAT(violation.ranks, UnorderedElementsAre(0, 1));
  EXPECT_THAT(to_text(violation), HasSubstr("(slice over tp, ranks 0 1)"));
}

TEST(PlanFile, WhatIsNoPlanIsRefusedByName) {
  const Example example;
  const std::pair<std::function<void(Json&)>, const char*> edits[] = {
      {[](Json& f) { f.erase("configuration"); }, "\"configuration\""},
      {[](Json& f) { f["configuration"]["grid"]["num_ranks"] = 4096; }, "\"num_ranks\""},
      {[](Json& f) { f["configuration"]["grid"]["num_ranks"] = -1; }, "\"num_ranks\""},
      {[](Json& f) { f["configuration"]["grid"]["dense_tp"] = 3; }, "dense-TP width 3"},
      {[](Json& f) { f["configuration"]["exchange"] = "pigeons"; }, "\"pigeons\""},
      {[](Json& f) { f["configuration"]["capacity"]["max_rows"] = 7; }, "row quantum"},
      {[](Json& f) { f["configuration"]["model"]["layers"] = std::string(5000, 'd'); }, "\"layers\""},
      {[](Json& f) { f.erase("prefill"); }, "\"prefill\""},
      {[](Json& f) { f["decode"]["edges"][2]["steps"] = 3; }, "edge 2"},
      {[](Json& f) { f["decode"]["edges"][2]["steps"][0]["over"] = "xp"; }, "\"xp\""},
      {[](Json& f) { f["decode"]["edges"][2]["from"] = "dense.0 | dense.1"; }, "edge 2"},
      {[](Json& f) { f["step_plan"]["rows_per_home"] = Json::array({1e9}); }, "\"rows_per_home\""},
  };
  for (const auto& [change, says] : edits) {
    Json file = example.file_with_step({3, 1});
    change(file);
    const auto report = check_plan_file(file);
    ASSERT_FALSE(report.ok()) << says;
    EXPECT_THAT(report.error().message, HasSubstr(says));
  }
}

TEST(StepOfRows, RefusesWhatNoSchedulerWouldForm) {
  const Example example;
  const auto refused = [&](const std::vector<int>& rows) {
    return step_of_rows(example.plans, example.configuration.capacity, rows, Phase::kDecode).error().message;
  };
  EXPECT_THAT(refused({1}), HasSubstr("names 1 replicas, the configuration has 2"));
  EXPECT_THAT(refused({9, 0}), HasSubstr("9 is not between 0 and the 8"));
  EXPECT_THAT(refused({-1, 0}), HasSubstr("-1"));
  const auto prefill = step_of_rows(example.plans, example.configuration.capacity, {3, 1}, Phase::kPrefill);
  EXPECT_EQ(prefill->regime, Regime::kPrefill);
  EXPECT_EQ(prefill->protocol, Protocol::kNormal);
}

// What anybody can check of a trace without knowing the planner.
TEST(Trace, RowsAndCountsAddUpOnEveryRank) {
  for_each_flags(4, [&](const ParallelFlags& flags) {
    if (!works(flags, mixed_model())) return;
    const Example example{.flags = flags};
    const int replicas = example.plans.grid.num_replicas();
    std::vector<int> rows;
    for (int replica = 0; replica < replicas; ++replica)
      rows.push_back(replica % 3 == 1 ? 0 : 1 + replica % 2);
    for (const Phase phase : {Phase::kDecode, Phase::kPrefill}) {
      const auto step_plan = step_of_rows(example.plans, example.configuration.capacity, rows, phase);
      ASSERT_TRUE(step_plan.ok());
      const auto trace =
          trace_of(example.plans.of(step_plan->regime), example.plans.grid, *step_plan, example.sizes());
      for (size_t rank = 0; rank < trace.size(); ++rank)
        for (size_t at = 0; at < trace[rank].size(); ++at) {
          const TracedStep& step = trace[rank][at];
          int64_t sum = 0;
          for (const int64_t count : step.counts) sum += count;
          ASSERT_EQ(step.counts.size(), step.group.size());
          for (const int member : step.group) {
            const TracedStep& other = trace[static_cast<size_t>(member)][at];
            EXPECT_EQ(other.group, step.group);
            EXPECT_EQ(other.counts, step.counts);
            EXPECT_EQ(other.op, step.op);
          }
          if (step.op == StepKind::kAllGather) {
            EXPECT_EQ(step.rows_out, sum);
          }
          if (step.op == StepKind::kReduceScatter || step.op == StepKind::kColumnsToRows ||
              step.op == StepKind::kFusedScatterAddNormGather) {
            EXPECT_EQ(step.rows_in, sum);
          }
          if (step.op == StepKind::kAllReduce || step.op == StepKind::kFusedAllReduceAddNorm) {
            EXPECT_EQ(step.rows_in, step.rows_out);
            for (const int64_t count : step.counts) EXPECT_EQ(count, step.rows_in);
          }
          if (step.capacity >= 0) {
            for (const int64_t count : step.counts) EXPECT_LE(count, step.capacity);
          }
          if (step.group.size() == 1) {
            EXPECT_EQ(step.bytes, 0);
          }
        }
    }
  });
}

// With equal replicas and no wanted rows left out, a trace's bytes are the cost model's.
TEST(Trace, BytesAreTheCostModelsWhereRowsAreEven) {
  const Example example;
  const auto step_plan = step_of_rows(example.plans, example.configuration.capacity, {8, 8}, Phase::kDecode);
  const Plan& plan = example.plans.of(step_plan->regime);
  Load load = example.plans.load_of(step_plan->regime);
  load.rows_per_replica = 8;
  const auto trace = trace_of(plan, example.plans.grid, *step_plan, example.sizes());
  size_t at = 0;
  for (const Edge& edge : plan.edges)
    for (const Step& step : edge.steps) {
      const double expected = wire_bytes(step, example.plans.grid, example.machine, load);
      for (const auto& steps : trace)
        EXPECT_NEAR(static_cast<double>(steps[at].bytes), expected, 1) << name_of(step.kind);
      ++at;
    }
}

}  // namespace
}  // namespace lockstep::planning::test
