# The operators around the delta rule: the parity suites' own configurations on the emulated kernels.
add_library(sluice_emulated_layer OBJECT emulated_layer_backend.cc)
target_include_directories(sluice_emulated_layer BEFORE PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_include_directories(sluice_emulated_layer SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_compile_options(sluice_emulated_layer PRIVATE
  -Wall -Wextra -Werror -Wno-unknown-pragmas -Wno-unused-value -Wno-restrict)
set_source_files_properties(emulated_layer_backend.cc PROPERTIES
  COMPILE_OPTIONS "-include;${CMAKE_CURRENT_SOURCE_DIR}/prelude.hpp")
target_link_libraries(sluice_emulated_layer PRIVATE sluice_headers)

set(cuda ${PROJECT_SOURCE_DIR}/src/cuda)
add_executable(sluice_emulated_layer_tests
  conv_plan_test.cc emulated_conv_test.cc emulated_layer_test.cc host_device_copy.cc
  $<TARGET_OBJECTS:sluice_layer_suites>
  ${cuda}/lower.cc ${cuda}/select.cc ${cuda}/split.cc
  ${cuda}/causal_conv1d.cc ${cuda}/gated_rms_norm.cc ${cuda}/layer_prefill.cc
  ${cuda}/kernels/conv1d/plan.cc ${cuda}/kernels/gated_norm/plan.cc
  $<TARGET_OBJECTS:sluice_emulated_layer> $<TARGET_OBJECTS:sluice_emulation>
  $<TARGET_OBJECTS:sluice_core> $<TARGET_OBJECTS:sluice_ref> $<TARGET_OBJECTS:sluice_cpu>)
target_link_libraries(sluice_emulated_layer_tests PRIVATE
  sluice_flags sluice_headers sluice_test_support
  $<TARGET_PROPERTY:sluice_cpu,LINK_LIBRARIES> CUDA::cudart_static Threads::Threads
  GTest::gtest_main)
target_compile_options(sluice_emulated_layer_tests PRIVATE -Wno-psabi)
# Not: where the reference in place of the delta rule rounds twice.
add_test(NAME emulated_layer COMMAND sluice_emulated_layer_tests --gtest_brief=1
  --gtest_filter=-*InTurn/*_rounding1:*InTurn/*_rounding2)
set_tests_properties(emulated_layer PROPERTIES LABELS cpu)
