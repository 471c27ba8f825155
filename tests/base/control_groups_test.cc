// What a process may use: control groups as Linux shows them, in files made by hand.
#include "lockstep/base/control_groups.h"

#include <gtest/gtest.h>

#include <thread>

#include "tests/tensors/safetensors_file.h"

namespace lockstep {
namespace {

class Cgroups : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((folder_.path() / name).parent_path());
    folder_.write(name, text);
  }
  CgroupFiles files() const { return {.self = folder_.path() / "self", .root = folder_.path() / "fs"}; }
  std::optional<uint64_t> limit() const { return cgroup_memory_limit(files()); }

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

// The least quota counts, a part of a core is no core, and a quota is never more cores than there are.
TEST_F(Cgroups, AQuotaOfCpuTimeLimitsCores) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  write("self", "0::/a/b\n");
  EXPECT_EQ(cgroup_cpu_limit(files()), std::nullopt);
  EXPECT_EQ(usable_cores(files()), cores);
  write("fs/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cpu_limit(files()), std::nullopt);
  write("fs/a/cpu.max", "100000000 100000\n");
  EXPECT_EQ(cgroup_cpu_limit(files()), 1000.0);
  EXPECT_EQ(usable_cores(files()), std::min(cores, 1000));
  write("fs/a/b/cpu.max", "190000 100000\n");
  EXPECT_EQ(cgroup_cpu_limit(files()), 1.9);
  EXPECT_EQ(usable_cores(files()), 1);
  write("fs/a/b/cpu.max", "10000 100000\n");
  EXPECT_EQ(usable_cores(files()), 1);
}

TEST_F(Cgroups, VersionOnesQuotaIsReadToo) {
  write("self", "5:cpu,cpuacct:/docker/1\n4:cpuset:/\n");
  write("fs/cpu/docker/1/cpu.cfs_quota_us", "-1\n");
  write("fs/cpu/docker/1/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cpu_limit(files()), std::nullopt);
  write("fs/cpu/docker/1/cpu.cfs_quota_us", "50000\n");
  EXPECT_EQ(cgroup_cpu_limit(files()), 0.5);
  EXPECT_EQ(usable_cores(files()), 1);
}

TEST_F(Cgroups, AQuotaThatSaysNothingLimitsNothing) {
  write("self", "0::/\n");
  for (const char* text : {"", "\n", "0 0\n", "5 0\n", "100000\n", "-1 100000\n", "a b\n"}) {
    write("fs/cpu.max", text);
    EXPECT_EQ(cgroup_cpu_limit(files()), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace lockstep
