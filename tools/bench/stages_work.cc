// Allocates the tensors of the stages, calls them, and counts their work.
// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/stages_work.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "check/array.hpp"
#include "tools/bench/work_memory.hpp"

namespace sluice::tools {
namespace {

enum Tensor {
  kQ,
  kK,
  kV,
  kO,
  kOneLaunchO,
  kU,
  kW,
  kVNew,
  kA,
  kInverse,
  kH,
  kGate,
  kBeta,
  kSums,
  kFinal,
  kOneLaunchFinal
};
constexpr int kTensors = kOneLaunchFinal + 1;
/// Rows of random numbers, repeated over every tensor.
constexpr int64_t kRandomRows = 8192;
/// Of a larger tensor differences are those of windows of so many numbers, evenly from the first to
/// the last.
constexpr int64_t kWindow = int64_t{1} << 20, kWindows = 32;

/// Bytes of each tensor of a cell.
std::array<size_t, kTensors> bytes_of(const StagesCell& c, size_t element) {
  const auto count = [](int64_t numbers) { return static_cast<size_t>(numbers); };
  const size_t keys = count(c.tokens() * c.H * c.K), values = count(c.tokens() * c.HV * c.V);
  const size_t heads = count(c.tokens() * c.HV), states = count(c.HV * c.K * c.V);
  const size_t only_chains = c.chain ? 1 : 0;
  std::array<size_t, kTensors> bytes{};
  bytes[kQ] = bytes[kK] = keys * element;
  bytes[kV] = bytes[kO] = values * element;
  bytes[kOneLaunchO] = bytes[kU] = bytes[kVNew] = only_chains * values * element;
  bytes[kW] = only_chains * heads * count(c.K) * element;
  bytes[kA] = only_chains * heads * count(c.C) * 4;
  bytes[kInverse] = only_chains * heads * count(c.C) * element;
  bytes[kH] = count(c.chunks()) * states * element;
  bytes[kGate] = bytes[kBeta] = bytes[kSums] = heads * 4;
  bytes[kFinal] = count(c.B) * states * 4;
  bytes[kOneLaunchFinal] = only_chains * bytes[kFinal];
  return bytes;
}

Stage stage_of(StagesItem item) noexcept {
  if (item < StagesItem::kSimpleGla) return static_cast<Stage>(item);
  return item == StagesItem::kGlaStates ? Stage::kChunkH : Stage::kChunkO;
}

constexpr StagesItem kChain[] = {StagesItem::kCumsum, StagesItem::kKkt,    StagesItem::kSolve,
                                 StagesItem::kWy,     StagesItem::kStates, StagesItem::kOutputs};
constexpr StagesItem kPairs[] = {StagesItem::kCumsumKkt, StagesItem::kSolveWy, StagesItem::kStates,
                                 StagesItem::kOutputs};

}  // namespace

std::string StagesCell::text() const {
  return fmt::format("{}x{}{}{}", B, T, packed ? " packed" : "", head_first ? " head first" : "");
}

const char* item_name(StagesItem item) noexcept {
  constexpr const char* kOthers[] = {"simple_gla", "gla chunk_h", "gla chunk_o", "chunk_forward"};
  const auto place = static_cast<int>(item), stages = static_cast<int>(StagesItem::kSimpleGla);
  return place < stages ? kStageWords[place] : kOthers[place - stages];
}

std::vector<StagesItem> items_of(const StagesCell& cell) {
  if (!cell.chain) {
    return {StagesItem::kSimpleGla, StagesItem::kGlaStates, StagesItem::kGlaOutputs};
  }
  std::vector<StagesItem> items(std::begin(kChain), std::end(kChain));
  for (const StagesItem item :
       {StagesItem::kCumsumKkt, StagesItem::kSolveWy, StagesItem::kOneLaunch}) {
    items.push_back(item);
  }
  return items;
}

StagesCost cost_of(const StagesCell& c, StagesItem item) noexcept {
  const auto C = static_cast<double>(c.C), K = static_cast<double>(c.K);
  const auto V = static_cast<double>(c.V), r = static_cast<double>(c.HV) / static_cast<double>(c.H);
  const double e = 2, state = e * K * V;
  StagesCost one;  // of a chunk and value head
  switch (item) {
    case StagesItem::kCumsum:
      one = {C, 8 * C};
      break;
    case StagesItem::kKkt:
      one = {C * C * K, e * C * K / r + 4 * C * C + 8 * C};
      break;
    case StagesItem::kSolve:
      one = {C * C * C / 3, (4 + e) * C * C};
      break;
    case StagesItem::kWy:
      one = {C * C * (K + V), e * (C * C + 2 * C * V + C * K * (1 + 1 / r)) + 8 * C};
      break;
    case StagesItem::kCumsumKkt:
      one = {C + C * C * K, e * C * K / r + 4 * C * C + 12 * C};
      break;
    case StagesItem::kSolveWy:
      one = {C * C * C / 3 + C * C * (K + V),
             4 * C * C + e * (2 * C * V + C * K * (1 + 1 / r)) + 8 * C};
      break;
    case StagesItem::kStates:
      one = {4 * C * K * V, e * C * (K / r + K + 2 * V) + state + 4 * C};
      break;
    case StagesItem::kGlaStates:
      one = {2 * C * K * V, e * C * (K / r + V) + state + 4 * C};
      break;
    case StagesItem::kOutputs:
    case StagesItem::kGlaOutputs:
      one = {2 * C * K * V + C * C * (K + V), e * C * (2 * K / r + 2 * V) + state + 4 * C};
      break;
    case StagesItem::kSimpleGla:
      one = {4 * C * K * V + C * C * (K + V), e * C * (2 * K / r + 2 * V) + 4 * C};
      break;
    case StagesItem::kOneLaunch:
      one = {6 * C * K * V + 2 * C * C * (K + V) + C * C * C / 3,
             e * C * (2 * K / r + 2 * V) + 8 * C};
      break;
  }
  const double count = static_cast<double>(c.tokens() * c.HV) / C;
  return {one.flops * count, one.bytes * count};
}

StagesWork::StagesWork(Machine& machine, sluice_dtype dtype, const std::vector<StagesCell>& cells)
    : machine_(machine), dtype_{dtype}, bytes_(kTensors, 0), memory_(kTensors) {
  int64_t sequences = 0;
  for (const StagesCell& cell : cells) {
    const std::array<size_t, kTensors> bytes = bytes_of(cell, dtype.bits / 8u);
    for (size_t t = 0; t < bytes.size(); ++t) bytes_[t] = std::max(bytes_[t], bytes[t]);
    sequences = std::max(sequences, cell.B);
  }
  for (size_t t = 0; t < memory_.size(); ++t) memory_[t] = machine.allocate(bytes_[t]);
  offsets_ = machine.allocate(static_cast<size_t>(sequences + 1) * sizeof(int32_t));
  fill_inputs();
}

void StagesWork::fill_inputs() {
  const auto fill = [&](int tensor, const Bytes& block) {
    const auto t = static_cast<size_t>(tensor);
    upload_repeated(machine_, memory_[t].get(), bytes_[t], block);
  };
  fill(kQ, random_rows(kRandomRows, 128, true, 1.0, dtype_, 1));
  fill(kK, random_rows(kRandomRows, 128, true, 1.0, dtype_, 2));
  fill(kV, random_rows(kRandomRows, 128, false, 1.0, dtype_, 3));
  fill(kGate, random_gates("published", kRandomRows, 16, 4));
  fill(kBeta, random_betas(kRandomRows * 16, 5));
}

/// [B,T,heads,columns], or [1,B T,..] where packed.
TensorView StagesWork::rows(int tensor, int64_t heads, int64_t columns) const {
  const int64_t B = cell_.packed ? 1 : cell_.B, T = cell_.tokens() / B;
  const DType type = tensor == kA ? kFloat32 : dtype_;
  const int64_t row = heads * columns;
  const void* const data = memory_[static_cast<size_t>(tensor)].get();
  if (cell_.head_first) {
    return {
        data, type, {B, T, heads, columns}, {T * row, columns, T * columns, 1}, machine_.device()};
  }
  return {data, type, {B, T, heads, columns}, machine_.device()};
}

TensorView StagesWork::numbers(int tensor) const {
  TensorView view = rows(tensor, cell_.HV, 1);
  view.dtype = kFloat32;
  view.rank = 3;
  return view;
}

void StagesWork::select(const StagesCell& c) {
  cell_ = c;
  upload_list(machine_, offsets_.get(), even_offsets(c.B, c.T));
  const sluice_device where = machine_.device();
  const auto memory = [&](int tensor) { return memory_[static_cast<size_t>(tensor)].get(); };
  const int64_t B = c.packed ? 1 : c.B;
  stage_ = {};
  stage_.chunk_size = static_cast<int32_t>(c.C);
  stage_.q = rows(kQ, c.H, c.K), stage_.k = rows(kK, c.H, c.K), stage_.v = rows(kV, c.HV, c.V);
  stage_.gate = numbers(kGate), stage_.g_cumsum = numbers(kSums);
  stage_.h = TensorView(memory(kH), dtype_, {B, c.chunks() / B, c.HV, c.K, c.V}, where);
  stage_.o = rows(kO, c.HV, c.V);
  stage_.state.final = TensorView(memory(kFinal), kFloat32, {c.B, c.HV, c.K, c.V}, where);
  if (c.packed) stage_.cu_seqlens = TensorView(offsets_.get(), kInt32, {c.B + 1}, where);
  gla_ = stage_;
  gla_.rule = Rule::kLinearAttention;
  gla_.g_cumsum = {};
  ChunkStageArgs alone = simple_gla_args(gla_);
  alone.h = {};
  scratch_.reserve(machine_, workspace_size(alone));
  if (!c.chain) return;
  stage_.beta = numbers(kBeta);
  stage_.A = rows(kA, c.HV, c.C), stage_.A_inverse = rows(kInverse, c.HV, c.C);
  stage_.w = rows(kW, c.HV, c.K), stage_.u = rows(kU, c.HV, c.V);
  stage_.v_new = rows(kVNew, c.HV, c.V);
  one_launch_ = {};
  one_launch_.q = stage_.q, one_launch_.k = stage_.k, one_launch_.v = stage_.v;
  one_launch_.gate = stage_.gate, one_launch_.beta = stage_.beta;
  one_launch_.o = rows(kOneLaunchO, c.HV, c.V);
  one_launch_.cu_seqlens = stage_.cu_seqlens;
  one_launch_.state.final =
      TensorView(memory(kOneLaunchFinal), kFloat32, {c.B, c.HV, c.K, c.V}, where);
  scratch_.reserve(machine_, workspace_size(one_launch_));
}

void StagesWork::call(StagesItem item, void* stream) {
  if (item == StagesItem::kOneLaunch) {
    return require(chunk_forward(one_launch_, scratch_.get(), stream));
  }
  const bool gla = item == StagesItem::kSimpleGla || item == StagesItem::kGlaStates ||
                   item == StagesItem::kGlaOutputs;
  ChunkStageArgs args = stage_args(gla ? gla_ : stage_, stage_of(item));
  if (item == StagesItem::kSimpleGla) args.h = {};
  if (item == StagesItem::kSolveWy) args.A_inverse = {};
  require(chunk_stage(args, scratch_.get(), stream));
}

void StagesWork::call_chain(bool pairs, void* stream) {
  if (pairs) {
    for (const StagesItem item : kPairs) call(item, stream);
  } else {
    for (const StagesItem item : kChain) call(item, stream);
  }
}

double StagesWork::difference() const {
  return difference(stage_.o, one_launch_.o, cell_.tokens() * cell_.HV * cell_.V);
}

double StagesWork::final_difference() const {
  return difference(stage_.state.final, one_launch_.state.final,
                    cell_.B * cell_.HV * cell_.K * cell_.V);
}

double StagesWork::difference(const TensorView& a, const TensorView& b, int64_t count) const {
  const size_t each = a.dtype.bits / 8u;
  const int64_t windows = count <= kWindow * kWindows ? (count + kWindow - 1) / kWindow : kWindows;
  std::vector<std::byte> x(kWindow * each), y(kWindow * each);
  sluice_tensor left{}, right{};
  left.data = x.data(), right.data = y.data();
  left.dtype = a.dtype, right.dtype = b.dtype;
  double error = 0, whole = 0;
  for (int64_t i = 0; i < windows; ++i) {
    const int64_t size = std::min(kWindow, count);
    const int64_t first = windows == 1 ? 0 : (count - size) / (windows - 1) * i;
    const size_t at = static_cast<size_t>(first) * each, bytes = static_cast<size_t>(size) * each;
    machine_.download_rows(x.data(), static_cast<const std::byte*>(a.data) + at, bytes, bytes, 1);
    machine_.download_rows(y.data(), static_cast<const std::byte*>(b.data) + at, bytes, bytes, 1);
    for (int64_t j = 0; j < size; ++j) {
      const double found = check::load_element(left, j), wanted = check::load_element(right, j);
      error += (found - wanted) * (found - wanted), whole += wanted * wanted;
    }
  }
  return std::sqrt(error / whole);
}

}  // namespace sluice::tools
