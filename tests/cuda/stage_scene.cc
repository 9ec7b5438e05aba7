// Lays out the tensors of one stage call by its config and seed, and makes the call.
// SPDX-License-Identifier: Apache-2.0
#include "stage_scene.hpp"

#include <cmath>
#include <limits>
#include <memory>
#include <numeric>

#include "check/device_copy.hpp"
#include "parity/far_pads.hpp"

namespace sluice::check {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

int64_t chunks_of(int64_t tokens, int64_t C) { return (tokens + C - 1) / C; }

Array scaled(Array array, double factor) {
  for (double& x : array.values) x *= factor;
  return array;
}

/// Every tensor that a stage may name.
class Scene {
 public:
  Scene(const StageConfig& c, bool exact) : c_(c), exact_(exact) {
    const int64_t B = c.packed() ? 1 : c.B, T = c.rows();
    if (c.packed()) {
      std::vector<int64_t> offsets{0};
      for (const int64_t length : c.lengths) offsets.push_back(offsets.back() + length);
      cu_ = TestTensor::of_indices(c.index, offsets);
      args_.cu_seqlens = cu_.view();
    }
    inputs(B, T);
    states();
    outputs(B, T);
    options();
  }

  StageResult run(sluice_implementation implementation) {
    args_.implementation = implementation;
    StageResult result;
    sluice_chunk_stage_args args = args_;
    if (implementation == SLUICE_IMPL_CUDA) {
      const std::unique_ptr<DeviceCopy> device = make_device_copy();
      std::vector<sluice_tensor*> tensors = {&args.q,
                                             &args.k,
                                             &args.v,
                                             &args.gate,
                                             &args.A_log,
                                             &args.dt_bias,
                                             &args.beta,
                                             &args.g_cumsum,
                                             &args.A,
                                             &args.w,
                                             &args.u,
                                             &args.v_new,
                                             &args.A_inverse,
                                             &args.h,
                                             &args.o,
                                             &args.cu_seqlens,
                                             &args.state.initial,
                                             &args.state.final,
                                             &args.state.read_slots,
                                             &args.state.write_slots,
                                             &args.state.has_initial_state};
      const FarPads far(args);
      device->upload(tensors);
      result.code = call(&args, *device);
      result.message = sluice_last_error();
      result.damage = device->download();
    } else {
      size_t bytes = 0;
      result.code = sluice_workspace_size(SLUICE_OP_CHUNK_STAGE, &args, &bytes);
      TestWorkspace workspace(bytes);
      if (result.code == SLUICE_OK) {
        result.code = sluice_chunk_stage(&args, workspace.get(), nullptr);
      }
      result.message = sluice_last_error();
    }
    result.kernel = sluice_last_kernel();
    for (auto& [name, tensor] : written_) {
      result.outputs.emplace_back(name, tensor.values());
      if (!tensor.guards_intact()) result.damage += "memory around " + name + "; ";
    }
    for (const TestTensor& tensor : read_) {
      if (!tensor.guards_intact()) result.damage += "memory around an input; ";
    }
    return result;
  }

 private:
  static int call(sluice_chunk_stage_args* args, DeviceCopy& device) {
    size_t bytes = 0;
    const int code = sluice_workspace_size(SLUICE_OP_CHUNK_STAGE, args, &bytes);
    return code != SLUICE_OK ? code
                             : sluice_chunk_stage(args, device.workspace(bytes, 0xff), nullptr);
  }

  sluice_tensor input(sluice_dtype dtype, const Array& values) {
    read_.emplace_back(dtype, values, values.shape.size() == 4 ? c_.placement : Placement::kDense);
    return read_.back().view();
  }
  /// A head-first placement exchanges tokens and heads, of scalars too.
  sluice_tensor scalars(sluice_dtype dtype, const Array& values) {
    const bool head_first = c_.placement == Placement::kHeadFirst;
    read_.emplace_back(dtype, values, head_first ? Placement::kHeadFirst : Placement::kDense);
    return read_.back().view();
  }
  sluice_tensor output(const std::string& name, sluice_dtype dtype, std::vector<int64_t> shape) {
    const bool rows = shape.size() == 4 && name != "state";
    const Placement placement = rows || shape.size() == 3 ? c_.placement : Placement::kDense;
    const auto place =
        shape.size() == 3 && placement == Placement::kFusedRow ? Placement::kDense : placement;
    written_.emplace_back(name, TestTensor(exact_ ? kF32 : dtype, std::move(shape), place));
    return written_.back().second.view();
  }

  bool is(sluice_stage stage) const { return c_.stage == stage; }

