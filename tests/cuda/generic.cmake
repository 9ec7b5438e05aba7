# The generic kernel. The parity suites on a GPU (which of them: scripts/test_cuda.sh), and all of
# sluice_cuda_tests once more with the generic kernel in place of the one-launch kernel.
target_sources(sluice_cuda_tests PRIVATE generic_test.cc)

sluice_objects_of(suites sluice_parity_suites
  parity/chunk_forward_test parity/hard_inputs_test parity/invariance_test parity/random_delta_test
  parity/recurrent_step_test parity/key_gates_test parity/decode_session_test
  parity/replay_ring_test parity/ring_layer_test
  parity/debug_indices_test parity/far_slots_prefill_test parity/far_slots_step_test
  parity/view_strides_test
  parity/delta_call parity/delta_judge parity/free_tensor parity/sequences)
add_executable(sluice_cuda_parity_tests ${suites} $<TARGET_OBJECTS:sluice_cuda_parity_main>)
target_link_libraries(sluice_cuda_parity_tests PRIVATE
  sluice_flags sluice_test_support sluice CUDA::cudart_static GTest::gtest)

add_test(NAME cuda_parity COMMAND sluice_cuda_parity_tests --gtest_brief=1
  --gtest_filter=*Invariance*:*RandomDelta*:*KeyGates*:*FarSlots*:*DebugIndices*:*ViewStrides*)
add_test(NAME cuda_parity_generic COMMAND sluice_cuda_parity_tests --gtest_brief=1
  --gtest_filter=-*8192*:*2_to_the_20*:*65600*)
# Not: limits of 16-bit kernels, and a workspace that only the one-launch kernel has.
add_test(NAME cuda_forced_generic COMMAND sluice_cuda_tests --gtest_brief=1
  --gtest_filter=-*CudaAccuracy*:CudaWorkspace*:*CudaLayerDecode*)
set_tests_properties(cuda_parity cuda_parity_generic cuda_forced_generic PROPERTIES
  LABELS "cuda;slow" SKIP_RETURN_CODE 77)
set_tests_properties(cuda_parity_generic cuda_forced_generic PROPERTIES
  ENVIRONMENT SLUICE_CUDA_KERNEL=generic)
