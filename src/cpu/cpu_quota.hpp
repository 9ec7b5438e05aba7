// Tells how many CPUs a container's quota pays for.
// SPDX-License-Identifier: Apache-2.0
#ifndef SLUICE_CPU_CPU_QUOTA_HPP_
#define SLUICE_CPU_CPU_QUOTA_HPP_

namespace sluice::cpu {

/// The smallest quota of the process's control group and those around it, in CPUs, rounded up; 0
/// where there is none. `root` stands before the paths /proc/self/cgroup and /sys/fs/cgroup, which is
/// for tests.
int quota_cpus(const char* root = "") noexcept;

/// As many of the `affine` CPUs that a process may run on as its quota pays for: more threads would be
/// stopped for the rest of each period.
int cpus_within_quota(int affine, const char* root = "") noexcept;

}  // namespace sluice::cpu

#endif  // SLUICE_CPU_CPU_QUOTA_HPP_
