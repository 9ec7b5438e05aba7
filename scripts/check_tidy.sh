#!/usr/bin/env bash
# Runs clang-tidy over the host code with the checks of .clang-tidy; any finding is an error.
#
#   scripts/check_tidy.sh [FILE...]
#
# Without files: src/core, src/io, the host files of src/cpu, and those of src/cuda where the CUDA
# toolkit's headers are found. Takes at most 3 minutes on two cores. Needs no build.
set -euo pipefail
cd "$(dirname "$0")/.."
case ${1:-} in -h | --help) sed -n '2,/^[^#]/{/^#/!q;s/^# \{0,1\}//;p}' "$0"; exit 0 ;; esac

includes=(-Iinclude -Isrc)
for toolkit in "${CUDA_HOME:-}" /usr/local/cuda /usr; do
  if [ -n "$toolkit" ] && [ -e "$toolkit/include/cuda_runtime_api.h" ]; then
    includes+=(-isystem "$toolkit/include")
    break
  fi
  toolkit=
done
files=("$@")
if [ $# -eq 0 ]; then
  folders=(src/core src/io)
  [ -z "$toolkit" ] || folders+=(src/cuda)
  mapfile -t files < <(find "${folders[@]}" -name '*.cc' | sort; ls src/cpu/*.cc)
fi
echo "clang-tidy: ${#files[@]} files"
# What it says on stderr is how many warnings it left out.
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -I{} \
  clang-tidy --quiet {} -- -std=c++20 '-DSLUICE_VERSION_STRING=""' "${includes[@]}" 2>/dev/null
echo "clang-tidy: no finding"
