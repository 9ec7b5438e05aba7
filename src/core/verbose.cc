// Writes the log of calls: operator, kernel, sizes, types, backend and time on one line.
// SPDX-License-Identifier: Apache-2.0
#include "core/verbose.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>

#include "core/environment.hpp"
#include "core/view_rules.hpp"

namespace sluice::core {
namespace {

/// A line that is put together piece by piece and written at once, so that those of several threads
/// do not mix. What does not fit is cut.
class Line {
 public:
  void add(const char* format, ...) noexcept __attribute__((format(printf, 2, 3))) {
    if (used_ + 2 >= sizeof text_) return;
    va_list arguments;
    va_start(arguments, format);
    const size_t room = sizeof text_ - 1 - used_;  // one is kept for the end of the line
    const int length = std::vsnprintf(text_ + used_, room, format, arguments);
    va_end(arguments);
    if (length > 0) used_ += std::min(static_cast<size_t>(length), room - 1);
  }
  /// " B 1": sizes that the operator does not have are left out.
  void size(const char* name, int64_t value) noexcept {
    if (value > 0) add(" %s %" PRId64, name, value);
  }
  void type(const char* name, const Tensor& tensor) noexcept {
    if (present(tensor)) add(" %s %s", name, type_name(tensor.dtype).text);
  }
  void rows(const Rows& rows) noexcept {
    size("B", rows.B);
    add(" T %" PRId64, rows.T);
    if (present(rows.cu_seqlens)) add(" N %" PRId64 " packed", rows.N);
  }
  void write() noexcept {
    text_[used_++] = '\n';
    std::fwrite(text_, 1, used_, stderr);
  }

 private:
  char text_[512];
  size_t used_ = 0;
};

void begin(const LoggedCall& call, Line* line) noexcept {
  line->add("sluice: %s, %s,", call.op, call.kernel);
}

void end(const LoggedCall& call, Line* line) noexcept {
  const bool on_gpu = call.device.type == SLUICE_DEVICE_CUDA;
  const std::chrono::duration<double, std::micro> taken =
      std::chrono::steady_clock::now() - call.begin;
  line->add(", %s by %s", call.backend->name, call.chosen_by);
  if (on_gpu) line->add(" on GPU %d", call.device.index);
  const double us = taken.count();
  line->add(us < 1000 ? ", %.1f us" : ", %.2f ms", us < 1000 ? us : us / 1000);
  line->add(on_gpu ? " of the host" : "");
  line->write();
}

void delta_rule(const DeltaRuleProblem& p, Line* line) noexcept {
  line->rows(p.rows);
  line->size("H", p.H), line->size("HV", p.HV), line->size("K", p.K), line->size("V", p.V);
  if (p.rule == SLUICE_RULE_LINEAR_ATTENTION) line->add(" linear attention");
  if (present(p.key_gate)) line->add(" key-wise gates");
  if (present(p.ring.k)) line->add(" replay ring");
  line->add(",");
  line->type("q", p.q);
  line->type("state", present(p.state.initial) ? p.state.initial : p.state.final);
}

}  // namespace

bool verbose() noexcept {
  static const bool on = switched_on(Variable::kVerbose);
  return on;
}

void log_call(const LoggedCall& call, const DeltaRuleProblem& problem) noexcept {
  Line line;
  begin(call, &line);
  delta_rule(problem, &line);
  end(call, &line);
}

void log_call(const LoggedCall& call, const StateFoldProblem& p) noexcept {
  Line line;
  begin(call, &line);
  line.size("P", p.P), line.size("N", p.N), line.size("S", p.S), line.size("E", p.E);
  line.size("HV", p.HV), line.size("K", p.K), line.size("V", p.V);
  line.add(",");
  line.type("initial", p.initial), line.type("entering", p.entering);
  end(call, &line);
}

void log_call(const LoggedCall& call, const ChunkStageProblem& p) noexcept {
  Line line;
  begin(call, &line);
  line.rows(p.rows);
  line.size("H", p.H), line.size("HV", p.HV), line.size("K", p.K), line.size("V", p.V);
  line.size("C", p.C);
  if (p.key_gates) line.add(" key-wise gates");
  line.add(",");
  line.type("k", p.k), line.type("values", p.values);
  line.type("g_cumsum", p.g_cumsum), line.type("A_inverse", p.A_inverse);
  end(call, &line);
}

void log_call(const LoggedCall& call, const CausalConvProblem& p) noexcept {
  Line line;
  begin(call, &line);
  line.rows(p.rows);
  line.size("D", p.G * p.C), line.size("W", p.W);
  line.add(",");
  line.type("x", p.x);
  line.type("state", present(p.state.initial) ? p.state.initial : p.state.final);
  end(call, &line);
}

void log_call(const LoggedCall& call, const GatedNormProblem& p) noexcept {
  Line line;
  begin(call, &line);
  int64_t rows = 1;
  for (int axis = 0; axis < p.x.rank - 1; ++axis) rows *= p.x.shape[axis];
  line.size("rows", rows), line.size("V", p.V);
  line.add(",");
  line.type("x", p.x);
  end(call, &line);
}

void log_call(const LoggedCall& call, const LayerProblem& p) noexcept {
  Line line;
  begin(call, &line);
  delta_rule(p.delta, &line);
  line.type("qkv", p.conv[0].x);
  line.size("W", p.conv[0].W);
  end(call, &line);
}

void log_call(const LoggedCall& call, const LayerBackwardProblem& p) noexcept {
  Line line;
  begin(call, &line);
  delta_rule(p.delta.forward, &line);
  line.type("qkv", p.conv[0].forward.x);
  line.size("W", p.conv[0].forward.W);
  end(call, &line);
}

void log_failure(const Status& status) noexcept {
  Line line;
  line.add("sluice: refused, %s", status.message);
  line.write();
}

}  // namespace sluice::core
