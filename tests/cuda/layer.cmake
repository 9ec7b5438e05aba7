# Convolution, gated norm and layers: the parity suites on a GPU. Layers run with the kernels that are
# chosen by themselves; scripts/test_cuda.sh runs this too.

add_executable(sluice_cuda_layer_tests
  layer_replay_test.cc ${layer_suites} $<TARGET_OBJECTS:sluice_cuda_parity_main>)
target_link_libraries(sluice_cuda_layer_tests PRIVATE
  sluice_flags sluice_test_support sluice CUDA::cudart_static GTest::gtest)
add_test(NAME cuda_layer COMMAND sluice_cuda_layer_tests --gtest_brief=1)
set_tests_properties(cuda_layer PROPERTIES LABELS cuda SKIP_RETURN_CODE 77)
