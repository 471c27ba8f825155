#include "lockstep/runtime/hosts/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace lockstep::runtime {
namespace {

using ::testing::HasSubstr;

Environment environment_of(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const char* name) -> const char* {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  };
}

TEST(Launch, WhatWasTypedCounts) {
  const auto place = place_of({.num = 4, .index = 2, .coordinator = "node1:77"},
                              environment_of({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "4"}}));
  ASSERT_TRUE(place) << place.error().message;
  EXPECT_EQ(place->index, 2);
  EXPECT_EQ(place->coordinator, "node1");
  EXPECT_EQ(place->port, 77);
}

TEST(Launch, CoordinatorsAreNamesAddressesAndPorts) {
  const auto typed = [](const char* text) {
    return place_of({.num = 2, .index = 0, .coordinator = text}, environment_of({}));
  };
  struct Case {
    const char *text, *name;
    int port;
  };
  for (const Case& one :
       {Case{"node1", "node1", 20555}, Case{"10.0.0.7:5", "10.0.0.7", 5}, Case{"fd00::1", "fd00::1", 20555},
        Case{"[fd00::1]:8000", "fd00::1", 8000}, Case{"[fd00::1]", "fd00::1", 20555}}) {
    const auto place = typed(one.text);
    ASSERT_TRUE(place) << one.text;
    EXPECT_EQ(place->coordinator, one.name);
    EXPECT_EQ(place->port, one.port);
  }
  for (const char* text : {":5", "node1:", "node1:0", "node1:65536", "node1:x", "[fd00::1]:0"})
    EXPECT_FALSE(typed(text)) << text;
}

// Each of the processes would serve the whole model by itself.
TEST(Launch, WhatNeedsSeveralProcessesIsRefusedOfOne) {
  const auto refused = [](const HostsConfig& hosts, const Environment& environment) {
    const auto place = place_of(hosts, environment);
    return place ? std::string() : place.error().field;
  };
  EXPECT_EQ(refused({.num = 1, .index = 0}, environment_of({})), "--host-rank");
  EXPECT_EQ(refused({.num = 1, .coordinator = "node1"}, environment_of({})), "--coordinator");
  const auto srun = [](const char* tasks) {
    return environment_of({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", tasks}});
  };
  EXPECT_EQ(refused({.num = 1}, srun("4")), "--hosts");
  EXPECT_EQ(refused({.num = 1}, srun("1")), "");
  EXPECT_EQ(refused({.num = 1}, environment_of({})), "");
}

TEST(Launch, SlurmSaysWhoAndWhere) {
  for (const auto& [nodes, first] : std::map<std::string, std::string>{{"gpu[007-010,012]", "gpu007"},
                                                                       {"gpu[3,5]", "gpu3"},
                                                                       {"alone", "alone"},
                                                                       {"a1,a2", "a1"},
                                                                       {"a1,b[1-2]", "a1"}}) {
    const auto place = place_of({.num = 4}, environment_of({{"SLURM_PROCID", "3"},
                                                            {"SLURM_STEP_NUM_TASKS", "4"},
                                                            {"SLURM_STEP_NODELIST", nodes},
                                                            {"SLURM_JOB_ID", "12"},
                                                            {"SLURM_STEP_ID", "0"}}));
    ASSERT_TRUE(place) << place.error().message;
    EXPECT_EQ(place->index, 3);
    EXPECT_EQ(place->coordinator, first);
    EXPECT_GE(place->port, 1024);
  }
}

TEST(Launch, MpirunOnOneMachineNeedsNoCoordinator) {
  std::map<std::string, std::string> values = {{"OMPI_COMM_WORLD_RANK", "1"},
                                               {"OMPI_COMM_WORLD_SIZE", "2"},
                                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                               {"PMIX_NAMESPACE", "371"}};
  const auto place = place_of({.num = 2}, environment_of(values));
  ASSERT_TRUE(place) << place.error().message;
  EXPECT_EQ(place->index, 1);
  EXPECT_EQ(place->coordinator, "127.0.0.1");
  values["PMIX_NAMESPACE"] = "372";  // another job at the same time
  EXPECT_NE(place_of({.num = 2}, environment_of(values))->port, place->port);

  values["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  const auto apart = place_of({.num = 2}, environment_of(values));
  ASSERT_FALSE(apart);
  EXPECT_EQ(apart.error().field, "--coordinator");
}

TEST(Launch, LeaderWorkerSets) {
  const auto place =
      place_of({.num = 3}, environment_of({{"LWS_WORKER_INDEX", "0"},
                                           {"LWS_GROUP_SIZE", "3"},
                                           {"LWS_LEADER_ADDRESS", "lockstep-0.lockstep.default"}}));
  ASSERT_TRUE(place) << place.error().message;
  EXPECT_EQ(place->index, 0);
  EXPECT_EQ(place->coordinator, "lockstep-0.lockstep.default");
  EXPECT_EQ(place->port, 20555);
}

TEST(Launch, ContradictionsNameBothValues) {
  const auto more =
      place_of({.num = 4}, environment_of({{"LWS_WORKER_INDEX", "0"}, {"LWS_GROUP_SIZE", "3"}}));
  ASSERT_FALSE(more);
  EXPECT_THAT(more.error().message, HasSubstr("--hosts is 4 and LeaderWorkerSet started 3 processes"));
  const auto nobody = place_of({.num = 4}, environment_of({}));
  ASSERT_FALSE(nobody);
  EXPECT_EQ(nobody.error().field, "--host-rank");
  EXPECT_FALSE(place_of({.num = 2, .index = 2, .coordinator = "a"}, environment_of({})));
  EXPECT_FALSE(place_of({.num = 2, .index = -1, .coordinator = "a"}, environment_of({})));
  EXPECT_FALSE(place_of({.num = 0}, environment_of({})));
  const auto hasty =
      place_of({.num = 2, .index = 0, .coordinator = "a", .silence_seconds = 0.0}, environment_of({}));
  ASSERT_FALSE(hasty);
  EXPECT_THAT(hasty.error().message, HasSubstr("--host-timeout 0 is not between 0.1 and 86400 seconds"));
}

TEST(Launch, ProcessesHaveEquallyManyRanks) {
  EXPECT_TRUE(check_hosts({.num = 4}, 8));
  const auto uneven = check_hosts({.num = 3}, 8);
  ASSERT_FALSE(uneven);
  EXPECT_THAT(uneven.error().message,
              HasSubstr("--hosts 3 does not divide --tp-size 8; these do: 1, 2, 4, 8"));
  EXPECT_FALSE(check_hosts({.num = 16}, 8));
}

}  // namespace
}  // namespace lockstep::runtime
