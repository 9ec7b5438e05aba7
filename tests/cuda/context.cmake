# Sequences cut over ranks, on a GPU: the suite of the CPU once more.
sluice_objects_of(context_suites sluice_parity_suites parity/context_call parity/context_test)
add_executable(sluice_cuda_context_tests
  ${context_suites} $<TARGET_OBJECTS:sluice_cuda_parity_main>)
target_link_libraries(sluice_cuda_context_tests PRIVATE
  sluice_flags sluice_test_support sluice CUDA::cudart_static GTest::gtest)
add_test(NAME cuda_context COMMAND sluice_cuda_context_tests --gtest_brief=1)
set_tests_properties(cuda_context PROPERTIES LABELS cuda SKIP_RETURN_CODE 77)