  /// Sums of the gates inside chunks, as chunk_cumsum has them.
  Array sums(const Array& g) const {
    Array out = g;
    const int64_t width = c_.HV * (c_.key_gates ? c_.K : 1);
    int64_t row = 0;
    const std::vector<int64_t> whole{c_.rows()};
    for (const int64_t tokens : c_.packed() ? c_.lengths : whole) {
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t b = 0; b < g.shape[0]; ++b) {
          for (int64_t j = 0; j < width; ++j) {
            const auto at = static_cast<size_t>((b * g.shape[1] + row + t) * width + j);
            const double before = t % c_.C == 0 ? 0.0 : out.values[at - static_cast<size_t>(width)];
            out.values[at] = before + std::max(g.values[at], -128.0);
          }
        }
      }
      row += tokens;
    }
    return out;
  }

  /// A strict triangle (with ones on the diagonal: an inverse), NaN in what nobody may read.
  Array triangle(int64_t B, int64_t T, bool inverse) const {
    Array out = scaled(make_normal({B, T, c_.HV, c_.C}, c_.seed + 7), 0.15);
    const bool upper = c_.triangle == SLUICE_TRIANGLE_UPPER;
    const std::vector<int64_t> whole{T};
    int64_t row = 0;
    for (const int64_t tokens : c_.packed() ? c_.lengths : whole) {
      for (int64_t t = 0; t < tokens; ++t, ++row) {
        const int64_t i = t % c_.C, n = std::min(c_.C, tokens - (t - i));
        for (int64_t b = 0; b < B; ++b) {
          for (int64_t h = 0; h < c_.HV; ++h) {
            for (int64_t j = 0; j < c_.C; ++j) {
              const bool read = j < n && (upper ? j > i : j < i);
              if (inverse && j == i) out(b, row, h, j) = 1.0;
              if (c_.ones) out(b, row, h, j) = 1.0;
              if (!read && !(inverse && j == i)) out(b, row, h, j) = kNaN;
            }
          }
        }
      }
    }
    return out;
  }

  void inputs(int64_t B, int64_t T) {
    const std::vector<int64_t> keys{B, T, c_.H, c_.K}, values{B, T, c_.HV, c_.V};
    args_.q = input(c_.io, make_keys(KeyProfile::kRandomUnit, keys, c_.seed + 1));
    args_.k = input(c_.io, make_keys(KeyProfile::kSiluLike, keys, c_.seed + 2));
    args_.v = input(c_.io, make_values(ValueProfile::kRandom, values, c_.seed + 3));
    Array g = c_.key_gates ? make_key_gates(c_.gates, {B, T, c_.HV, c_.K}, c_.seed + 4)
                           : make_gates(c_.gates, {B, T, c_.HV}, c_.seed + 4);
    for (double& x : g.values) x += c_.growth;
    const bool sums_gates = is(SLUICE_STAGE_CHUNK_CUMSUM) || is(SLUICE_STAGE_CUMSUM_KKT);
    if (!g.empty() && (!c_.summed || sums_gates)) {
      args_.gate = scalars(c_.gate, in_their_space(std::move(g)));
    } else if (!g.empty()) {
      args_.g_cumsum = scalars(kF32, sums(g));
    }
    if (c_.has_beta) {
      args_.beta = scalars(c_.beta, make_betas(BetaProfile::kSigmoid, {B, T, c_.HV}, c_.seed + 5));
    }
    if (is(SLUICE_STAGE_SOLVE_TRIL) || is(SLUICE_STAGE_SOLVE_WY)) {
      args_.A = input(c_.A, triangle(B, T, false));
    }
    if (is(SLUICE_STAGE_WY_FAST)) {
      args_.A_inverse =
          input(c_.A_inverse, c_.inverse != nullptr ? *c_.inverse : triangle(B, T, true));
    }
    if (is(SLUICE_STAGE_CHUNK_H)) {
      args_.u = input(c_.io, make_normal(values, c_.seed + 8));
      args_.w = input(c_.io, scaled(make_normal({B, T, c_.HV, c_.K}, c_.seed + 9), 0.02));
    }
    if (is(SLUICE_STAGE_CHUNK_O)) {
      args_.v_new = input(c_.io, make_normal(values, c_.seed + 10));
      if (c_.with_h) {
        args_.h = input(c_.h, make_normal(h_shape(B), c_.seed + 11));
      }
    }
  }

  /// Gates as gate_space has them, and the parameters of raw ones.
  Array in_their_space(Array g) {
    args_.gate_space = c_.gate_space;
    if (c_.gate_space == SLUICE_GATE_LINEAR) {
      for (double& x : g.values) x = std::exp(x);
    }
    if (c_.gate_space == SLUICE_GATE_RAW_BOUNDED) args_.gate_lower_bound = -5;
    if (c_.gate_space == SLUICE_GATE_RAW) {
      std::vector<int64_t> shape{c_.HV};
      args_.A_log = input(c_.gate, make_normal(shape, c_.seed + 14));
      if (c_.key_gates) shape.push_back(c_.K);
      args_.dt_bias = input(kF32, make_normal(shape, c_.seed + 15));
    }
    return c_.gate_space < SLUICE_GATE_RAW ? g : make_normal(g.shape, c_.seed + 4);
  }

  std::vector<int64_t> h_shape(int64_t B) const {
    const bool kv = c_.layout == SLUICE_STATE_KV;
    return {B, c_.chunks(), c_.HV, kv ? c_.K : c_.V, kv ? c_.V : c_.K};
  }

  void states() {
    const bool carries = is(SLUICE_STAGE_CHUNK_H) || (is(SLUICE_STAGE_CHUNK_O) && !c_.with_h);
    if (!carries) return;
    const bool kv = c_.layout == SLUICE_STATE_KV;
    const int64_t N = c_.sequences(), pool = N + 2;
    const std::vector<int64_t> shape{pool, c_.HV, kv ? c_.K : c_.V, kv ? c_.V : c_.K};
    if (c_.has_initial) {
      args_.state.initial = input_pool(make_normal(shape, c_.seed + 12));
    }
    written_.emplace_back("final", TestTensor(exact_ ? kF32 : c_.state, shape));
    args_.state.final = written_.back().second.view();
    if (!c_.slots) return;
    // Backwards, the last sequence is padded.
    std::vector<int64_t> slots(static_cast<size_t>(N));
    for (int64_t n = 0; n < N; ++n) slots[static_cast<size_t>(n)] = n + 1 == N ? 0 : N - n;
    read_.push_back(TestTensor::of_indices(c_.index, slots));
    args_.state.read_slots = args_.state.write_slots = read_.back().view();
    args_.state.pad_below = 1;
  }
  sluice_tensor input_pool(const Array& values) {
    read_.emplace_back(c_.state, values);
    return read_.back().view();
  }

  std::vector<int64_t> gates_shape(int64_t B, int64_t T) const {
    return c_.key_gates ? std::vector<int64_t>{B, T, c_.HV, c_.K}
                        : std::vector<int64_t>{B, T, c_.HV};
  }

  void outputs(int64_t B, int64_t T) {
    const std::vector<int64_t> values{B, T, c_.HV, c_.V}, matrix{B, T, c_.HV, c_.C};
    switch (c_.stage) {
      case SLUICE_STAGE_CHUNK_CUMSUM:
        args_.g_cumsum = output("g_cumsum", kF32, gates_shape(B, T));
        break;
      case SLUICE_STAGE_SCALED_DOT_KKT:
        args_.A = output("A", c_.A, matrix);
        break;
      case SLUICE_STAGE_SOLVE_TRIL:
        args_.A_inverse = output("A_inverse", c_.A_inverse, matrix);
        break;
      case SLUICE_STAGE_CUMSUM_KKT:
        args_.g_cumsum = output("g_cumsum", kF32, gates_shape(B, T));
        args_.A = output("A", c_.A, matrix);
        break;
      case SLUICE_STAGE_SOLVE_WY:
        if (c_.with_inverse) args_.A_inverse = output("A_inverse", c_.A_inverse, matrix);
        [[fallthrough]];
      case SLUICE_STAGE_WY_FAST:
        args_.u = output("u", c_.io, values);
        args_.w = output("w", c_.io, {B, T, c_.HV, c_.K});
        break;
      case SLUICE_STAGE_CHUNK_H:
        if (c_.with_h) args_.h = output("h", c_.h, h_shape(B));
        if (c_.rule == SLUICE_RULE_GATED_DELTA) args_.v_new = output("v_new", c_.io, values);
        break;
      case SLUICE_STAGE_CHUNK_O:
        args_.o = output("o", c_.io, values);
        break;
    }
  }

  void options() {
    args_.struct_size = sizeof args_;
    args_.stage = c_.stage;
    args_.chunk_size = c_.default_chunk ? 0 : static_cast<int32_t>(c_.C);
    args_.rule = c_.rule;
    args_.head_map = c_.head_map;
    args_.direction = c_.direction;
    args_.triangle = c_.triangle;
    args_.state.layout = c_.layout;
    if (c_.matrices == SLUICE_MATRICES_BATCHED) batch();
  }
  /// The rows of one chunk as matrices [B, HV, n, n].
  void batch() {
    args_.matrices = SLUICE_MATRICES_BATCHED;
    for (sluice_tensor* t : {&args_.A, &args_.A_inverse}) {
      std::swap(t->shape[1], t->shape[2]);
      std::swap(t->stride[1], t->stride[2]);
    }
  }

  const StageConfig& c_;
  bool exact_;
  sluice_chunk_stage_args args_{};
  TestTensor cu_;
  std::vector<TestTensor> read_;
  std::vector<std::pair<std::string, TestTensor>> written_;
};

}  // namespace

int64_t StageConfig::rows() const {
  return packed() ? std::accumulate(lengths.begin(), lengths.end(), int64_t{3}) : T;
}

int64_t StageConfig::chunks() const {
  if (!packed()) return chunks_of(T, C) + 1;
  int64_t count = 1;
  for (const int64_t tokens : lengths) count += chunks_of(tokens, C);
  return count - h_missing;
}

StageResult run_stage(const StageConfig& config, sluice_implementation implementation, bool exact) {
  return Scene(config, exact).run(implementation);
}

}  // namespace sluice::check
