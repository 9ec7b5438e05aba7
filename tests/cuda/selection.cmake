# Which kernel is chosen: host code, tested with and without nvcc.
add_executable(sluice_cuda_selection_tests
  selection_test.cc split_test.cc ${PROJECT_SOURCE_DIR}/src/cuda/environment.cc
  ${PROJECT_SOURCE_DIR}/src/cuda/select.cc
  ${PROJECT_SOURCE_DIR}/src/cuda/split.cc
  ${PROJECT_SOURCE_DIR}/src/cuda/split_linear.cc)
target_link_libraries(sluice_cuda_selection_tests PRIVATE
  sluice_flags sluice_headers GTest::gtest_main)
gtest_discover_tests(sluice_cuda_selection_tests DISCOVERY_TIMEOUT 60 PROPERTIES LABELS cpu)
