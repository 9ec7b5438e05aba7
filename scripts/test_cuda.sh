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

step() { printf "== %s (%s s)\n" "$1" "$SECONDS"; }
failed=()
for check in cuda_wrappers_check cuda_chunk_forward_check cuda_api_check cuda_repeat_check; do
  step "$check"
  "$folder/$check" || failed+=("$check")
done
# Most of the time is the reference's, on the CPU: several processes share it out.
shards=${SLUICE_TEST_SHARDS:-8}
# sharded NAME PROGRAM [argument..]: results in NAME.<shard>.json
sharded() {
  local name=$1 program=$2 processes=() process i
  shift 2
  step "$name"
  for ((i = 0; i < shards; ++i)); do
    GTEST_TOTAL_SHARDS=$shards GTEST_SHARD_INDEX=$i \
      "$folder/$program" --gtest_brief=1 --gtest_output="json:$results/$name.$i.json" "$@" &
    processes+=($!)
  done
  for process in "${processes[@]}"; do wait "$process" || failed+=("$name"); done
}
sharded sluice_cuda_tests sluice_cuda_tests
sharded sluice_cuda_stress_tests sluice_cuda_stress_tests
sharded cuda_layer sluice_cuda_layer_tests
sharded cuda_stages sluice_cuda_stage_tests
# Every way to spread simple GLA, which sizes of tests alone do not reach.
for split in 3 columns cluster2 cluster4 cluster6 cluster8 prefix1 prefix2; do
  SLUICE_CUDA_SPLIT=$split sharded "cuda_stages_split_$split" sluice_cuda_stage_tests
done
sharded cuda_backward sluice_cuda_backward_tests
sharded cuda_parity sluice_cuda_parity_tests \
  "--gtest_filter=*Invariance*:*RandomDelta*:*KeyGates*:*FarSlots*:*DebugIndices*:*ViewStrides*"
sharded cuda_parity_decode sluice_cuda_parity_tests "--gtest_filter=*RecurrentStep*:*DecodeSession*:*ReplayRing*"
# The generic kernel alone. Not: the largest counts, which are minutes of the reference, and what it
# does not have: replay rings, error limits of 16 bits, a workspace, ways to spread a call.
export SLUICE_CUDA_KERNEL=generic
sharded cuda_parity_generic sluice_cuda_parity_tests \
  "--gtest_filter=-*8192*:*2_to_the_20*:*65600*:*ReplayRing*:ViewStrides.RecurrentStep"
sharded cuda_forced_generic sluice_cuda_tests \
  "--gtest_filter=-*CudaAccuracy*:CudaWorkspace*:*CudaLayerDecode*:*CudaEnvironment*"
unset SLUICE_CUDA_KERNEL

sanitizer=$(command -v compute-sanitizer || true)
finish() {
  [ ${#failed[@]} -eq 0 ] && exit 0
  echo "FAILED: ${failed[*]}"
  exit 1
}
[ -n "$sanitizer" ] || { echo "skipped: no compute-sanitizer here"; finish; }
small='*/seed1:*/seed3:*/seed7:*/seed12:*/seed15:*/seed22'
for tool in memcheck synccheck initcheck; do
  step "$tool"
  "$sanitizer" --tool "$tool" --error-exitcode 9 \
    "$tests" --gtest_brief=1 --gtest_filter="$small:*MalformedOffsets*" || failed+=("$tool")
done
for tool in memcheck racecheck synccheck initcheck; do
  step "$tool, generic kernel"
  SLUICE_CUDA_KERNEL=generic "$sanitizer" --tool "$tool" --error-exitcode 9 \
    "$folder/sluice_cuda_parity_tests" --gtest_brief=1 --gtest_filter='*RandomDelta*/seed2?' ||
    failed+=("$tool generic")
done
for tool in memcheck racecheck synccheck initcheck; do
  step "$tool, layers"
  "$sanitizer" --tool "$tool" --error-exitcode 9 "$folder/sluice_cuda_layer_tests" --gtest_brief=1 \
    --gtest_filter='Random/CausalConv1d*seed1?:Prefills/*:Updates/*:Random/GatedRmsNorm*seed1?:Sizes/GatedRmsNorm*:RandomPrefill/Layer*seed1?' ||
    failed+=("$tool layers")
done
for tool in memcheck racecheck synccheck initcheck; do
  step "$tool, stages"
  # racecheck cannot follow hand-overs through mbarriers: Hopper's kernels are left out of it.
  kernels=auto without=()
  [ "$tool" = racecheck ] && kernels=generic without=(--kernel-regex-exclude kns=chunk_h_kernel)
  SLUICE_CUDA_KERNEL=$kernels "$sanitizer" --tool "$tool" --error-exitcode 9 \
    "$folder/sluice_cuda_stage_tests" --gtest_brief=1 || failed+=("$tool stages")
  [ "$tool" = racecheck ] || SLUICE_CUDA_SPLIT=cluster4 "$sanitizer" --tool "$tool" \
    --error-exitcode 9 "$folder/sluice_cuda_stage_tests" --gtest_brief=1 --gtest_filter='*gla*' ||
    failed+=("$tool clusters")
  "$sanitizer" --tool "$tool" "${without[@]}" --error-exitcode 9 \
    "$folder/sluice_cuda_backward_tests" --gtest_brief=1 \
    --gtest_filter='Packs/*:*Halves/*:*Bits*-*AllMultiprocessors' || failed+=("$tool backward")
done
for tool in memcheck racecheck synccheck initcheck; do
  step "$tool, decode kernel"
  "$sanitizer" --tool "$tool" --error-exitcode 9 "$folder/sluice_cuda_parity_tests" --gtest_brief=1 \
    --gtest_filter='*RecurrentStep/RandomDelta*/seed2?:*RecurrentStep*single*:*DecodeSession*K128*:*ReplayRing.EveryCall*:ReplayRingOfMany*' || failed+=("$tool decode")
  "$sanitizer" --tool "$tool" --error-exitcode 9 "$folder/sluice_cuda_layer_tests" --gtest_brief=1 \
    --gtest_filter='Decode/*T2*:Decode/*r4*:SingleTokens/*' || failed+=("$tool layer decode")
done
step racecheck
# Its exit code counts for nothing: it reports hand-overs through mbarriers that it cannot follow.
"$sanitizer" --tool racecheck --racecheck-report hazard --show-backtrace no --print-limit 10000000 \
  "$tests" --gtest_filter='*CudaChunkForward*/seed1:*CudaChunkForward*/seed3:*CudaChunkForward*/seed7' \
  >"$results/racecheck.log" || true
python3 scripts/racecheck.py "$results/racecheck.log" || failed+=(racecheck)
finish
