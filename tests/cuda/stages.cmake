# The stages of a prefill: one suite, for the GPU and for tests/emulation.
add_library(sluice_stage_suite OBJECT
  stage_scene.cc stage_judge.cc stage_bounds_test.cc stage_test.cc key_stage_test.cc
  simple_gla_test.cc)
sluice_suite_options(sluice_stage_suite)
target_link_libraries(sluice_stage_suite PRIVATE sluice_headers GTest::gtest)

add_executable(sluice_cuda_stage_tests
  $<TARGET_OBJECTS:sluice_stage_suite> $<TARGET_OBJECTS:sluice_cuda_parity_main>)
target_link_libraries(sluice_cuda_stage_tests PRIVATE
  sluice_flags sluice_test_support sluice CUDA::cudart_static GTest::gtest)
add_test(NAME cuda_stages COMMAND sluice_cuda_stage_tests --gtest_brief=1)
# 77: the machine has no GPU
set_tests_properties(cuda_stages PROPERTIES LABELS cuda SKIP_RETURN_CODE 77)
# Simple GLA as every other GPU has it.
add_test(NAME cuda_stages_generic
  COMMAND sluice_cuda_stage_tests --gtest_brief=1 --gtest_filter=*gla*:*SimpleGla*)
set_tests_properties(cuda_stages_generic PROPERTIES LABELS cuda SKIP_RETURN_CODE 77
  ENVIRONMENT SLUICE_CUDA_KERNEL=generic)
# ... and on Hopper in segments, in 64 columns of V, in clusters and as prefixes.
foreach(split 3 columns cluster4 cluster8 prefix1)
  add_test(NAME cuda_stages_split_${split}
    COMMAND sluice_cuda_stage_tests --gtest_brief=1 --gtest_filter=*gla*:*SimpleGla*)
  set_tests_properties(cuda_stages_split_${split} PROPERTIES LABELS cuda SKIP_RETURN_CODE 77
    ENVIRONMENT SLUICE_CUDA_SPLIT=${split})
endforeach()

# Gradients: the parity suite of the CPU on the GPU.
sluice_objects_of(suites sluice_parity_suites
  parity/backward_test parity/backward_segments_test parity/backward_bits_test parity/backward_call parity/free_tensor
  parity/gate_parameters_test parity/sequences)
add_executable(sluice_cuda_backward_tests ${suites} $<TARGET_OBJECTS:sluice_cuda_parity_main>)
target_link_libraries(sluice_cuda_backward_tests PRIVATE
  sluice_flags sluice_test_support sluice CUDA::cudart_static GTest::gtest)
add_test(NAME cuda_backward COMMAND sluice_cuda_backward_tests --gtest_brief=1)
set_tests_properties(cuda_backward PROPERTIES LABELS cuda SKIP_RETURN_CODE 77)
