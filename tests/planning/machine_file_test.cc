// Files of what was measured of a machine: read as they were written, and whatever is wrong is refused with
// the field and its value.
#include "lockstep/planning/machine_file.h"

#include <gtest/gtest.h>

namespace lockstep::planning {
namespace {

MeasuredMachine two_worlds() {
  return {.name = "cpu of 2 cores",
          .bytes_per_value = 4,
          .launch_us = 0.25,
          .worlds = {{.num_ranks = 2,
                      .collective_us = 40,
                      .link_gbs = 6,
                      .memory_gbs = 10,
                      .memory_gb = 8,
                      .peak_tflops = 0.1},
                     {.num_ranks = 4,
                      .collective_us = 100,
                      .link_gbs = 2,
                      .memory_gbs = 5,
                      .memory_gb = 4,
                      .peak_tflops = 0.05}},
          .sources = {{"launch_us", "median of 5 tries"}}};
}

TEST(MachineFile, IsReadAsItWasWritten) {
  const auto parsed = parse_json(lockstep::to_text(to_json(two_worlds())));
  ASSERT_TRUE(parsed.ok());
  const auto read = measured_machine_from_json(*parsed);
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(*read, two_worlds());
}

TEST(MachineFile, GivesConstantsForAnyNumberOfRanks) {
  const MeasuredMachine measured = two_worlds();
  // As measured, and below the smallest world as in it.
  for (const int ranks : {1, 2}) {
    EXPECT_EQ(machine_of_ranks(measured, ranks).collective_us, 40) << ranks;
    EXPECT_EQ(machine_of_ranks(measured, ranks).memory_gbs, 10) << ranks;
  }
  EXPECT_EQ(machine_of_ranks(measured, 4).link_gbs, 2);
  // Between: latency on the line; of rates, what all have together: 12 and 8 GB/s, so 10 for three.
  EXPECT_DOUBLE_EQ(machine_of_ranks(measured, 3).collective_us, 70);
  EXPECT_DOUBLE_EQ(machine_of_ranks(measured, 3).link_gbs, 10.0 / 3);
  EXPECT_DOUBLE_EQ(machine_of_ranks(measured, 3).memory_gbs, 20.0 / 3);
  // Beyond: cores are shared by more, devices are not.
  EXPECT_DOUBLE_EQ(machine_of_ranks(measured, 8).collective_us, 200);
  EXPECT_DOUBLE_EQ(machine_of_ranks(measured, 8).memory_gbs, 2.5);
  MeasuredMachine devices = measured;
  devices.ranks = MeasuredMachine::Ranks::kOwnDevices;
  EXPECT_DOUBLE_EQ(machine_of_ranks(devices, 8).collective_us, 100);
  EXPECT_DOUBLE_EQ(machine_of_ranks(devices, 8).memory_gbs, 5);
  EXPECT_EQ(machine_of_ranks(measured, 4).launch_us, 0.25);
  EXPECT_EQ(machine_of_ranks(measured, 4).bytes_per_value, 4);
}

TEST(MachineFile, RefusesWithFieldAndValue) {
  struct Case {
    const char* pointer;
    Json value;
    std::vector<std::string> says;
  };
  const Case cases[] = {
      {"/lockstep_machine", 2, {"lockstep_machine", "2"}},
      {"/name", "", {"name", "empty"}},
      {"/name", 7, {"name", "7"}},
      {"/ranks", "sometimes", {"ranks", "sometimes"}},
      {"/bytes_per_value", 0, {"bytes_per_value", "0"}},
      {"/bytes_per_value", 2.5, {"bytes_per_value", "2.5"}},
      {"/launch_us", -1, {"launch_us", "-1"}},
      {"/launch_us", "fast", {"launch_us", "fast"}},
      {"/ranks_per_host", 8, {"ranks_per_host", "8", "host_link_gbs"}},
      {"/worlds", Json::array(), {"worlds"}},
      {"/worlds", 3, {"worlds"}},
      {"/worlds/0/ranks", 4, {"ranks", "worlds[1]", "4"}},
      {"/worlds/0/ranks", 4096, {"ranks", "worlds[0]", "4096"}},
      {"/worlds/1/link_gbs", 0, {"link_gbs", "worlds[1]", "0"}},
      {"/worlds/1/memory_gbs", 1e300, {"memory_gbs", "1e+300"}},
      {"/worlds/1/peak_tflops", nullptr, {"peak_tflops", "null"}},
      {"/worlds/1/colective_us", 3, {"colective_us", "3"}},
      {"/memory_gbs", 3, {"memory_gbs", "3"}},
      {"/sources", "measured", {"sources"}},
      {"/sources/launch_us", 3, {"launch_us", "3"}},
  };
  for (const Case& one : cases) {
    Json json = to_json(two_worlds());
    json[Json::json_pointer(one.pointer)] = one.value;
    const auto read = measured_machine_from_json(json);
    ASSERT_FALSE(read.ok()) << one.pointer;
    for (const std::string& word : one.says)
      EXPECT_NE(read.error().message.find(word), std::string::npos)
          << one.pointer << ": " << read.error().message;
  }
  for (const char* field : {"name", "worlds", "launch_us", "sources", "lockstep_machine"}) {
    Json json = to_json(two_worlds());
    json.erase(field);
    const auto read = measured_machine_from_json(json);
    ASSERT_FALSE(read.ok()) << field;
    EXPECT_NE(read.error().message.find(field), std::string::npos) << read.error().message;
  }
  for (const Json& json : {Json(), Json(3), Json::array({1}), Json("x")})
    EXPECT_FALSE(measured_machine_from_json(json).ok()) << json;
}

}  // namespace
}  // namespace lockstep::planning
