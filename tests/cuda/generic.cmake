# The generic kernel. The parity suites on a GPU (which of them: scripts/test_cuda.sh), and all of
# sluice_cuda_tests once more with the generic kernel in place of the fused one.
target_sources(sluice_cuda_tests PRIVATE generic_test.cc)

add_executable(sluice_cuda_parity_tests
  parity_main.cc device_copy.cc
  ${parity}/chunk_forward_test.cc ${parity}/hard_inputs_test.cc ${parity}/invariance_test.cc
  ${parity}/random_delta_test.cc ${parity}/recurrent_step_test.cc ${parity}/key_gates_test.cc
  ${parity}/delta_call.cc ${parity}/delta_judge.cc ${parity}/free_tensor.cc ${parity}/sequences.cc)
target_link_libraries(sluice_cuda_parity_tests PRIVATE
  sluice_flags sluice_test_support sluice CUDA::cudart_static GTest::gtest)

add_test(NAME cuda_parity COMMAND sluice_cuda_parity_tests --gtest_brief=1
  --gtest_filter=*Invariance*:*RandomDelta*:*KeyGates*)
add_test(NAME cuda_parity_generic COMMAND sluice_cuda_parity_tests --gtest_brief=1
  --gtest_filter=-*8192*:*2_to_the_20*:*65600*)
# Not: limits of 16-bit kernels, and a workspace that only the fused kernel has.
add_test(NAME cuda_forced_generic COMMAND sluice_cuda_tests --gtest_brief=1
  --gtest_filter=-*CudaAccuracy*:CudaWorkspace*:*CudaLayerDecode*)
set_tests_properties(cuda_parity cuda_parity_generic cuda_forced_generic PROPERTIES
  LABELS "cuda;slow" SKIP_RETURN_CODE 77)
set_tests_properties(cuda_parity_generic cuda_forced_generic PROPERTIES
  ENVIRONMENT SLUICE_CUDA_KERNEL=generic)
