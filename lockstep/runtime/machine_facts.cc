#include "lockstep/runtime/machine_facts.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <sstream>
#include <thread>

#include "lockstep/base/file.h"
#include "lockstep/kernels/device.h"

namespace lockstep::runtime {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = 1 << 16;
constexpr uint64_t kNoLimit = uint64_t{1} << 60;  // version 1 writes a number near 2^63

std::optional<uint64_t> read_limit(const fs::path& file) {
  const auto text = read_file(file, kMostBytes);
  if (!text) return std::nullopt;
  uint64_t limit = 0;
  const auto parsed = std::from_chars(text->data(), text->data() + text->size(), limit);
  if (parsed.ec != std::errc() || limit >= kNoLimit) return std::nullopt;  // "max"
  return limit;
}

// Of the group at `path` under a mount and of those around it. In a container the path may be that of the
// host, of which only the mount itself is to be seen.
void take_least(const fs::path& mount, const fs::path& path, const char* file,
                std::optional<uint64_t>& least) {
  for (fs::path group = path.relative_path();; group = group.parent_path()) {
    if (const auto limit = read_limit(mount / group / file); limit && (!least || *limit < *least))
      least = limit;
    if (group.empty()) return;
  }
}

bool lists_memory(const std::string& controllers) {
  std::istringstream names(controllers);
  for (std::string name; std::getline(names, name, ',');)
    if (name == "memory") return true;
  return false;
}

}  // namespace

uint64_t MachineFacts::usable_memory_bytes() const {
  return std::min(memory_bytes, memory_limit_bytes.value_or(memory_bytes));
}

std::optional<uint64_t> cgroup_memory_limit(const CgroupFiles& files) {
  std::optional<uint64_t> least;
  const auto text = read_file(files.self, kMostBytes);
  if (!text) return least;
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {  // "4:memory:/a/b", or in version 2 "0::/a/b"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const fs::path path = line.substr(second + 1);
    if (controllers.empty()) {
      take_least(files.root, path, "memory.max", least);
      take_least(files.root / "unified", path, "memory.max", least);
    } else if (lists_memory(controllers)) {
      take_least(files.root / "memory", path, "memory.limit_in_bytes", least);
    }
  }
  return least;
}

MachineFacts machine_facts() {
  MachineFacts facts = {.num_cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency())),
                        .instruction_set = std::string(kernels::make_cpu_kernels()->name()),
                        .memory_bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                                        static_cast<uint64_t>(sysconf(_SC_PAGESIZE)),
                        .memory_limit_bytes = cgroup_memory_limit()};
  if (const auto gpus = kernels::device_facts(kernels::Device::kCuda); gpus.ok()) {
    facts.num_gpus = static_cast<int>(gpus->memory_bytes.size());
    facts.gpu_memory_bytes = std::accumulate(gpus->memory_bytes.begin(), gpus->memory_bytes.end(), 0.0);
  }
  return facts;
}

}  // namespace lockstep::runtime
