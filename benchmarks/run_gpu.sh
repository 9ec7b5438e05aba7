#!/usr/bin/env bash
# Runs every GPU benchmark of the tool one after the other and leaves its records, one JSON file each,
# in a folder: what benchmarks/results/<machine>/ is made of.
#   benchmarks/run_gpu.sh TOOL FOLDER [COMMIT] [PART..]
# PARTs: marks published strict tileops slow sweep long decode layer parts backward (default: all,
# about 8 minutes on an H200). A part that fails is named at the end; the others still run.
# SPDX-License-Identifier: Apache-2.0
set -uo pipefail
tool=${1:?tool} folder=${2:?folder} commit=${3:-unknown}
shift $(($# < 3 ? $# : 3))
parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(marks published strict tileops slow sweep long decode layer parts
  backward)
mkdir -p "$folder"
failed=()

# record NAME COMMAND..: the table to the terminal and NAME.txt, the record to NAME.json
record() {
  local name=$1
  shift
  echo "== $name: sluice bench $*"
  "$tool" bench "$@" --commit "$commit" --json "$folder/$name.json" 2>"$folder/$name.log" |
    tee "$folder/$name.txt" || failed+=("$name")
}

for part in "${parts[@]}"; do
  case $part in
    marks) record prefill_marks prefill --grid marks --repeat 100 ;;
    published) record prefill_published prefill --grid published --repeat 30 --rest 50 ;;
    strict) record prefill_strict prefill --grid published --history strict --repeat 20 --rest 20 \
      --no-error ;;
    tileops) record prefill_tileops prefill --grid tileops --gates uniform --dtype fp16 --repeat 30 ;;
    slow) record prefill_tileops_slow prefill --grid tileops --gates slow --dtype fp16 --repeat 30 ;;
    sweep) record prefill_sweep prefill --heads 2/8,4/16,8/32,16/64,16/48 \
      --lengths 32768,8192,2048,28672+4096,8192x4,1024x8 --sweep --repeat 15 --rest 20 --no-error ;;
    long) record prefill_long prefill --heads 4/16 --lengths 65536,131072,262144,524288,1048576 \
      --repeat 5 --no-error ;;
    decode) record decode decode ;;
    layer) record layer layer ;;
    parts) record parts parts ;;
    backward) record backward backward ;;
    *) failed+=("$part (unknown)") ;;
  esac
done
[ ${#failed[@]} -eq 0 ] || { echo "FAILED: ${failed[*]}"; exit 1; }
