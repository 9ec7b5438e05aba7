// Fills in arguments of chunk_summary, state_fold and the prefill of pieces, and makes the calls.
// SPDX-License-Identifier: Apache-2.0
#include "parity/context_call.hpp"

#include <algorithm>
#include <numeric>

namespace sluice::check {
namespace {

TestTensor give_tensor(sluice_dtype dtype, const Array& values, std::vector<TestTensor>* tensors,
                       sluice_tensor* view) {
  TestTensor t(dtype, values);
  *view = t.view();
  tensors->push_back(t);
  return t;
}

TestTensor make_output(sluice_dtype dtype, const std::vector<int64_t>& shape, sluice_tensor* view) {
  TestTensor t(dtype, shape);
  *view = t.view();
  return t;
}

TestTensor give_indices(const std::vector<int64_t>& values, std::vector<TestTensor>* tensors,
                        sluice_tensor* view) {
  const TestTensor t = TestTensor::of_indices(values.size() % 2 == 0 ? kI32 : kI64, values);
  *view = t.view();
  tensors->push_back(t);
  return t;
}

}  // namespace

int64_t ContextConfig::tokens() const {
  return std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
}

ContextInputs::ContextInputs(const ContextConfig& config) : c_(config) {
  const int64_t T = c_.tokens(), N = static_cast<int64_t>(c_.lengths.size());
  const std::vector<int64_t> keys{1, T, c_.H, c_.K}, values{1, T, c_.HV, c_.V};
  q_ = make_keys(KeyProfile::kRandomUnit, keys, c_.seed + 1);
  k_ = make_keys(c_.keys, keys, c_.seed + 2);
  v_ = make_normal(values, c_.seed + 3);
  d_o_ = make_normal(values, c_.seed + 4);
  std::vector<int64_t> gates{1, T, c_.HV}, biases{c_.HV};
  if (c_.key_gates) gates.push_back(c_.K), biases.push_back(c_.K);
  if (c_.gate_space == SLUICE_GATE_RAW) {
    gate_ = make_normal(gates, c_.seed + 5);
    A_log_ = make_normal({c_.HV}, c_.seed + 6), dt_bias_ = make_normal(biases, c_.seed + 7);
  } else {
    gate_ = c_.key_gates ? make_key_gates(c_.gates, gates, c_.seed + 5)
                         : make_gates(c_.gates, gates, c_.seed + 5);
  }
  if (c_.rule == SLUICE_RULE_GATED_DELTA) {
    beta_ = make_betas(BetaProfile::kSigmoid, {1, T, c_.HV}, c_.seed + 8);
  }
  if (c_.initial) initial_ = make_normal(states_shape(N), c_.seed + 9);
  d_final_ = make_normal(states_shape(N), c_.seed + 10);
}

std::vector<int64_t> ContextInputs::states_shape(int64_t count) const {
  const bool kv = c_.layout == SLUICE_STATE_KV;
  return {count, c_.HV, kv ? c_.K : c_.V, kv ? c_.V : c_.K};
}

Array ContextInputs::rows_of(const Array& all, const std::vector<Piece>& pieces) const {
  if (all.size() == 0) return all;
  std::vector<int64_t> shape = all.shape;
  shape[1] = 0;
  for (const Piece& p : pieces) shape[1] += p.end - p.begin;
  Array out(shape);
  size_t row = 1, at = 0;
  for (size_t axis = 2; axis < shape.size(); ++axis) row *= static_cast<size_t>(shape[axis]);
  for (const Piece& p : pieces) {
    for (size_t i = static_cast<size_t>(p.begin) * row; i < static_cast<size_t>(p.end) * row; ++i) {
      out.values[at++] = all.values[i];
    }
  }
  return out;
}

template <class Args>
void ContextInputs::give(const std::vector<Piece>& pieces, std::vector<TestTensor>* tensors,
                         Args* args) const {
  args->struct_size = sizeof *args;
  args->options.rule = c_.rule, args->options.qk_norm = c_.qk_norm;
  args->options.gate_space = c_.gate_space;
  give_tensor(c_.io, rows_of(k_, pieces), tensors, &args->k);
  give_tensor(c_.io, rows_of(v_, pieces), tensors, &args->v);
  give_tensor(kF32, rows_of(gate_, pieces), tensors, &args->gate);
  give_tensor(kF32, rows_of(beta_, pieces), tensors, &args->beta);
  give_tensor(kF32, A_log_, tensors, &args->A_log);
  give_tensor(kF32, dt_bias_, tensors, &args->dt_bias);
  std::vector<int64_t> offsets{0};
  for (const Piece& p : pieces) offsets.push_back(offsets.back() + p.end - p.begin);
  give_indices(offsets, tensors, &args->cu_seqlens);
}

Maps ContextInputs::summary(const std::vector<Piece>& pieces, sluice_direction direction,
                            sluice_implementation implementation,
                            const std::vector<int64_t>& wanted) const {
  sluice_chunk_summary_args args{};
  std::vector<TestTensor> tensors;
  give(pieces, &tensors, &args);
  args.direction = direction, args.history = c_.history, args.implementation = implementation;
  if (direction == SLUICE_DIRECTION_REVERSE) {
    give_tensor(c_.io, rows_of(q_, pieces), &tensors, &args.q);
    give_tensor(c_.io, rows_of(d_o_, pieces), &tensors, &args.d_o);
  }
  if (!wanted.empty()) give_indices(wanted, &tensors, &args.wanted);
  const auto N = static_cast<int64_t>(pieces.size());
  const TestTensor M = make_output(kF32, {N, c_.HV, c_.K, c_.K}, &args.transition);
  const TestTensor added = make_output(kF32, {N, c_.HV, c_.K, c_.V}, &args.addend);
  const TestTensor forgotten = make_output(kBool, {N, c_.HV}, &args.forgotten);
  Maps out;
  out.outcome = call_operator(SLUICE_OP_CHUNK_SUMMARY, sluice_chunk_summary, args);
  const bool intact = M.guards_intact() && added.guards_intact() && forgotten.guards_intact();
  if (!intact) out.outcome.damage += "memory beside the maps; ";
  out.transition = M.values(), out.addend = added.values(), out.forgotten = forgotten.values();
  return out;
}

Outputs ContextInputs::forward(const std::vector<Piece>& pieces, const Array& initial,
                               sluice_implementation implementation) const {
  sluice_chunk_forward_args args{};
  std::vector<TestTensor> tensors;
  give(pieces, &tensors, &args);
  args.implementation = implementation, args.history = c_.history;
  args.state.layout = c_.layout;
  give_tensor(c_.io, rows_of(q_, pieces), &tensors, &args.q);
  give_tensor(kF32, initial, &tensors, &args.state.initial);
  const TestTensor o = make_output(c_.io, {1, args.v.shape[1], c_.HV, c_.V}, &args.o);
  const TestTensor final =
      make_output(kF32, states_shape(static_cast<int64_t>(pieces.size())), &args.state.final);
  Outputs out;
  out.outcome = call_operator(SLUICE_OP_CHUNK_FORWARD, sluice_chunk_forward, args);
  out.o = o.values(), out.final = final.values();
  return out;
}

Gradients ContextInputs::backward(const std::vector<Piece>& pieces, const Array& initial,
                                  const Array& d_final,
                                  sluice_implementation implementation) const {
  sluice_chunk_backward_args args{};
  std::vector<TestTensor> tensors;
  give(pieces, &tensors, &args);
  args.implementation = implementation, args.state_layout = c_.layout;
  give_tensor(c_.io, rows_of(q_, pieces), &tensors, &args.q);
  give_tensor(c_.io, rows_of(d_o_, pieces), &tensors, &args.d_o);
  give_tensor(kF32, initial, &tensors, &args.initial);
  give_tensor(kF32, d_final, &tensors, &args.d_final);
  const int64_t T = args.v.shape[1];
  const TestTensor dq = make_output(kF32, {1, T, c_.H, c_.K}, &args.dq);
  const TestTensor dv = make_output(kF32, {1, T, c_.HV, c_.V}, &args.dv);
  const TestTensor dinitial =
      make_output(kF32, states_shape(static_cast<int64_t>(pieces.size())), &args.dinitial);
  Gradients out;
  out.outcome = call_operator(SLUICE_OP_CHUNK_BACKWARD, sluice_chunk_backward, args);
  out.dq = dq.values(), out.dv = dv.values(), out.dinitial = dinitial.values();
  return out;
}

Folded fold(const ContextConfig& c, const Maps& maps, const std::vector<std::vector<Step>>& chains,
            const Array& initial, sluice_direction direction,
            sluice_implementation implementation) {
  sluice_state_fold_args args{};
  std::vector<TestTensor> tensors;
  args.struct_size = sizeof args;
  args.direction = direction, args.implementation = implementation, args.state_layout = c.layout;
  give_tensor(kF32, maps.transition, &tensors, &args.transition);
  give_tensor(kF32, maps.addend, &tensors, &args.addend);
  if (maps.forgotten.size() > 0) give_tensor(kBool, maps.forgotten, &tensors, &args.forgotten);
  std::vector<int64_t> offsets{0}, pieces, states;
  int64_t most = -1;
  for (const std::vector<Step>& chain : chains) {
    for (const Step& step : chain) {
      pieces.push_back(step.piece), states.push_back(step.state);
      most = std::max(most, step.state);
    }
    offsets.push_back(static_cast<int64_t>(pieces.size()));
  }
  give_indices(offsets, &tensors, &args.cu_chains);
  give_indices(pieces, &tensors, &args.route_pieces);
  give_indices(states, &tensors, &args.route_states);
  give_tensor(kF32, initial, &tensors, &args.initial);
  const bool kv = c.layout == SLUICE_STATE_KV;
  const auto shape = [&](int64_t count) {
    return std::vector<int64_t>{count, c.HV, kv ? c.K : c.V, kv ? c.V : c.K};
  };
  const TestTensor entering = make_output(kF32, shape(most + 1), &args.entering);
  const TestTensor final =
      make_output(kF32, shape(static_cast<int64_t>(chains.size())), &args.final);
  Folded out;
  out.outcome = call_operator(SLUICE_OP_STATE_FOLD, sluice_state_fold, args);
  if (!entering.guards_intact() || !final.guards_intact()) {
    out.outcome.damage += "memory beside the states; ";
  }
  out.entering = entering.values(), out.final = final.values();
  return out;
}

}  // namespace sluice::check
