# Which kernel is chosen: host code, tested with and without nvcc.
set(choice ${PROJECT_SOURCE_DIR}/src/cuda/chunk_forward)
add_executable(sluice_cuda_selection_tests
  cut_join_test.cc prepared_test.cc cut_lead_test.cc cut_test.cc no_kernels.cc selection_test.cc ${PROJECT_SOURCE_DIR}/src/core/environment.cc
  ${PROJECT_SOURCE_DIR}/src/cuda/environment.cc
  ${choice}/catalogue.cc ${choice}/cut.cc ${choice}/cut_linear.cc ${choice}/one_launch.cc
  ${choice}/generic.cc)
target_link_libraries(sluice_cuda_selection_tests PRIVATE
  sluice_flags sluice_headers GTest::gtest_main)
gtest_discover_tests(sluice_cuda_selection_tests DISCOVERY_TIMEOUT 60 PROPERTIES LABELS cpu)
