#!/usr/bin/env bash
# Runs every test that needs a GPU, from a build directory that has them, then the small cases once
# more under compute-sanitizer where that is installed.
#   scripts/test_cuda.sh [build directory]        (default: build/release)
# The executables may have been built elsewhere: nothing is configured or compiled here.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build/release}/tests/cuda
tests=$folder/sluice_cuda_tests
[ -x "$tests" ] || { echo "$tests is missing: build it with -DSLUICE_CUDA=ON"; exit 1; }
if ! nvidia-smi -L 2>/dev/null; then
  echo "skipped: no NVIDIA GPU on this machine"
  exit 0
fi

for check in cuda_wrappers_check cuda_chunk_forward_check cuda_api_check; do
  echo "== $check"
  "$folder/$check"
done
echo "== sluice_cuda_tests"
"$tests" --gtest_brief=1
sanitizer=$(command -v compute-sanitizer || true)
[ -n "$sanitizer" ] || { echo "no compute-sanitizer here"; exit 0; }
# WHY not racecheck: it does not follow mbarriers, on which every hand-over of the fused kernel rests.
for tool in memcheck synccheck initcheck; do
  echo "== $tool"
  "$sanitizer" --tool "$tool" --error-exitcode 9 \
    "$tests" --gtest_brief=1 --gtest_filter='*/seed1:*/seed3:*/seed7:*/seed12:*/seed15:*/seed22'
done
