#include "promised.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <vector>

namespace vgpu {
namespace {

struct Promised {
  size_t bytes;
  // All pages were there once: no need to look again.
  bool kept;
};

std::atomic<size_t> promised_bytes{0};

std::mutex& PromiseLock() {
  static std::mutex lock;
  // A child that is forked while another thread holds it could never take it.
  static const int installed = pthread_atfork([] { PromiseLock().lock(); },
                                              [] { PromiseLock().unlock(); },
                                              [] { PromiseLock().unlock(); });
  (void)installed;
  return lock;
}

std::map<void*, Promised>& Promises() {
  static auto* promises = new std::map<void*, Promised>;
  return *promises;
}

size_t MissingBytes(void* pages, size_t bytes) {
  static const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  // In parts, so that the answers need little memory themselves.
  constexpr size_t kPart = 256 << 20;
  static thread_local std::vector<unsigned char> there;
  size_t missing = 0;
  for (size_t at = 0; at < bytes; at += kPart) {
    const size_t length = std::min(kPart, bytes - at), count = (length + page - 1) / page;
    there.resize(count);
    if (mincore(static_cast<char*>(pages) + at, length, there.data()) != 0) continue;
    for (size_t i = 0; i < count; ++i) missing += (there[i] & 1) ? 0 : page;
  }
  return missing;
}

}  // namespace

void Promise(void* pages, size_t bytes) {
  std::lock_guard<std::mutex> hold(PromiseLock());
  Promises()[pages] = {bytes, false};
  promised_bytes += bytes;
}

void ForgetPromise(void* pages) {
  std::lock_guard<std::mutex> hold(PromiseLock());
  auto found = Promises().find(pages);
  if (found == Promises().end()) return;
  promised_bytes -= found->second.bytes;
  Promises().erase(found);
}

size_t PromisedBytes() { return promised_bytes; }

size_t UntouchedBytes() {
  std::lock_guard<std::mutex> hold(PromiseLock());
  size_t missing = 0;
  for (auto& [pages, promise] : Promises()) {
    if (promise.kept) continue;
    const size_t here = MissingBytes(pages, promise.bytes);
    promise.kept = here == 0;
    missing += here;
  }
  return missing;
}

}  // namespace vgpu
