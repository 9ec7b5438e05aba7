// Runs a case of op stages: each stage on what the case records of those before it, so that every
// one is judged alone; or, to make a case, on what they have just computed.
// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <deque>
#include <span>

#include "tools/call.hpp"
#include "tools/delta_rule_tensors.hpp"

namespace sluice::tools {
namespace {

using check::Array;
using check::Placement;
using check::TestTensor;

class StagesRun {
 public:
  StagesRun(const io::CaseFile& file, const io::Case& c, const ExecuteOptions& options)
      : file_(file), c_(c), options_(options), placement_(placement_of(c, options)) {}

  Execution run() {
    constexpr Stage kSingle[] = {Stage::kChunkCumsum, Stage::kScaledDotKkt, Stage::kSolveTril,
                                 Stage::kWyFast,      Stage::kChunkH,       Stage::kChunkO};
    constexpr Stage kPairs[] = {Stage::kCumsumKkt, Stage::kSolveWy, Stage::kChunkH, Stage::kChunkO};
    for (const Stage stage :
         c_.fused_pairs ? std::span<const Stage>(kPairs) : std::span<const Stage>(kSingle)) {
      if (!step(stage)) break;
    }
    return std::move(out_);
  }

 private:
  bool expected(const char* tensor) const {
    return std::find(c_.expected.begin(), c_.expected.end(), tensor) != c_.expected.end();
  }
  bool delta() const { return c_.options.rule == SLUICE_RULE_GATED_DELTA; }

  /// What a stage reads: recorded, or computed by the stages before it.
  TensorView input(const char* tensor, sluice_dtype dtype, Placement placement) {
    const auto own = out_.results.find(tensor);
    const bool chained = options_.chained && own != out_.results.end();
    return TensorView(
        memory_.emplace_back(dtype, chained ? own->second : load(file_, c_, tensor), placement)
            .view());
  }
  TensorView activation(const char* tensor) { return input(tensor, options_.inputs, placement_); }
  TensorView single(const char* tensor) { return input(tensor, check::kF32, placement_); }
  TensorView state(const char* tensor) { return input(tensor, check::kF32, Placement::kDense); }

  TensorView output(const char* tensor, sluice_dtype dtype, std::vector<int64_t> shape,
                    Placement placement) {
    const TestTensor& t = memory_.emplace_back(dtype, std::move(shape), placement);
    outputs_.emplace_back(tensor, &t);
    return TensorView(t.view());
  }
  TensorView rows(const char* tensor, int64_t columns) {
    return output(tensor, options_.outputs, {c_.shape.B, c_.shape.T, c_.shape.HV, columns},
                  placement_);
  }
  TensorView sums() {
    std::vector<int64_t> shape = {c_.shape.B, c_.shape.T, c_.shape.HV};
    if (c_.key_gates) shape.push_back(c_.shape.K);
    return output("g_cumsum", check::kF32, std::move(shape), placement_);
  }
  std::vector<int64_t> state_shape(std::initializer_list<int64_t> leading) const {
    const bool vk = c_.state_layout == SLUICE_STATE_VK;
    std::vector<int64_t> shape = leading;
    shape.insert(shape.end(),
                 {c_.shape.HV, vk ? c_.shape.V : c_.shape.K, vk ? c_.shape.K : c_.shape.V});
    return shape;
  }

  void give_gates(ChunkStageArgs* args) {
    if (expected("g_cumsum")) {
      args->g_cumsum = single("g_cumsum");
    } else {
      args->gate = single("g");
    }
  }
  void give_states(ChunkStageArgs* args) {
    args->state.initial = state("initial_state");
    if (expected("final_state")) {
      args->state.final =
          output("final_state", check::kF32, state_shape({c_.shape.N}), Placement::kDense);
    }
  }

