#!/usr/bin/env bash
# Builds the ggml adaptor (examples/ggml) against a build of ggml and compares it with ggml's CPU backend.
#   scripts/check_ggml.sh GGML_SOURCE GGML_BUILD [BUILD_DIR]        (default: build/release)
#   of llama.cpp: scripts/check_ggml.sh LLAMA/ggml LLAMA/build
# ggml is built as shared libraries: cmake -S ggml -B ggml/build -G Ninja && cmake --build ggml/build
set -euo pipefail
cd "$(dirname "$0")/.."
source=$(realpath "$1")
ggml=$(realpath "$2")
build=$(realpath "${3:-build/release}")
folders=("$ggml/src" "$ggml/src/ggml-cpu" "$ggml/bin" "$build/src")
g++ -std=c++20 -O2 -Wall -Wextra -Iinclude -I"$source/include" -I"$source/src" \
  examples/ggml/check.cpp examples/ggml/sluice_backend.cpp "${folders[@]/#/-L}" "${folders[@]/#/-Wl,-rpath,}" -lsluice -lggml -lggml-cpu -lggml-base \
  -o "$build/ggml_check"
"$build/ggml_check"
