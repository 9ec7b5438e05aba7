// Reads the CPU quota of control groups, version 2 (cpu.max) and version 1 (cpu.cfs_quota_us).
// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_quota.hpp"

#include <algorithm>
#include <climits>
#include <exception>
#include <fstream>
#include <sstream>
#include <string>

namespace sluice::cpu {
namespace {

/// CPUs of a quota in one period, rounded up; INT_MAX where there is none.
int cpus_of(long long quota, long long period) {
  if (quota <= 0 || period <= 0) return INT_MAX;
  return static_cast<int>(std::min<long long>((quota - 1) / period + 1, INT_MAX));
}

/// "200000 100000" or "max 100000".
int quota_of_version_2(const std::string& group) {
  long long quota = 0, period = 0;
  std::ifstream file(group + "/cpu.max");
  return file >> quota >> period ? cpus_of(quota, period) : INT_MAX;
}

int quota_of_version_1(const std::string& group) {
  long long quota = 0, period = 0;
  std::ifstream quota_file(group + "/cpu.cfs_quota_us"), period_file(group + "/cpu.cfs_period_us");
  return quota_file >> quota && period_file >> period ? cpus_of(quota, period) : INT_MAX;
}

/// The smallest quota from `path` up to the root of the tree at `mount`. In a container the path may
/// be one of the host's, of which only the root is to be seen.
int smallest(int (*quota)(const std::string& group), const std::string& mount, std::string path) {
  int cpus = quota(mount);
  while (path.size() > 1) {
    cpus = std::min(cpus, quota(mount + path));
    path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
  return cpus;
}

/// Whether a list such as "cpu,cpuacct" names the controller that has quotas.
bool has_cpu(const std::string& controllers) {
  std::istringstream names(controllers);
  for (std::string name; std::getline(names, name, ',');) {
    if (name == "cpu") return true;
  }
  return false;
}

int quota_from(const std::string& root) {
  const std::string mount = root + "/sys/fs/cgroup";
  std::ifstream groups(root + "/proc/self/cgroup");
  int cpus = INT_MAX;
  // Lines are "number:controllers:path"; version 2 has no controllers.
  for (std::string line; std::getline(groups, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string path = line.substr(second + 1);
    if (controllers.empty()) {
      cpus = std::min(cpus, smallest(quota_of_version_2, mount, path));
      cpus = std::min(cpus, smallest(quota_of_version_2, mount + "/unified", path));
    } else if (has_cpu(controllers)) {
      std::string folder = mount;
      folder.append("/").append(controllers);
      cpus = std::min(cpus, smallest(quota_of_version_1, folder, path));
      cpus = std::min(cpus, smallest(quota_of_version_1, mount + "/cpu", path));
    }
  }
  return cpus;
}

}  // namespace

int quota_cpus(const char* root) noexcept {
  try {
    const int cpus = quota_from(root);
    return cpus == INT_MAX ? 0 : cpus;
  } catch (const std::exception&) {
    return 0;  // WHY: without memory for a path there is no quota to be found, and none to obey
  }
}

int cpus_within_quota(int affine, const char* root) noexcept {
  const int quota = quota_cpus(root);
  return quota > 0 ? std::min(affine, quota) : affine;
}

}  // namespace sluice::cpu
