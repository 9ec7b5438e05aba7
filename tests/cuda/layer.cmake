# Convolution, gated norm and layers: the parity suites on a GPU. Layers run with the kernels that are
# chosen by themselves; scripts/test_cuda.sh runs this too.

# The suites once, for the GPU and for tests/emulation.
add_library(sluice_layer_suites OBJECT
  ${parity}/causal_conv1d_test.cc ${parity}/gated_rms_norm_test.cc ${parity}/layer_test.cc
  ${parity}/composition_test.cc ${parity}/mixed_batch_test.cc
  ${parity}/conv_call.cc ${parity}/layer_call.cc ${parity}/free_tensor.cc ${parity}/sequences.cc)
target_link_libraries(sluice_layer_suites PRIVATE
  sluice_flags sluice_test_support sluice_headers GTest::gtest)

add_executable(sluice_cuda_layer_tests
  parity_main.cc device_copy.cc layer_replay_test.cc $<TARGET_OBJECTS:sluice_layer_suites>)
target_link_libraries(sluice_cuda_layer_tests PRIVATE
  sluice_flags sluice_test_support sluice CUDA::cudart_static GTest::gtest)
add_test(NAME cuda_layer COMMAND sluice_cuda_layer_tests --gtest_brief=1)
set_tests_properties(cuda_layer PROPERTIES LABELS cuda SKIP_RETURN_CODE 77)
