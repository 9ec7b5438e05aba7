// Allocates and fills the tensors of a chunk_backward call, and counts its work.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/backward_work.hpp"

#include <cstring>

namespace sluice::tools {
namespace {

/// A tensor of the shape and dtype of another.
TensorView alike(const TensorView& tensor, const std::shared_ptr<void>& memory) {
  TensorView view = tensor;
  view.data = memory.get();
  return view;
}

/// `rows` with so many bytes in front.
Bytes behind(size_t shift, const Bytes& rows) {
  Bytes all(shift + rows.size());
  std::memcpy(all.data() + shift, rows.data(), rows.size());
  return all;
}

}  // namespace

double backward_flops(const Cell& c) noexcept {
  return 22.0 * static_cast<double>(c.K * c.V * c.HV) * static_cast<double>(c.tokens());
}

double backward_bytes(const Cell& c, int64_t element_bytes) noexcept {
  const int64_t per_token = element_bytes * (4 * c.H * c.K + 3 * c.HV * c.V) + 16 * c.HV;
  return static_cast<double>(per_token) * static_cast<double>(c.tokens()) +
         12.0 * static_cast<double>(c.K * c.V) * static_cast<double>(c.units());
}

BackwardWork::BackwardWork(Machine& machine, const PrefillInputs& inputs,
                           const std::vector<Cell>& cells, Implementation backend, bool unaligned)
    : machine_(machine),
      problem_(machine, inputs, cells, true),
      backend_(backend),
      shift_(unaligned ? inputs.dtype.bits / 8u : 0u),
      q_(unaligned ? uploaded(machine, behind(shift_, inputs.q)) : nullptr),
      k_(unaligned ? uploaded(machine, behind(shift_, inputs.k)) : nullptr),
      v_(unaligned ? uploaded(machine, behind(shift_, inputs.v)) : nullptr),
      d_o_(uploaded(machine, behind(shift_, inputs.v))),
      d_final_(uploaded(machine, inputs.initial)),
      dq_(machine.allocate(shift_ + inputs.q.size())),
      dk_(machine.allocate(shift_ + inputs.k.size())),
      dv_(machine.allocate(shift_ + inputs.v.size())),
      dgate_(machine.allocate(inputs.beta.size())),
      dbeta_(machine.allocate(inputs.beta.size())),
      dinitial_(machine.allocate(inputs.initial.size())) {}

void BackwardWork::select(const Cell& cell, const SplitWay& way) {
  require(problem_.select(cell, SplitWay{}, History::kForget));
  forward_ = problem_.args();
  forward_.qk_norm = QkNorm::kL2;
  forward_.implementation = backend_;
  backward_ = {};
  const auto rows = [&](const TensorView& as, const std::shared_ptr<void>& memory) {
    if (memory == nullptr) return as;
    TensorView view = alike(as, memory);
    view.data = static_cast<std::byte*>(view.data) + shift_;
    return view;
  };
  backward_.q = rows(forward_.q, q_), backward_.k = rows(forward_.k, k_);
  backward_.v = rows(forward_.v, v_);
  backward_.gate = forward_.gate, backward_.beta = forward_.beta;
  if (cell.sequences() > 1) backward_.cu_seqlens = forward_.cu_seqlens;
  forward_.cu_seqlens = backward_.cu_seqlens;
  backward_.initial = forward_.state.initial;
  backward_.d_o = rows(forward_.v, d_o_);
  backward_.d_final = alike(forward_.state.initial, d_final_);
  backward_.dq = rows(forward_.q, dq_), backward_.dk = rows(forward_.k, dk_);
  backward_.dv = rows(forward_.v, dv_);
  backward_.dgate = alike(forward_.gate, dgate_), backward_.dbeta = alike(forward_.beta, dbeta_);
  backward_.dinitial = alike(forward_.state.initial, dinitial_);
  backward_.qk_norm = QkNorm::kL2;
  backward_.implementation = backend_;
  backward_.split = way.split, backward_.split_value = way.value;
  scratch_.reserve(machine_, workspace_size(forward_));
  backward_size_ = scratch_.reserve(machine_, workspace_size(backward_));
}

void BackwardWork::forward() { require(chunk_forward(forward_, scratch_.get())); }

void BackwardWork::backward() { require(chunk_backward(backward_, scratch_.get())); }

}  // namespace sluice::tools
