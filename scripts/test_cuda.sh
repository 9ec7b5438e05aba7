#!/usr/bin/env bash
# Runs every test that needs a GPU, from a build directory that has them, then the small cases once
# more under compute-sanitizer where that is installed.
#   scripts/test_cuda.sh [build directory] [folder for results]     (default: build/release, its cuda)
# The executables may have been built elsewhere: nothing is configured or compiled here.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-build/release}/tests/cuda
tests=$folder/sluice_cuda_tests
[ -x "$tests" ] || { echo "$tests is missing: build it with -DSLUICE_CUDA=ON"; exit 1; }
results=${2:-${1:-build/release}/cuda}
mkdir -p "$results"
if ! nvidia-smi -L 2>/dev/null; then
  echo "skipped: no NVIDIA GPU on this machine"
  exit 0
fi

failed=()
for check in cuda_wrappers_check cuda_chunk_forward_check cuda_api_check cuda_repeat_check; do
  echo "== $check"
  "$folder/$check" || failed+=("$check")
done
# Most of the time is the reference's, on the CPU: several processes share it out.
shards=${SLUICE_TEST_SHARDS:-8}
for program in sluice_cuda_tests sluice_cuda_stress_tests; do
  echo "== $program"
  processes=()
  for ((i = 0; i < shards; ++i)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i \
      "$folder/$program" --gtest_brief=1 --gtest_output="json:$results/$program.$i.json" &
    processes+=($!)
  done
  for process in "${processes[@]}"; do wait "$process" || failed+=("$program"); done
done

sanitizer=$(command -v compute-sanitizer || true)
finish() {
  [ ${#failed[@]} -eq 0 ] && exit 0
  echo "FAILED: ${failed[*]}"
  exit 1
}
[ -n "$sanitizer" ] || { echo "skipped: no compute-sanitizer here"; finish; }
small='*/seed1:*/seed3:*/seed7:*/seed12:*/seed15:*/seed22'
for tool in memcheck synccheck initcheck; do
  echo "== $tool"
  "$sanitizer" --tool "$tool" --error-exitcode 9 \
    "$tests" --gtest_brief=1 --gtest_filter="$small:*MalformedOffsets*" || failed+=("$tool")
done
echo "== racecheck"
# Its exit code counts for nothing: it reports hand-overs through mbarriers that it cannot follow.
"$sanitizer" --tool racecheck --racecheck-report hazard --show-backtrace no --print-limit 10000000 \
  "$tests" --gtest_filter='*CudaChunkForward*/seed1:*CudaChunkForward*/seed3:*CudaChunkForward*/seed7' \
  >"$results/racecheck.log" || true
python3 scripts/racecheck.py "$results/racecheck.log" || failed+=(racecheck)
finish
