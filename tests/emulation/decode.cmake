# The decode kernel: the parity suites' own configurations of steps and layers, emulated.
add_library(sluice_emulated_decode OBJECT emulator.cc emulated_decode_backend.cc)
target_include_directories(sluice_emulated_decode BEFORE PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_include_directories(sluice_emulated_decode SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_compile_options(sluice_emulated_decode PRIVATE
  -Wall -Wextra -Werror -Wno-unknown-pragmas -Wno-unused-value -Wno-restrict)
set_source_files_properties(emulated_decode_backend.cc PROPERTIES
  COMPILE_OPTIONS "-include;${CMAKE_CURRENT_SOURCE_DIR}/prelude.hpp")
target_link_libraries(sluice_emulated_decode PRIVATE sluice_headers)

set(parity ${PROJECT_SOURCE_DIR}/tests/parity)
set(cuda ${PROJECT_SOURCE_DIR}/src/cuda)
add_executable(sluice_emulated_decode_tests
  decode_selection_test.cc emulated_decode_test.cc emulated_layer_decode_test.cc
  host_device_copy.cc
  ${parity}/decode_session_test.cc ${parity}/random_delta_test.cc ${parity}/recurrent_step_test.cc
  ${parity}/replay_ring_test.cc ${parity}/ring_layer_test.cc
  ${parity}/delta_call.cc ${parity}/delta_judge.cc
  ${cuda}/decode.cc ${cuda}/lower_decode.cc ${cuda}/lower_ring.cc ${cuda}/lower_single.cc
  ${cuda}/lower_single_layer.cc
  ${cuda}/select_decode.cc
  $<TARGET_OBJECTS:sluice_layer_suites>
  $<TARGET_OBJECTS:sluice_emulated_decode>
  $<TARGET_OBJECTS:sluice_core> $<TARGET_OBJECTS:sluice_ref> $<TARGET_OBJECTS:sluice_cpu>)
target_link_libraries(sluice_emulated_decode_tests PRIVATE
  sluice_flags sluice_headers sluice_test_support
  $<TARGET_PROPERTY:sluice_cpu,LINK_LIBRARIES> CUDA::cudart_static Threads::Threads
  GTest::gtest_main)
target_compile_options(sluice_emulated_decode_tests PRIVATE -Wno-psabi)
add_test(NAME emulated_decode COMMAND sluice_emulated_decode_tests --gtest_brief=1
  --gtest_filter=*Decode*:*RecurrentStep*:*ReplayRing*:-*Composition*)
set_tests_properties(emulated_decode PROPERTIES LABELS cpu)
