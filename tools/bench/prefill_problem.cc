// Allocates pools on a machine and points a call's views into them.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/prefill_problem.hpp"

#include <algorithm>

#include "check/array.hpp"

namespace sluice::tools {
namespace {

// 0xff bytes are NaN in every floating type.
constexpr int kNaNByte = 0xff;

template <class Size>
int64_t largest(const std::vector<Cell>& cells, Size size) {
  int64_t most = 0;
  for (const Cell& cell : cells) most = std::max(most, size(cell));
  return most;
}

}  // namespace

PrefillInputs::PrefillInputs(const std::vector<Cell>& cells, sluice_dtype type,
                             const std::string& gate_name, sluice_dtype gate_type)
    : dtype(type),
      gate_dtype(gate_type),
      q(random_rows(largest(cells, [](const Cell& c) { return c.tokens() * c.H; }), cells.front().K,
                    true, 1.0, type, 1)),
      k(random_rows(largest(cells, [](const Cell& c) { return c.tokens() * c.H; }), cells.front().K,
                    true, 1.0, type, 2)),
      v(random_rows(largest(cells, [](const Cell& c) { return c.tokens() * c.HV; }),
                    cells.front().V, false, 1.0, type, 3)),
      beta(random_betas(largest(cells, [](const Cell& c) { return c.tokens() * c.HV; }), 4,
                        gate_type)),
      initial(random_rows(largest(cells, [](const Cell& c) { return c.units() * c.K; }),
                          cells.front().V, false, 0.1, check::kF32, 5)) {
  for (const Cell& cell : cells) {
    if (gates.contains(cell.HV)) continue;
    const int64_t tokens =
        largest(cells, [&](const Cell& c) { return c.HV == cell.HV ? c.tokens() : int64_t{0}; });
    const int64_t columns = cell.key_gates ? cell.HV * cell.K : cell.HV;
    gates.emplace(cell.HV, random_gates(gate_name, tokens, columns, 6, gate_type));
  }
}

std::vector<int32_t> offsets_of(const Cell& cell) {
  std::vector<int32_t> offsets = {0};
  for (const int64_t length : cell.lengths) {
    offsets.push_back(offsets.back() + static_cast<int32_t>(length));
  }
  return offsets;
}

PrefillProblem::PrefillProblem(Machine& machine, const PrefillInputs& inputs,
                               const std::vector<Cell>& cells, bool lengths_known)
    : machine_(machine),
      lengths_known_(lengths_known),
      dtype_(inputs.dtype),
      gate_dtype_(inputs.gate_dtype),
      norm_(inputs.norm),
      q_(uploaded(machine, inputs.q)),
      k_(uploaded(machine, inputs.k)),
      v_(uploaded(machine, inputs.v)),
      beta_(uploaded(machine, inputs.beta)),
      initial_(uploaded(machine, inputs.initial)),
      o_(machine.allocate(inputs.v.size())),
      final_(machine.allocate(inputs.initial.size())) {
  for (const auto& [HV, gates] : inputs.gates) gates_[HV] = uploaded(machine, gates);
  size_t sequences = 0;
  for (const Cell& cell : cells) sequences = std::max(sequences, cell.lengths.size());
  cu_seqlens_ = machine.allocate((sequences + 1) * sizeof(int32_t));
}

Status PrefillProblem::select(const Cell& c, const SplitWay& way, History history) {
  cell_ = c;
  upload_list(machine_, cu_seqlens_.get(), offsets_of(c));
  const sluice_device where = machine_.device();
  const int64_t T = c.tokens(), N = c.sequences();
  const DType type = DType{dtype_}, gate_type = DType{gate_dtype_};
  args_ = {};
  args_.q = TensorView(q_.get(), type, {1, T, c.H, c.K}, where);
  args_.k = TensorView(k_.get(), type, {1, T, c.H, c.K}, where);
  args_.v = TensorView(v_.get(), type, {1, T, c.HV, c.V}, where);
  args_.o = TensorView(o_.get(), type, {1, T, c.HV, c.V}, where);
  void* const gates = gates_.at(c.HV).get();
  args_.gate = c.key_gates ? TensorView(gates, gate_type, {1, T, c.HV, c.K}, where)
                           : TensorView(gates, gate_type, {1, T, c.HV}, where);
  args_.beta = TensorView(beta_.get(), gate_type, {1, T, c.HV}, where);
  args_.cu_seqlens = TensorView(cu_seqlens_.get(), kInt32, {N + 1}, where);
  args_.state.initial = TensorView(initial_.get(), kFloat32, {N, c.HV, c.K, c.V}, where);
  args_.state.final = TensorView(final_.get(), kFloat32, {N, c.HV, c.K, c.V}, where);
  args_.qk_norm = norm_;
  args_.split = way.split;
  args_.split_value = way.value;
  args_.history = history;
  if (lengths_known_) args_.max_tokens = *std::max_element(c.lengths.begin(), c.lengths.end());
  o_bytes_ = static_cast<size_t>(T * c.HV * c.V) * (dtype_.bits / 8u);
  final_bytes_ = static_cast<size_t>(N * c.HV * c.K * c.V) * sizeof(float);
  const Result<WorkspaceSize> size = workspace_size(args_);
  if (!size.ok()) return size.status;
  scratch_.reserve(machine_, size);
  return ok_status();
}

void PrefillProblem::call() { require(chunk_forward(args_, scratch_.get())); }

int64_t PrefillProblem::planned_segments() const {
  if (std::string(sluice_last_kernel()).find(".segments") == std::string::npos) return 0;
  uint32_t segments = 0;
  machine_.download_rows(&segments, scratch_.get().data, sizeof segments, sizeof segments, 1);
  return segments;
}

void PrefillProblem::poison() {
  machine_.fill(o_.get(), kNaNByte, o_bytes_);
  machine_.fill(final_.get(), kNaNByte, final_bytes_);
}

std::vector<std::byte> PrefillProblem::output(int64_t sequence, int64_t head) const {
  const auto length = cell_.lengths[static_cast<size_t>(sequence)];
  const int64_t first = offsets_of(cell_)[static_cast<size_t>(sequence)];
  const TensorView rows = args_.o.sliced(1, first, length).sliced(2, head, 1);
  const size_t row = static_cast<size_t>(cell_.V) * (dtype_.bits / 8u);
  std::vector<std::byte> out(row * static_cast<size_t>(length));
  machine_.download_rows(out.data(), rows.data, row, row * static_cast<size_t>(cell_.HV),
                         static_cast<size_t>(length));
  return out;
}

std::vector<float> PrefillProblem::final_state(int64_t sequence, int64_t head) const {
  const TensorView state = args_.state.final.sliced(0, sequence, 1).sliced(1, head, 1);
  std::vector<float> out(static_cast<size_t>(cell_.K * cell_.V));
  const size_t bytes = out.size() * sizeof(float);
  machine_.download_rows(out.data(), state.data, bytes, bytes, 1);
  return out;
}

}  // namespace sluice::tools