  /// Fills what the stage reads and writes; false: no result of it is recorded.
  bool fill(Stage stage, ChunkStageArgs* args) {
    const io::CaseShape& s = c_.shape;
    switch (stage) {
      case Stage::kChunkCumsum:
        if (!expected("g_cumsum")) return false;
        args->gate = single("g");
        args->g_cumsum = sums();
        return true;
      case Stage::kScaledDotKkt:
        if (!expected("A")) return false;
        args->k = activation("k"), args->beta = single("beta");
        give_gates(args);
        args->A = rows("A", s.C);
        return true;
      case Stage::kSolveTril:
        if (!expected("A_inverse")) return false;
        args->A = activation("A"), args->A_inverse = rows("A_inverse", s.C);
        return true;
      case Stage::kWyFast:
        if (!expected("u")) return false;
        args->k = activation("k"), args->v = activation("v"), args->beta = single("beta");
        give_gates(args);
        args->A_inverse = activation("A_inverse");
        args->u = rows("u", s.V), args->w = rows("w", s.K);
        return true;
      case Stage::kCumsumKkt:
        args->gate = single("g"), args->k = activation("k"), args->beta = single("beta");
        args->g_cumsum = sums();
        args->A = rows("A", s.C);
        return true;
      case Stage::kSolveWy:
        args->k = activation("k"), args->v = activation("v"), args->beta = single("beta");
        give_gates(args);
        args->A = activation("A");
        if (expected("A_inverse")) args->A_inverse = rows("A_inverse", s.C);
        args->u = rows("u", s.V), args->w = rows("w", s.K);
        return true;
      case Stage::kChunkH:
        if (!expected("h")) return false;
        args->k = activation("k");
        if (delta()) {
          args->u = activation("u"), args->w = activation("w"), args->v_new = rows("v_new", s.V);
        } else {
          args->v = activation("v");
        }
        give_gates(args);
        give_states(args);
        args->h = output("h", check::kF32, state_shape({s.B, s.chunks}), Placement::kDense);
        return true;
      case Stage::kChunkO:
        if (!expected("o")) return false;
        args->q = activation("q"), args->k = activation("k");
        (delta() ? args->v_new : args->v) = activation(delta() ? "v_new" : "v");
        give_gates(args);
        if (expected("h")) {
          args->h = state("h");
        } else {
          give_states(args);
        }
        args->o = rows("o", s.V);
        return true;
    }
    return false;
  }

  bool step(Stage stage) {
    ChunkStageArgs args;
    memory_.clear();
    outputs_.clear();
    if (!fill(stage, &args)) return true;
    args.stage = stage;
    if (const io::TensorEntry* entry = file_.find(c_, "cu_seqlens"); entry != nullptr) {
      args.cu_seqlens = TensorView(
          memory_.emplace_back(TestTensor::of_indices(check::kI64, io::read_integers(*entry)))
              .view());
    }
    args.state.layout = static_cast<StateLayout>(c_.state_layout);
    args.scale = c_.options.scale;
    args.chunk_size = static_cast<int32_t>(c_.shape.C);
    args.rule = static_cast<Rule>(c_.options.rule);
    args.head_map = static_cast<HeadMap>(c_.options.head_map);
    args.direction = static_cast<Direction>(c_.direction);
    args.triangle = static_cast<Triangle>(c_.triangle);
    args.implementation = options_.implementation;
    if (!call<ChunkStageArgs>({SLUICE_OP_CHUNK_STAGE, sluice_chunk_stage}, args,
                              {"stages", out_.steps.empty() ? c_.shape.B * c_.shape.T : 0, 0, {}},
                              &out_)) {
      return false;
    }
    for (const auto& [tensor, memory] : outputs_) out_.results[tensor] = memory->values();
    return true;
  }

  const io::CaseFile& file_;
  const io::Case& c_;
  const ExecuteOptions& options_;
  Placement placement_;
  std::deque<TestTensor> memory_;
  std::vector<std::pair<std::string, const TestTensor*>> outputs_;
  Execution out_;
};

}  // namespace

Execution execute_stages(const io::CaseFile& file, const io::Case& c,
                         const ExecuteOptions& options) {
  return StagesRun(file, c, options).run();
}

}  // namespace sluice::tools
