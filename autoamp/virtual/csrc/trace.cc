#include "trace.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <sstream>
#include <vector>

namespace vgpu {
namespace {

struct Entry {
  char direction;  // 'k' for a kernel, else a copy
  Work work;
  double bytes;
  std::string name;
};
using Trace = std::deque<Entry>;

bool tracing = false;
Trace recorded;
std::vector<Trace> loaded;

}  // namespace

void StartTrace() {
  recorded.clear();
  tracing = true;
}
bool IsTracing() { return tracing; }
void Record(const Work& work) { recorded.push_back({'k', work, 0, work.name}); }
void RecordCopy(char direction, double bytes) { recorded.push_back({direction, {}, bytes, ""}); }

bool SaveTrace(const char* path) {
  tracing = false;
  FILE* file = std::fopen(path, "w");
  if (!file) return false;
  for (auto& e : recorded) {
    if (e.direction != 'k') {
      std::fprintf(file, "%c %.0f\n", e.direction, e.bytes);
      continue;
    }
    const Work& w = e.work;
    std::fprintf(file, "k %s %d %d %.0f %.0f %.0f %.0f %.0f %d %d %d", e.name.c_str(),
                 static_cast<int>(w.kind), static_cast<int>(w.unit), w.element_bytes, w.bytes,
                 w.extra_bytes, w.transposed_bytes, w.row_multiple, w.winograd ? 1 : 0,
                 w.from_program ? 1 : 0, w.product_count);
    for (int i = 0; i < w.product_count; ++i)
      std::fprintf(file, " %.3f %.3f %.3f %.0f", w.products[i].m, w.products[i].n,
                   w.products[i].k, w.products[i].batch);
    // At the end, so that traces without repeats read as before.
    for (int i = 0; i < w.product_count; ++i) std::fprintf(file, " %.0f", w.products[i].times);
    std::fputc('\n', file);
  }
  return std::fclose(file) == 0;
}

int LoadTrace(const char* path) {
  FILE* file = std::fopen(path, "r");
  if (!file) return -1;
  Trace trace;
  char line[1024];
  while (std::fgets(line, sizeof line, file)) {
    std::istringstream in(line);
    Entry e{};
    in >> e.direction;
    if (e.direction != 'k') {
      in >> e.bytes;
    } else {
      int kind, unit, winograd, program;
      Work& w = e.work;
      in >> e.name >> kind >> unit >> w.element_bytes >> w.bytes >> w.extra_bytes >>
          w.transposed_bytes >> w.row_multiple >> winograd >> program >> w.product_count;
      w.kind = static_cast<WorkKind>(kind);
      w.unit = static_cast<Unit>(unit);
      w.winograd = winograd != 0;
      w.from_program = program != 0;
      w.product_count = std::min(w.product_count, kMaxProducts);
      for (int i = 0; i < w.product_count; ++i) {
        Product& p = w.products[i];
        in >> p.m >> p.n >> p.k >> p.batch;
      }
      for (int i = 0; i < w.product_count; ++i) {
        Product& p = w.products[i];
        if (double times; in >> times) p.times = times;
        w.flops += 2 * p.m * p.n * p.k * p.batch * p.times;
      }
    }
    trace.push_back(std::move(e));
  }
  std::fclose(file);
  loaded.push_back(std::move(trace));
  return static_cast<int>(loaded.size()) - 1;
}

double ReplayTrace(int number, bool as_program) {
  if (number < 0 || number >= static_cast<int>(loaded.size())) return -1;
  Timeline timeline;
  for (auto& e : loaded[number]) {
    if (e.direction == '>') timeline.CopyToDevice(e.bytes);
    if (e.direction == '<') timeline.CopyToHost(e.bytes);
    if (e.direction == '=') timeline.CopyWithin(e.bytes);
    if (e.direction != 'k') continue;
    Work work = e.work;
    work.from_program = work.from_program || as_program;
    timeline.Issue(work);
  }
  return timeline.seconds();
}

}  // namespace vgpu
