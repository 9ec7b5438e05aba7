// Builds the args struct of a fuzzed call from bytes and makes the call.
// SPDX-License-Identifier: Apache-2.0
#include "arguments_scene.hpp"

#include <algorithm>
#include <cstring>

#include "core/operators.hpp"
#include "tables.hpp"

namespace sluice::fuzz {

// A struct_size beyond any struct; memory for it must exist.
static constexpr size_t kMaxStruct = 8192;

Scene::Scene(Bytes bytes, Halved halved) : bytes_(bytes), halved_(halved) {
  op_ = static_cast<int>(bytes_.below(SLUICE_OP_COUNT));
  const int64_t layout = bytes_.below(8);
  layout_ = layout == 7 ? Layout::kHuge : layout >= 5 ? Layout::kFused : Layout::kApart;
  switch (op_) {
    case SLUICE_OP_CHUNK_FORWARD:
      build<sluice_chunk_forward_args>(kChunkForwardViews,
                                       [this](auto* args) { fill_chunk(args); });
      break;
    case SLUICE_OP_RECURRENT_STEP:
      build<sluice_recurrent_step_args>(kRecurrentStepViews,
                                        [this](auto* args) { fill_step(args); });
      break;
    case SLUICE_OP_CAUSAL_CONV1D:
      build<sluice_causal_conv1d_args>(kCausalConv1dViews, [this](auto* args) { fill_conv(args); });
      break;
    case SLUICE_OP_GATED_RMS_NORM:
      build<sluice_gated_rms_norm_args>(kGatedRmsNormViews,
                                        [this](auto* args) { fill_norm(args); });
      break;
    case SLUICE_OP_CHUNK_STAGE:
      build<sluice_chunk_stage_args>(kChunkStageViews, [this](auto* args) { fill_stage(args); });
      break;
    case SLUICE_OP_CHUNK_BACKWARD:
      build<sluice_chunk_backward_args>(kChunkBackwardViews,
                                        [this](auto* args) { fill_backward(args); });
      break;
    case SLUICE_OP_CHUNK_SUMMARY:
      build<sluice_chunk_summary_args>(kChunkSummaryViews,
                                       [this](auto* args) { fill_summary(args); });
      break;
    case SLUICE_OP_STATE_FOLD:
      build<sluice_state_fold_args>(kStateFoldViews, [this](auto* args) { fill_fold(args); });
      break;
    case SLUICE_OP_CAUSAL_CONV1D_BACKWARD:
      build<sluice_causal_conv1d_backward_args>(kCausalConv1dBackwardViews,
                                                [this](auto* args) { fill_conv_backward(args); });
      break;
    case SLUICE_OP_GATED_RMS_NORM_BACKWARD:
      build<sluice_gated_rms_norm_backward_args>(kGatedRmsNormBackwardViews,
                                                 [this](auto* args) { fill_norm_backward(args); });
      break;
    case SLUICE_OP_LAYER_BACKWARD:
      build<sluice_layer_backward_args>(kLayerBackwardViews,
                                        [this](auto* args) { fill_layer_backward(args); });
      break;
    case SLUICE_OP_LAYER_PREFILL:
      build<sluice_layer_args>(kLayerPrefillViews, [this](auto* args) { fill_layer(args); });
      break;
    default:
      build<sluice_layer_args>(kLayerDecodeViews, [this](auto* args) { fill_layer(args); });
  }
}

template <class Args, class Fill>
void Scene::build(std::span<const ViewField> fields, Fill fill) {
  Args args{};
  args.struct_size = sizeof args;
  args.implementation = static_cast<int32_t>(bytes_.below(SLUICE_IMPL_CUDA));
  fill(&args);
  fields_.assign(fields.begin(), fields.end());
  args_.resize(sizeof args);
  std::memcpy(args_.data(), &args, sizeof args);
  damage(args_.data(), args_.size(), fields);
  std::memcpy(&args.struct_size, args_.data(), sizeof args.struct_size);
  size_ = std::clamp<size_t>(args.struct_size, sizeof args.struct_size, kMaxStruct);
  std::memcpy(args_.data(), &size_, sizeof size_);
  block_ = std::make_unique<std::byte[]>(size_);
  std::memcpy(block_.get(), args_.data(), std::min(size_, args_.size()));
  // What an older caller does not know counts as absent.
  if (size_ < args_.size())
    std::fill(args_.begin() + static_cast<ptrdiff_t>(size_), args_.end(), std::byte{0});
  memory_.remember();
}

sluice_tensor Scene::view_at(const ViewField& field) const {
  sluice_tensor view;
  std::memcpy(&view, args_.data() + field.offset, sizeof view);
  return view;
}

int Scene::run(sluice_workspace workspace) const {
  memory_.close();
  for (const ViewField& field : fields_) {
    const sluice_tensor view = view_at(field);
    if (view.data != nullptr) memory_.open(view);
  }
  const void* args = block_.get();
  switch (op_) {
#define SLUICE_CALL(name, op, args_type) \
  case op:                               \
    return sluice_##name(static_cast<const args_type*>(args), workspace, nullptr);
    SLUICE_OPERATORS(SLUICE_CALL)
#undef SLUICE_CALL
    default:
      return SLUICE_INTERNAL;
  }
}

}  // namespace sluice::fuzz
