#!/usr/bin/env bash
# Packs what a build with CUDA needs on another machine, one with a GPU and without a compiler: the GPU
# test programs, the tool, and the shared libraries that they load.
#   scripts/pack_gpu_tests.sh BUILD FILE.tar.xz
# There, in a checkout: tar xf FILE.tar.xz, then
#   LD_LIBRARY_PATH=$PWD/packed/lib scripts/test_cuda.sh packed
#   LD_LIBRARY_PATH=$PWD/packed/lib benchmarks/run_gpu.sh packed/tools/sluice FOLDER
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
build=${1:?build directory} out=$(realpath "${2:?file}")
staged=$(mktemp -d)
trap 'rm -rf "$staged"' EXIT
mkdir -p "$staged/packed/tests/cuda" "$staged/packed/tools" "$staged/packed/lib"
programs=()
for file in "$build"/tests/cuda/*; do
  case $file in
    *selection_tests) ;;
    *) if [ -f "$file" ] && [ -x "$file" ]; then programs+=("$file"); fi ;;
  esac
done
[ ${#programs[@]} -gt 0 ] || { echo "$build/tests/cuda has no programs: build it with -DSLUICE_CUDA=ON"; exit 1; }
cp "${programs[@]}" "$staged/packed/tests/cuda"
cp "$build/tools/sluice" "$staged/packed/tools"
# The libraries of the project, and those that a plain system lacks.
ldd "${programs[@]}" "$build/tools/sluice" |
  awk '$3 ~ /lib(sluice|hwy|fmt)\.so/ {print $3}' | sort -u |
  while read -r library; do cp -L "$library" "$staged/packed/lib/$(basename "$library")"; done
strip "$staged"/packed/tests/cuda/* "$staged"/packed/tools/* "$staged"/packed/lib/*
tar -C "$staged" -cJf "$out" packed
du -h "$out" | cut -f1
