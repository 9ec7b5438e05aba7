// Measures that chunk_forward refuses states, offsets, slots and devices outside its contract, by
// name, and writes nothing then. Each table row spoils one thing in a valid call and states the
// whole message.
// SPDX-License-Identifier: Apache-2.0
#include "refusals_chunk_forward.hpp"

namespace sluice::check {
namespace {

bool built_with_cuda() {
  sluice_implementation_info infos[8];
  const int count = sluice_implementations(infos, 8);
  for (int i = 0; i < count; ++i) {
    if (infos[i].id == SLUICE_IMPL_CUDA) return true;
  }
  return false;
}

class ChunkForwardStateRefusals : public ::testing::TestWithParam<Row> {};

TEST_P(ChunkForwardStateRefusals, NamesArgumentAndWritesNothing) {
  expect_refused(kOp, GetParam(), valid_scene());
}

const Row kStateRows[] = {
    {"pad_below", [](ChunkScene& s) { s.args.state.pad_below = -1; },
     "chunk_forward: state.pad_below = -1, expected >= 0"},
    {"slots_rank", [](ChunkScene& s) { s.args.state.read_slots = s.memory->table(2, 1, {0, 1}); },
     "chunk_forward: state.read_slots rank = 2, expected 1"},
    {"slots_size", [](ChunkScene& s) { s.args.state.write_slots = s.memory->indices({0, 1, 2}); },
     "chunk_forward: state.write_slots.shape[0] = 3, expected 2 (N sequences)"},
    {"flags_size",
     [](ChunkScene& s) { s.args.state.has_initial_state = s.memory->tensor(kBool, {3}); },
     "chunk_forward: state.has_initial_state.shape[0] = 3, expected 2 (N sequences)"},
    {"pool_heads", [](ChunkScene& s) { s.args.state.initial.shape[1] = 2; },
     "chunk_forward: state.initial.shape[1] = 2, expected 4 (HV value heads)"},
    {"pool_kv_rows", [](ChunkScene& s) { s.args.state.initial.shape[2] = kV; },
     "chunk_forward: state.initial.shape[2] = 5, expected 4 (K, layout KV)"},
    {"pool_kv_columns", [](ChunkScene& s) { s.args.state.final.shape[3] = kK; },
     "chunk_forward: state.final.shape[3] = 4, expected 5 (V, layout KV)"},
    {"pool_vk_rows", [](ChunkScene& s) { s.args.state.layout = SLUICE_STATE_VK; },
     "chunk_forward: state.initial.shape[2] = 4, expected 5 (V, layout VK)"},
    {"pool_vk_columns",
     [](ChunkScene& s) {
       s.args.state.layout = SLUICE_STATE_VK;
       s.args.state.initial.shape[2] = kV;
     },
     "chunk_forward: state.initial.shape[3] = 5, expected 4 (K, layout VK)"},
    {"pool_slots",
     [](ChunkScene& s) {
       s.args.state.read_slots = {};
       s.args.state.initial.shape[0] = 1;
     },
     "chunk_forward: state.initial.shape[0] = 1, expected >= 2 (slots for N sequences without slot "
     "indices)"},
    {"pool_inner_stride", [](ChunkScene& s) { s.args.state.initial.stride[2] = 8; },
     "chunk_forward: state.initial.stride[2] = 8, expected 5 (contiguous inside a slot)"},
    {"pool_head_stride", [](ChunkScene& s) { s.args.state.final.stride[1] = 24; },
     "chunk_forward: state.final.stride[1] = 24, expected 20 (contiguous inside a slot)"},
    {"pool_slot_stride", [](ChunkScene& s) { s.args.state.final.stride[0] = 79; },
     "chunk_forward: state.final.stride[0] = 79, expected >= 80 (slots may not overlap)"},
    {"alias_dtype",
     [](ChunkScene& s) {
       s.args.state.final = s.args.state.initial;
       s.args.state.final.dtype = kFloat16;
     },
     "chunk_forward: state.final dtype = float16, expected float32 (that of "
     "state.initial)"},
    {"alias_stride",
     [](ChunkScene& s) {
       s.args.state.final = s.args.state.initial;
       s.args.state.final.stride[0] = 100;
     },
     "chunk_forward: state.final.stride[0] = 100, expected 80 (that of state.initial, whose memory "
     "it is)"},
    {"checkpoint_slots_alone",
     [](ChunkScene& s) { s.args.checkpoint_slots = s.memory->table(2, 1, {0, 1}); },
     "chunk_forward: checkpoint_slots = given, expected absent (only with checkpoints)"},
    {"checkpoints_alone",
     [](ChunkScene& s) {
       give_checkpoints(s);
       s.args.checkpoint_slots = {};
     },
     "chunk_forward: checkpoint_slots = absent, expected a view of rank 2 (required)"},
    {"checkpoint_slots_size",
     [](ChunkScene& s) {
       give_checkpoints(s);
       s.args.checkpoint_slots.shape[0] = 1;
     },
     "chunk_forward: checkpoint_slots.shape[0] = 1, expected 2 (N sequences)"},
    {"checkpoint_pool_shape",
     [](ChunkScene& s) {
       give_checkpoints(s);
       s.args.checkpoints.shape[3] = 4;
     },
     "chunk_forward: checkpoints.shape[3] = 4, expected 5 (V, layout KV)"},
    {"checkpoint_every_zero",
     [](ChunkScene& s) {
       give_checkpoints(s);
       s.args.checkpoint_every = 0;
     },
     "chunk_forward: checkpoint_every = 0, expected a positive multiple of 64 (whole chunks)"},
    {"checkpoint_every_odd",
     [](ChunkScene& s) {
       give_checkpoints(s);
       s.args.checkpoint_every = 96;
     },
     "chunk_forward: checkpoint_every = 96, expected a positive multiple of 64 (whole chunks)"},
};
const Row kSplitRows[] = {
    {"split", [](ChunkScene& s) { s.args.split = 5; },
     "chunk_forward: split = 5, expected 0 (AUTO), 1 (NEVER), 2 (COLUMNS), 3 (SEGMENTS) or 4 "
     "(LENGTH)"},
    {"history", [](ChunkScene& s) { s.args.history = -1; },
     "chunk_forward: history = -1, expected 0 (AUTO), 1 (STRICT) or 2 (FORGET)"},
    {"reserved", [](ChunkScene& s) { s.args.options.reserved = 1; },
     "chunk_forward: reserved = 1, expected 0"},
    {"max_tokens",
     [](ChunkScene& s) {
       pack(s, {0, 3, 6});
       s.args.max_tokens = -1;
     },
     "chunk_forward: max_tokens = -1, expected >= 0 (0: unknown)"},
    {"split_value_alone", [](ChunkScene& s) { s.args.split_value = 2; },
     "chunk_forward: split_value = 2, expected 0 (only with split SEGMENTS or LENGTH)"},
    {"one_segment",
     [](ChunkScene& s) {
       s.args.split = SLUICE_SPLIT_SEGMENTS;
       s.args.split_value = 1;
     },
     "chunk_forward: split_value = 1, expected 2 to 4096 segments (split SEGMENTS)"},
    {"segments_too_many",
     [](ChunkScene& s) {
       s.args.split = SLUICE_SPLIT_SEGMENTS;
       s.args.split_value = 4097;
     },
     "chunk_forward: split_value = 4097, expected 2 to 4096 segments (split SEGMENTS)"},
    {"split_length",
     [](ChunkScene& s) {
       s.args.split = SLUICE_SPLIT_LENGTH;
       s.args.split_value = 96;
     },
     "chunk_forward: split_value = 96, expected a multiple of 64 tokens, or 0 (split LENGTH)"},
    {"split_length_negative",
     [](ChunkScene& s) {
       s.args.split = SLUICE_SPLIT_LENGTH;
       s.args.split_value = -64;
     },
     "chunk_forward: split_value = -64, expected a multiple of 64 tokens, or 0 (split LENGTH)"},
};
INSTANTIATE_TEST_SUITE_P(Splits, ChunkForwardStateRefusals, ::testing::ValuesIn(kSplitRows),
                         row_name<Args>);
INSTANTIATE_TEST_SUITE_P(States, ChunkForwardStateRefusals, ::testing::ValuesIn(kStateRows),
                         row_name<Args>);

const Row kContentRows[] = {
    {"offsets_rank",
     [](ChunkScene& s) {
       pack(s, {0, 3, 6});
       s.args.cu_seqlens.rank = 2;
     },
     "chunk_forward: cu_seqlens rank = 2, expected 1"},
    {"offsets_empty",
     [](ChunkScene& s) {
       pack(s, {0, 3, 6});
       s.args.cu_seqlens.shape[0] = 0;
     },
     "chunk_forward: cu_seqlens.shape[0] = 0, expected >= 1 (N + 1 offsets)"},
    {"offsets_with_batch", [](ChunkScene& s) { s.args.cu_seqlens = s.memory->indices({0, 3, 3}); },
     "chunk_forward: q.shape[0] = 2, expected 1 (packed rows have one batch entry)"},
    {"offsets_start", [](ChunkScene& s) { pack(s, {1, 3, 6}); },
     "chunk_forward: cu_seqlens[0] = 1, expected 0 (ascending from 0, at most T = 6)",
     Seen::kByCall},
    {"offsets_negative", [](ChunkScene& s) { pack(s, {-1, 3, 6}, kInt64); },
     "chunk_forward: cu_seqlens[0] = -1, expected 0 (ascending from 0, at most T = 6)",
     Seen::kByCall},
    {"offsets_descend", [](ChunkScene& s) { pack(s, {0, 4, 3}); },
     "chunk_forward: cu_seqlens[2] = 3, expected >= 4 (ascending from 0, at most T = 6)",
     Seen::kByCall},
    {"offsets_past_end", [](ChunkScene& s) { pack(s, {0, 3, 7}, kInt64); },
     "chunk_forward: cu_seqlens[2] = 7, expected <= 6 (ascending from 0, at most T = 6)",
     Seen::kByCall},
    {"offsets_past_32_bits", [](ChunkScene& s) { pack(s, {0, 3, (int64_t{1} << 32) + 6}, kInt64); },
     "chunk_forward: cu_seqlens[2] = 4294967302, expected <= 6 (ascending from 0, at most T = 6)",
     Seen::kByCall},
    {"read_slot_past_pool",
     [](ChunkScene& s) { s.args.state.read_slots = s.memory->indices({0, 6}); },
     "chunk_forward: state.read_slots[1,0] = 6, expected < 6 (slots of the pool)", Seen::kByCall},
    {"write_slot_past_pool",
     [](ChunkScene& s) { s.args.state.write_slots = s.memory->indices({9, 0}, kInt64); },
     "chunk_forward: state.write_slots[0,0] = 9, expected < 6 (slots of the pool)", Seen::kByCall},
    {"checkpoint_slot_past_pool",
     [](ChunkScene& s) {
       give_checkpoints(s);
       s.args.checkpoint_slots = s.memory->table(2, 2, {0, 1, -1, 4});
     },
     "chunk_forward: checkpoint_slots[1,1] = 4, expected < 4 (slots of the pool)", Seen::kByCall},
    {"stream", [](ChunkScene& s) { s.stream = &s; },
     "chunk_forward: stream = given, expected null (CPU views have no stream)", Seen::kByCall},
    {"workspace_absent", [](ChunkScene& s) { s.workspace = {}; },
     "chunk_forward: workspace.size = 0, expected >= 400 bytes (sluice_workspace_size tells)",
     Seen::kByCall, SLUICE_WORKSPACE_TOO_SMALL},
    {"workspace_too_small", [](ChunkScene& s) { s.workspace.size = 399; },
     "chunk_forward: workspace.size = 399, expected >= 400 bytes (sluice_workspace_size tells)",
     Seen::kByCall, SLUICE_WORKSPACE_TOO_SMALL},
    {"workspace_misaligned",
     [](ChunkScene& s) { s.workspace.data = static_cast<std::byte*>(s.workspace.data) + 64; },
     "chunk_forward: workspace.data address mod 256 = 64, expected 0 (alignment)", Seen::kByCall},
    {"implementation_of_other_device",
     [](ChunkScene& s) {
       move_to_cuda(s);
       s.args.implementation = SLUICE_IMPL_CPU;
     },
     "chunk_forward: implementation = cpu, expected one for CUDA views (the backend follows the "
     "device of the views)",
     Seen::kBySizes, SLUICE_UNSUPPORTED},
};
INSTANTIATE_TEST_SUITE_P(Contents, ChunkForwardStateRefusals, ::testing::ValuesIn(kContentRows),
                         row_name<Args>);

const Row kCpuOnlyRows[] = {
    {"cuda_views", [](ChunkScene& s) { move_to_cuda(s), s.args.implementation = 0; },
     "chunk_forward: device = CUDA, expected CPU views (the CUDA half was not built)",
     Seen::kBySizes, SLUICE_UNSUPPORTED},
    {"cuda_implementation", [](ChunkScene& s) { s.args.implementation = SLUICE_IMPL_CUDA; },
     "chunk_forward: implementation = 4, expected one of this build (the CUDA half was not built)",
     Seen::kBySizes, SLUICE_UNSUPPORTED},
};

TEST(ChunkForwardWithoutCuda, NamesWhatIsMissing) {
  if (built_with_cuda()) GTEST_SKIP() << "this build has the CUDA half";
  for (const Row& row : kCpuOnlyRows) expect_refused(kOp, row, valid_scene());
}

/// Legal calls that lie next to a refusal.
const Row kAccepted[] = {
    {"as_is", [](ChunkScene&) {}, ""},
    {"no_tokens_null_data",
     [](ChunkScene& s) {
       for (sluice_tensor* t : {&s.args.q, &s.args.k, &s.args.v, &s.args.o}) {
         t->shape[1] = 0;
         t->data = nullptr;
       }
       make_gate_raw(s);
       s.args.gate = s.args.beta = {};
     },
     ""},
    {"no_sequences",
     [](ChunkScene& s) {
       pack(s, {0});
       s.args.state.read_slots.shape[0] = 0;
     },
     ""},
    {"rows_past_the_last_sequence", [](ChunkScene& s) { pack(s, {0, 0, 5}); }, ""},
    {"pads", [](ChunkScene& s) { s.args.state.read_slots = s.memory->indices({-1, -77}); }, ""},
    {"null_slot",
     [](ChunkScene& s) {
       s.args.state.read_slots = s.memory->indices({0, 5});
       s.args.state.pad_below = 1;
     },
     ""},
    {"output_of_size_one_may_have_any_stride",
     [](ChunkScene& s) {
       for (sluice_tensor* t :
            {&s.args.q, &s.args.k, &s.args.v, &s.args.gate, &s.args.beta, &s.args.o}) {
         t->shape[1] = 1;
       }
       s.args.o.stride[1] = 0;
     },
     ""},
    {"in_place", [](ChunkScene& s) { s.args.state.final = s.args.state.initial; }, ""},
    {"broadcast_input", [](ChunkScene& s) { s.args.gate.stride[0] = 0; }, ""},
    {"reversed_input",
     [](ChunkScene& s) {
       s.args.q.data = static_cast<float*>(s.args.q.data) + 2 * s.args.q.stride[1];
       s.args.q.stride[1] = -s.args.q.stride[1];
     },
     ""},
};

TEST(ChunkForwardAccepts, LegalNeighboursOfRefusals) {
  for (const Row& row : kAccepted) {
    SCOPED_TRACE(row.name);
    ChunkScene scene = valid_scene();
    row.spoil(scene);
    expect_accepted(kOp, scene);
  }
}

}  // namespace
}  // namespace sluice::check
