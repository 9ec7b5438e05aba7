# The stages of a prefill: the GPU's own suite on the emulated kernels.
add_library(sluice_emulated_stages OBJECT emulated_stage_backend.cc)
target_include_directories(sluice_emulated_stages BEFORE PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_include_directories(sluice_emulated_stages SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_compile_options(sluice_emulated_stages PRIVATE
  -Wall -Wextra -Werror -Wno-unknown-pragmas -Wno-unused-value -Wno-restrict)
set_source_files_properties(emulated_stage_backend.cc PROPERTIES
  COMPILE_OPTIONS "-include;${CMAKE_CURRENT_SOURCE_DIR}/prelude.hpp;-O1")
target_link_libraries(sluice_emulated_stages PRIVATE sluice_headers)

# Tests of the backend whose kernels are these.
function(sluice_add_emulated_stages name)
  add_executable(${name} host_device_copy.cc ${ARGN}
    ${PROJECT_SOURCE_DIR}/src/cuda/stages.cc ${PROJECT_SOURCE_DIR}/src/cuda/stages_hopper.cc
    ${PROJECT_SOURCE_DIR}/src/cuda/kernels/stages/plan.cc
    ${PROJECT_SOURCE_DIR}/src/cuda/kernels/stages/compact_plan.cc
    ${PROJECT_SOURCE_DIR}/src/cuda/chunk_backward.cc
    ${PROJECT_SOURCE_DIR}/src/cuda/chunk_backward_tiles.cc
    ${PROJECT_SOURCE_DIR}/src/cuda/kernels/backward/plan.cc
    ${PROJECT_SOURCE_DIR}/src/cuda/lower.cc ${PROJECT_SOURCE_DIR}/src/cuda/select.cc
    ${PROJECT_SOURCE_DIR}/src/cuda/split.cc
    $<TARGET_OBJECTS:sluice_emulated_stages> $<TARGET_OBJECTS:sluice_emulation>
    $<TARGET_OBJECTS:sluice_core> $<TARGET_OBJECTS:sluice_ref> $<TARGET_OBJECTS:sluice_cpu>)
  target_link_libraries(${name} PRIVATE
    sluice_flags sluice_headers sluice_test_support
    $<TARGET_PROPERTY:sluice_cpu,LINK_LIBRARIES> CUDA::cudart_static Threads::Threads
    GTest::gtest_main)
  target_compile_options(${name} PRIVATE -Wno-psabi)
endfunction()
sluice_add_emulated_stages(sluice_emulated_stage_tests
  stage_selection_test.cc stage_plan_test.cc $<TARGET_OBJECTS:sluice_stage_suite>)
add_test(NAME emulated_stages COMMAND sluice_emulated_stage_tests --gtest_brief=1)
set_tests_properties(emulated_stages PROPERTIES LABELS cpu)
# Simple GLA as every other GPU has it.
add_test(NAME emulated_stages_generic
  COMMAND sluice_emulated_stage_tests --gtest_brief=1 --gtest_filter=*gla*:*SimpleGla*)
set_tests_properties(emulated_stages_generic PROPERTIES LABELS cpu
  ENVIRONMENT SLUICE_CUDA_KERNEL=generic)
# ... and on Hopper in segments, in 64 columns of V, and in clusters.
foreach(split 3 columns cluster4)
  add_test(NAME emulated_stages_split_${split}
    COMMAND sluice_emulated_stage_tests --gtest_brief=1 --gtest_filter=*gla*:*SimpleGla*)
  set_tests_properties(emulated_stages_split_${split} PROPERTIES LABELS cpu
    ENVIRONMENT SLUICE_CUDA_SPLIT=${split})
endforeach()
# Gradients: the parity suite of the CPU on the emulated kernels.
set(parity ${CMAKE_CURRENT_SOURCE_DIR}/../parity)
sluice_add_emulated_stages(sluice_emulated_backward_tests
  ${parity}/backward_test.cc ${parity}/backward_call.cc ${parity}/free_tensor.cc)
add_test(NAME emulated_backward COMMAND sluice_emulated_backward_tests --gtest_brief=1
  --gtest_filter=Packs/*:Halves/*:*Bits*)
set_tests_properties(emulated_backward PROPERTIES LABELS cpu)
