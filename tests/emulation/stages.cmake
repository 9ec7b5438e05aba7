# The stages of a prefill: the GPU's own suite on the emulated kernels.
sluice_add_emulated_backend(sluice_emulated_stages emulated_stage_backend.cc)
sluice_add_emulated_backend(sluice_emulated_backward emulated_backward_backend.cc
  emulated_backward_gradients.cc)
set(stage_backends BACKENDS sluice_emulated_stages sluice_emulated_backward sluice_emulation
  HOST ${prefill_host} environment
    chunk_stage/accepts chunk_stage/catalogue chunk_stage/lower
    chunk_backward/catalogue chunk_backward/cut chunk_backward/forward_pass chunk_backward/lower
    chunk_backward/waves chunk_backward/windows
    kernels/stages/plan kernels/stages/compact_plan kernels/backward/plan)
sluice_add_emulated_tests(sluice_emulated_stage_tests
  stage_selection_test.cc stage_plan_test.cc backward_plan_test.cc backward_waves_test.cc emulated_stage_edges_test.cc $<TARGET_OBJECTS:sluice_stage_suite>
  ${stage_backends})
sluice_add_shards(emulated_stages 2 sluice_emulated_stage_tests cpu "*")
# Simple GLA as every other GPU has it.
set(gla "*gla*:*SimpleGla*")
sluice_add_shards(emulated_stages_generic 1 sluice_emulated_stage_tests cpu ${gla}
  SLUICE_CUDA_KERNEL=generic)
# ... and on Hopper in segments, in 64 columns of V, and in clusters.
foreach(split 3 columns cluster4 prefix1)
  sluice_add_shards(emulated_stages_split_${split} 1 sluice_emulated_stage_tests cpu ${gla}
    SLUICE_CUDA_SPLIT=${split})
endforeach()
# Gradients: the parity suite of the CPU on the emulated kernels.
sluice_objects_of(suites sluice_parity_suites
  parity/backward_test parity/backward_segments_test parity/backward_bits_test parity/backward_call parity/free_tensor
  parity/gate_parameters_test parity/sequences)
sluice_add_emulated_tests(sluice_emulated_backward_tests emulated_gate_groups_test.cc
  emulated_backward_offsets_test.cc ${suites}
  ${stage_backends})
# Key-wise gates go token by token, ten seconds a case here: one of sequences alone and in a pack is enough.
sluice_add_shards(emulated_backward 2 sluice_emulated_backward_tests cpu
  "Packs/*:*Halves/*:*ChunkBackwardSegments*:*Bits*:Scalar/*_64:Scalar/*_128:KeyShort/*:EmulatedGateGroups*:BackwardOffsets*-*AllMultiprocessors:*Batch/key_gates*:*Pack/key_gates_*")
