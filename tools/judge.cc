// Chooses tolerances for the tensors of a case and compares them.
// SPDX-License-Identifier: Apache-2.0
#include "tools/judge.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "check/gdn_case.hpp"
#include "tools/execute.hpp"

namespace sluice::tools {
namespace {

using check::Array;
using check::Comparison;
using check::Conditioning;
using check::Quantity;
using check::Tolerance;

// Mean cosine of keys above which the tolerances for correlated keys hold: between the .12 of a
// convolution with SiLU and the .75 that those tolerances were set at.
constexpr double kCorrelatedCosine = 0.5;

std::string last_part(const std::string& tensor) {
  const size_t dot = tensor.rfind('.');
  return dot == std::string::npos ? tensor : tensor.substr(dot + 1);
}

std::vector<int64_t> cu_seqlens_of(const io::CaseFile& file, const io::Case& c) {
  const io::TensorEntry* entry = file.find(c, "cu_seqlens");
  return entry == nullptr ? std::vector<int64_t>() : io::read_integers(*entry);
}

// Tensors whose rows are no tokens.
bool is_state(const std::string& tensor) {
  return last_part(tensor) == "final_state" || tensor == "h" || tensor == "d_initial_state";
}

// Rows that a comparison of tokens would visit.
bool has_rows(const Array& truth, const std::vector<int64_t>& cu_seqlens) {
  return truth.size() > 0 && (cu_seqlens.empty() || cu_seqlens.back() > 0);
}

Comparison compare(const io::CaseFile& file, const io::Case& c, const std::string& tensor,
                   const Array& actual, const Array& truth) {
  sluice_tensor x = check::view_of(actual), ref = check::view_of(truth);
  const std::string part = last_part(tensor);
  const bool recurrent_state =
      (part == "final_state" && c.op != io::CaseOp::kConv1d) || part == "d_initial_state";
  if (recurrent_state && x.rank == 4 && ref.rank == 4) return check::compare_states(x, ref);
  // Chunks are to h what tokens are to outputs.
  if (part == "h" && x.rank == 5 && ref.rank == 5) return check::compare_tokens(x, ref);
  const bool whole = c.op == io::CaseOp::kGatedNorm || part == "final_state" ||
                     part == "final_conv_state" || x.rank != ref.rank || x.rank < 3;
  if (whole) return check::compare_whole(x, ref);
  for (sluice_tensor* view : {&x, &ref}) {
    if (view->rank != 3) continue;  // [B,T,D] is one head of D
    view->rank = 4;
    view->shape[3] = view->shape[2];
    view->stride[3] = view->stride[2];
    view->shape[2] = 1;
    view->stride[2] = view->shape[3];
  }
  return check::compare_tokens(x, ref, cu_seqlens_of(file, c));
}

// Mean over batch entries and heads of the mean cosine between two keys: |sum of unit keys|^2 /
// T^2.
double mean_cosine(const Array& keys) {
  if (keys.size() == 0) return 0.0;
  const int64_t B = keys.shape[0], T = keys.shape[1], H = keys.shape[2], K = keys.shape[3];
  double total = 0.0;
  for (int64_t b = 0; b < B; ++b) {
    for (int64_t h = 0; h < H; ++h) {
      std::vector<double> sum(static_cast<size_t>(K), 0.0);
      for (int64_t t = 0; t < T; ++t) {
        double square = 0.0;
        for (int64_t i = 0; i < K; ++i) square += keys(b, t, h, i) * keys(b, t, h, i);
        const double factor = square > 0.0 ? 1.0 / std::sqrt(square) : 0.0;
        for (int64_t i = 0; i < K; ++i) sum[static_cast<size_t>(i)] += factor * keys(b, t, h, i);
      }
      for (const double x : sum) total += x * x;
    }
  }
  return total / static_cast<double>(B * H * T * T);
}

bool is_gradients(const io::Case& c) { return c.op == io::CaseOp::kGradients; }

// The input that a gradient is by: dq is by q, dg by the gate.
std::string input_of(const std::string& gradient) {
  return gradient == "dg" ? "gate" : gradient.substr(1);
}

bool is_delta_rule(const io::Case& c) {
  return c.op == io::CaseOp::kPrefill || c.op == io::CaseOp::kDecode;
}

// What the algorithm delivers in `dtype` on this input; empty where nothing says that.
Results yardstick_of(const io::CaseFile& file, const io::Case& c, sluice_dtype dtype) {
  if (c.op == io::CaseOp::kLayer) return layer_yardstick(file, c, dtype).results;
  // The delta rule's yardstick normalises with the default eps, and has scalar gates.
  const bool own_eps = c.options.qk_norm == SLUICE_QK_NORM_L2 && c.options.l2norm_eps != 1e-6;
  if (own_eps || c.key_gates) return {};
  if (is_gradients(c)) return gradient_yardstick(file, c, dtype);
  return is_delta_rule(c) ? delta_rule_yardstick(file, c, dtype) : Results();
}

void limit_by_caps(const io::CaseFile& file, const io::Case& c, sluice_dtype dtype, Truth* truth) {
  const bool correlated = is_delta_rule(c) && mean_cosine(load(file, c, "k")) > kCorrelatedCosine;
  const auto conditioning = correlated ? Conditioning::kCorrelated : Conditioning::kBenign;
  for (const std::string& tensor : c.expected) {
    const bool state = is_state(tensor);
    truth->limits[tensor] =
        check::cap(dtype, state ? Quantity::kState : Quantity::kOutput, conditioning);
  }
  const Results yardstick = yardstick_of(file, c, dtype);
  for (const std::string& tensor : c.expected) {
    const auto found = yardstick.find(tensor);
    if (found == yardstick.end() || truth->results[tensor].size() == 0) continue;
    const Comparison comparison = compare(file, c, tensor, found->second, truth->results[tensor]);
    truth->limits[tensor] =
        is_gradients(c)
            ? check::gradient_from_yardstick(input_of(tensor), comparison, c.tolerance, dtype)
            : check::from_yardstick(comparison, truth->limits[tensor], dtype);
  }
}

}  // namespace

Truth truth_of(const io::CaseFile& file, const io::Case& c, sluice_dtype dtype) {
  Truth truth;
  if (check::same_dtype(dtype, check::kF32)) {
    for (const std::string& tensor : c.expected) {
      truth.results[tensor] = load(file, c, tensor);
      truth.limits[tensor] =
          is_gradients(c) ? check::gradient_tolerance(input_of(tensor),
                                                      truth.results[tensor].size(), c.tolerance, 0)
                          : Tolerance{c.tolerance, 2 * c.tolerance, 2 * c.tolerance};
    }
    return truth;
  }
  ExecuteOptions options;
  options.implementation = Implementation::kReference;
  options.inputs = dtype;
  Execution reference = execute(file, c, options);
  truth.status = reference.status;
  if (!truth.status.ok()) return truth;
  truth.results = std::move(reference.results);
  limit_by_caps(file, c, dtype, &truth);
  return truth;
}

std::vector<Judgement> judge_case(const io::CaseFile& file, const io::Case& c,
                                  const Results& results, const Truth& truth) {
  std::vector<Judgement> judgements;
  const std::vector<int64_t> cu_seqlens = cu_seqlens_of(file, c);
  size_t width = 0;
  for (const std::string& tensor : c.expected) width = std::max(width, tensor.size());
  for (const std::string& tensor : c.expected) {
    Judgement& next = judgements.emplace_back();
    next.tensor = tensor;
    std::string label = tensor;
    label.resize(width, ' ');
    const Array& expected = truth.results.at(tensor);
    const auto found = results.find(tensor);
    if (found == results.end()) {
      next.verdict = {false, label + "  FAIL: missing"};
    } else if (found->second.shape != expected.shape) {
      next.verdict = {false, label + "  FAIL: shape " + io::shape_text(found->second.shape) +
                                 ", expected " + io::shape_text(expected.shape)};
    } else if (!has_rows(expected, is_state(tensor) ? std::vector<int64_t>() : cu_seqlens)) {
      next.verdict = {true, label + "  no elements  PASS"};
    } else {
      next.comparison = compare(file, c, tensor, found->second, expected);
      next.limit = truth.limits.at(tensor);
      next.verdict = check::judge(label, next.comparison, next.limit);
    }
  }
  return judgements;
}

}  // namespace sluice::tools
