// Runs a case of op stages: each stage on what the case records of those before it, so that every
// one is judged alone; or, to make a case, on what they have just computed.
// SPDX-License-Identifier: Apache-2.0
#include <optional>
#include <span>

#include "tools/call.hpp"
#include "tools/case_tensors.hpp"

namespace sluice::tools {
namespace {

using check::Placement;

class StagesRun {
 public:
  StagesRun(const io::CaseFile& file, const io::Case& c, const ExecuteOptions& options)
      : file_(file), c_(c), options_(options) {}

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
  bool expected(const char* tensor) const { return is_expected(c_, tensor); }
  bool delta() const { return c_.options.rule == SLUICE_RULE_GATED_DELTA; }

  /// What a stage reads: recorded, or computed by the stages before it.
  TensorView input(const char* tensor, sluice_dtype dtype, Placement placement) {
    const auto own = out_.results.find(tensor);
    const bool chained = options_.chained && own != out_.results.end();
    return chained ? tensors_->keep(own->second, dtype, placement)
                   : tensors_->input(tensor, dtype, placement);
  }
  TensorView activation(const char* tensor) {
    return input(tensor, options_.inputs, tensors_->tokens());
  }
  TensorView single(const char* tensor) { return input(tensor, check::kF32, tensors_->tokens()); }
  TensorView state(const char* tensor) { return input(tensor, check::kF32, Placement::kDense); }

  TensorView rows(const char* tensor, int64_t columns) {
    return tensors_->output(tensor, options_.outputs,
                            {c_.shape.B, c_.shape.T, c_.shape.HV, columns}, tensors_->tokens());
  }
  TensorView sums() {
    std::vector<int64_t> shape = {c_.shape.B, c_.shape.T, c_.shape.HV};
    if (c_.key_gates) shape.push_back(c_.shape.K);
    return tensors_->output("g_cumsum", check::kF32, std::move(shape), tensors_->tokens());
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
      args->state.final = tensors_->output("final_state", check::kF32, state_shape(c_));
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
        args->h = tensors_->output("h", check::kF32, state_shape(c_, {s.B, s.chunks}));
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
    tensors_.emplace(file_, c_, options_);
    if (!fill(stage, &args)) return true;
    args.stage = stage;
    args.cu_seqlens = tensors_->cu_seqlens();
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
    tensors_->collect(&out_);
    return true;
  }

  const io::CaseFile& file_;
  const io::Case& c_;
  const ExecuteOptions& options_;
  std::optional<CaseTensors> tensors_;  ///< of one stage
  Execution out_;
};

}  // namespace

Execution execute_stages(const io::CaseFile& file, const io::Case& c,
                         const ExecuteOptions& options) {
  return StagesRun(file, c, options).run();
}

}  // namespace sluice::tools
