#include "lockstep/base/control_groups.h"

#include <algorithm>
#include <charconv>
#include <functional>
#include <sstream>
#include <string>
#include <thread>

#include "lockstep/base/file.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = 1 << 16;
constexpr uint64_t kNoLimit = uint64_t{1} << 60;  // version 1 writes a number near 2^63

// None for "max" and for -1.
std::optional<uint64_t> number_in(const std::string& text) {
  uint64_t number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || number >= kNoLimit) return std::nullopt;
  return number;
}

std::optional<uint64_t> read_number(const fs::path& file) {
  const auto text = read_file(file, kMostBytes);
  return text ? number_in(*text) : std::nullopt;
}

std::optional<double> cores_of(std::optional<uint64_t> quota, std::optional<uint64_t> period) {
  if (!quota || !period || *quota == 0 || *period == 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

// "200000 100000", in microseconds; "max 100000" where there is no quota.
std::optional<double> read_cpu_max(const fs::path& group) {
  const auto text = read_file(group / "cpu.max", kMostBytes);
  if (!text) return std::nullopt;
  std::istringstream words(*text);
  std::string quota, period;
  words >> quota >> period;
  return cores_of(number_in(quota), number_in(period));
}

std::optional<double> read_cfs_quota(const fs::path& group) {
  return cores_of(read_number(group / "cpu.cfs_quota_us"), read_number(group / "cpu.cfs_period_us"));
}

bool lists(const std::string& controllers, std::string_view controller) {
  std::istringstream names(controllers);
  for (std::string name; std::getline(names, name, ',');)
    if (name == controller) return true;
  return false;
}

template <class T>
using Reader = std::function<std::optional<T>(const fs::path& group)>;

// Of the group at `path` under a mount and of those around it. In a container the path may be that of the
// host, of which only the mount itself is to be seen.
template <class T>
void take_least(const fs::path& mount, const fs::path& path, const Reader<T>& read, std::optional<T>& least) {
  for (fs::path group = path.relative_path();; group = group.parent_path()) {
    if (const auto limit = read(mount / group); limit && (!least || *limit < *least)) least = limit;
    if (group.empty()) return;
  }
}

template <class T>
std::optional<T> least_limit(const CgroupFiles& files, const std::string& controller,
                             const Reader<T>& version_2, const Reader<T>& version_1) {
  std::optional<T> least;
  const auto text = read_file(files.self, kMostBytes);
  if (!text) return least;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {  // "4:memory:/a/b", or in version 2 "0::/a/b"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path path = line.substr(second + 1);
    if (controllers.empty()) {
      take_least(files.root, path, version_2, least);
      take_least(files.root / "unified", path, version_2, least);
    } else if (lists(controllers, controller)) {
      take_least(files.root / controller, path, version_1, least);
    }
  }
  return least;
}

}  // namespace

std::optional<uint64_t> cgroup_memory_limit(const CgroupFiles& files) {
  return least_limit<uint64_t>(
      files, "memory", [](const fs::path& group) { return read_number(group / "memory.max"); },
      [](const fs::path& group) { return read_number(group / "memory.limit_in_bytes"); });
}

std::optional<double> cgroup_cpu_limit(const CgroupFiles& files) {
  return least_limit<double>(files, "cpu", read_cpu_max, read_cfs_quota);
}

int usable_cores(const CgroupFiles& files) {
  const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const auto limit = cgroup_cpu_limit(files);
  return limit && *limit < cores ? std::max(1, static_cast<int>(*limit)) : cores;
}

}  // namespace lockstep
