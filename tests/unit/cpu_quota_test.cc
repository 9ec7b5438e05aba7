// Measures how a container's CPU quota is read: control groups of both versions, as files in a folder
// that stands for the machine's.
// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_quota.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace sluice::cpu {
namespace {

namespace fs = std::filesystem;

class CpuQuota : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "sluice-quota-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
  }
  void TearDown() override { fs::remove_all(root_); }

  void file(const std::string& name, const std::string& text) const {
    fs::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  [[nodiscard]] int quota() const { return quota_cpus(root_.c_str()); }

  fs::path root_;
};

TEST_F(CpuQuota, NoGroupsAreNoQuota) {
  EXPECT_EQ(quota(), 0);
  file("proc/self/cgroup", "0::/\n");
  EXPECT_EQ(quota(), 0);
  file("sys/fs/cgroup/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 0);
}

TEST_F(CpuQuota, OfVersionTwoIsRoundedUp) {
  file("proc/self/cgroup", "0::/\n");
  file("sys/fs/cgroup/cpu.max", "400000 100000\n");
  EXPECT_EQ(quota(), 4);
  file("sys/fs/cgroup/cpu.max", "250000 100000\n");
  EXPECT_EQ(quota(), 3);
  file("sys/fs/cgroup/cpu.max", "1000 100000\n");
  EXPECT_EQ(quota(), 1);
}

TEST_F(CpuQuota, TheTightestGroupAroundTheProcessCounts) {
  file("proc/self/cgroup", "0::/kube/pod/container\n");
  file("sys/fs/cgroup/kube/pod/container/cpu.max", "max 100000\n");
  file("sys/fs/cgroup/kube/pod/cpu.max", "150000 50000\n");
  file("sys/fs/cgroup/kube/cpu.max", "800000 100000\n");
  EXPECT_EQ(quota(), 3);
}

TEST_F(CpuQuota, AHostsPathLeavesTheRootOfTheContainer) {
  file("proc/self/cgroup", "0::/host/only\n");
  file("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(quota(), 2);
}

TEST_F(CpuQuota, OfVersionOne) {
  file("proc/self/cgroup", "12:memory:/x\n4:cpu,cpuacct:/docker/1\n3:cpuset:/y\n");
  file("sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_quota_us", "600000\n");
  file("sys/fs/cgroup/cpu,cpuacct/docker/1/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 6);
  file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000\n");
  file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), 2);
  file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(quota(), 6);
}

TEST_F(CpuQuota, BoundsTheThreads) {
  const auto threads = [&](int affine) { return cpus_within_quota(affine, root_.c_str()); };
  EXPECT_EQ(threads(7), 7) << "without a quota";
  file("proc/self/cgroup", "0::/\n");
  file("sys/fs/cgroup/cpu.max", "350000 100000\n");
  EXPECT_EQ(threads(128), 4);
  EXPECT_EQ(threads(3), 3);
}

TEST_F(CpuQuota, NonsenseIsNoQuota) {
  file("proc/self/cgroup", "nonsense\n:\n0::\n");
  file("sys/fs/cgroup/cpu.max", "many few\n");
  EXPECT_EQ(quota(), 0);
  file("sys/fs/cgroup/cpu.max", "-5 100000\n");
  EXPECT_EQ(quota(), 0);
  file("sys/fs/cgroup/cpu.max", "100000 0\n");
  EXPECT_EQ(quota(), 0);
}

}  // namespace
}  // namespace sluice::cpu
