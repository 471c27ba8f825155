// The memory that a process may use: control groups as Linux shows them, in files made by hand.
#include "lockstep/runtime/machine_facts.h"

#include <gtest/gtest.h>

#include "tests/tensors/safetensors_file.h"

namespace lockstep::runtime {
namespace {

class Cgroups : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    folder_.write(name, text);
  }
  std::optional<uint64_t> limit() const {
    return cgroup_memory_limit({.self = folder_.path() / "self", .root = folder_.path() / "fs"});
  }

 private:
  TempFolder folder_;
};

TEST_F(Cgroups, TheLeastOfAGroupAndThoseAroundItCounts) {
  write("self", "0::/a/b\n");
  EXPECT_EQ(limit(), std::nullopt);  // no files at all
  write("fs/a/b/memory.max", "max\n");
  EXPECT_EQ(limit(), std::nullopt);
  write("fs/a/memory.max", "3000\n");
  EXPECT_EQ(limit(), 3000u);
  write("fs/a/b/memory.max", "5000\n");
  EXPECT_EQ(limit(), 3000u);
  write("fs/a/b/memory.max", "2000\n");
  EXPECT_EQ(limit(), 2000u);
}

// In a container the process's path is often the host's, and the mount is the group itself.
TEST_F(Cgroups, AMountMayBeTheGroupItself) {
  write("self", "0::/../kubepods/pod1\n");
  write("fs/memory.max", "4096\n");
  EXPECT_EQ(limit(), 4096u);
}

TEST_F(Cgroups, VersionOneIsReadToo) {
  write("self", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/docker/1\n0::/\n");
  write("fs/memory/docker/1/memory.limit_in_bytes", "9223372036854771712\n");  // none
  EXPECT_EQ(limit(), std::nullopt);
  write("fs/memory/memory.limit_in_bytes", "7000\n");
  EXPECT_EQ(limit(), 7000u);
  write("fs/memory/docker/1/memory.limit_in_bytes", "6000\n");
  EXPECT_EQ(limit(), 6000u);
  write("fs/unified/memory.max", "500\n");
  EXPECT_EQ(limit(), 500u);
}

TEST_F(Cgroups, FilesThatSayNothingLimitNothing) {
  EXPECT_EQ(limit(), std::nullopt);
  write("self", "nonsense\n::\n4:memory\n");
  write("fs/memory.max", "-1\n");
  EXPECT_EQ(limit(), std::nullopt);
}

TEST(MachineFacts, AreThoseOfThisMachine) {
  const MachineFacts facts = machine_facts();
  EXPECT_GE(facts.num_cores, 1);
  EXPECT_FALSE(facts.instruction_set.empty());
  EXPECT_GT(facts.memory_bytes, uint64_t{1} << 20);
  EXPECT_LE(facts.usable_memory_bytes(), facts.memory_bytes);
  MachineFacts limited = facts;
  limited.memory_limit_bytes = 5;
  EXPECT_EQ(limited.usable_memory_bytes(), 5u);
}

}  // namespace
}  // namespace lockstep::runtime
