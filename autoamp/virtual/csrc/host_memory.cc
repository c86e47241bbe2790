#include "host_memory.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace vgpu {
namespace {

constexpr size_t kUnknown = std::numeric_limits<size_t>::max();

// One cgroup that limits this process: its own, or one above it.
struct LimitedGroup {
  std::string folder;
  size_t limit;
  bool version_1;
};

// Tests play other machines by a folder that holds "proc" and "sys".
const std::string& HostRoot() {
  static const std::string root = [] {
    const char* value = std::getenv("AUTOAMP_VGPU_HOST_ROOT");
    return std::string(value ? value : "");
  }();
  return root;
}

// The number after `key` at the beginning of a line; of the first line without a key.
size_t ReadNumber(const std::string& path, const char* key = "") {
  FILE* file = std::fopen(path.c_str(), "re");
  if (!file) return kUnknown;
  char line[256];
  size_t found = kUnknown;
  while (std::fgets(line, sizeof line, file)) {
    if (std::strncmp(line, key, std::strlen(key)) != 0) continue;
    unsigned long long value;
    if (std::sscanf(line + std::strlen(key), "%llu", &value) == 1)
      found = static_cast<size_t>(value);
    break;
  }
  std::fclose(file);
  return found;
}

size_t MemoryInfo(const char* key) {
  const size_t kib = ReadNumber(HostRoot() + "/proc/meminfo", key);
  return kib == kUnknown ? kUnknown : kib << 10;
}

size_t HostTotal() {
  static const size_t total = MemoryInfo("MemTotal:");
  return total;
}

// The path behind the second colon, if the line is of the group that counts memory.
bool MemoryGroup(const char* line, std::string* path, bool* version_1) {
  const char* kinds = std::strchr(line, ':');
  const char* end = kinds ? std::strchr(kinds + 1, ':') : nullptr;
  if (!end) return false;
  const std::string names = "," + std::string(kinds + 1, end) + ",";
  *version_1 = names.find(",memory,") != std::string::npos;
  if (!*version_1 && names != ",,") return false;
  *path = end + 1;
  while (!path->empty() && (path->back() == '\n' || path->back() == '/')) path->pop_back();
  return true;
}

std::vector<LimitedGroup> FindGroups() {
  std::vector<LimitedGroup> found;
  FILE* file = std::fopen((HostRoot() + "/proc/self/cgroup").c_str(), "re");
  if (!file) return found;
  char line[4096];
  while (std::fgets(line, sizeof line, file)) {
    std::string path;
    bool version_1;
    if (!MemoryGroup(line, &path, &version_1)) continue;
    const std::string mount = HostRoot() + (version_1 ? "/sys/fs/cgroup/memory" : "/sys/fs/cgroup");
    // Every group above limits as well. In a container the path may be the host's, which is not
    // mounted there, and the mount's root is the container's own group.
    for (;; path.resize(path.rfind('/'))) {
      const std::string folder = mount + path + "/";
      const size_t limit =
          ReadNumber(folder + (version_1 ? "memory.limit_in_bytes" : "memory.max"));
      if (limit < HostTotal()) found.push_back({folder, limit, version_1});
      if (path.rfind('/') == std::string::npos) break;
    }
  }
  std::fclose(file);
  return found;
}

// Pages of files count as used there, though the kernel drops them before it refuses anything.
size_t RoomIn(const LimitedGroup& group) {
  const size_t used =
      ReadNumber(group.folder + (group.version_1 ? "memory.usage_in_bytes" : "memory.current"));
  if (used == kUnknown) return kUnknown;
  const size_t cached = ReadNumber(group.folder + "memory.stat",
                                   group.version_1 ? "total_inactive_file " : "inactive_file ");
  const size_t held = cached == kUnknown || cached > used ? used : used - cached;
  return held < group.limit ? group.limit - held : 0;
}

}  // namespace

size_t HostAvailable() {
  size_t free = MemoryInfo("MemAvailable:");
  if (free == kUnknown) return kUnknown;
  static const std::vector<LimitedGroup> groups = FindGroups();
  size_t total = HostTotal();
  for (const auto& group : groups) {
    total = std::min(total, group.limit);
    free = std::min(free, RoomIn(group));
  }
  const size_t reserve = total / 16;
  return free > reserve ? free - reserve : 0;
}

}  // namespace vgpu
