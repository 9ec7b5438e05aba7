# Steps on a GPU: the parity suites of recurrent_step and sessions of calls, and what only a GPU shows.
# Layer steps are among those of layer.cmake. scripts/test_cuda.sh runs this too.
target_sources(sluice_cuda_tests PRIVATE decode_test.cc)

add_test(NAME cuda_parity_decode COMMAND sluice_cuda_parity_tests --gtest_brief=1
  --gtest_filter=*RecurrentStep*:*DecodeSession*:*ReplayRing*)
set_tests_properties(cuda_parity_decode PROPERTIES LABELS cuda SKIP_RETURN_CODE 77)
