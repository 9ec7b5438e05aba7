#!/usr/bin/env bash
# Builds the ggml adaptor (examples/ggml) against a build of ggml and compares it with ggml's CPU backend,
# and, where ggml and this build have CUDA and there is a GPU, with ggml's CUDA backend. Where ggml has no
# CUDA, the CPU backend stands in for it: all of the adaptor but streams and graphs.
#   scripts/check_ggml.sh GGML_SOURCE GGML_BUILD [BUILD_DIR]        (default: build/release)
#   of llama.cpp: scripts/check_ggml.sh LLAMA/ggml LLAMA/build
# ggml is built as shared libraries: cmake -S ggml -B ggml/build -G Ninja && cmake --build ggml/build
# What it builds stays in BUILD_DIR/ggml: the programs, and libggml-sluice.so for GGML_BACKEND_PATH.
set -euo pipefail
cd "$(dirname "$0")/.."
source=$(realpath "$1")
ggml=$(realpath "$2")
build=$(realpath "${3:-build/release}")
cuda=${CUDA_HOME:-/usr/local/cuda}
example=examples/ggml
out=$build/ggml
mkdir -p "$out"

folders=()
for folder in "$ggml/src" "$ggml/src/ggml-cpu" "$ggml/src/ggml-cuda" "$ggml/bin" "$build/src"; do
  if [ -d "$folder" ]; then folders+=("$folder"); fi
done
# The driver's library, which ggml's CUDA backend wants, may be absent where this is built.
# shellcheck disable=SC2054  # commas are the linker's
compile=(g++ -std=c++20 -O2 -Wall -Wextra -Wno-unused-function -Iinclude -I"$source/include" -I"$source/src"
  "${folders[@]/#/-L}" "${folders[@]/#/-Wl,-rpath,}" -Wl,--allow-shlib-undefined)
backend=("$example/sluice_backend.cpp")
libraries=(-lsluice -lggml -lggml-cpu -lggml-base)

theirs=no ours=no
if [ -e "$ggml/bin/libggml-cuda.so" ] || [ -e "$ggml/src/ggml-cuda/libggml-cuda.so" ]; then theirs=yes; fi
if grep -q '^SLUICE_CUDA:STRING=ON' "$build/CMakeCache.txt"; then ours=yes; fi
if [ $theirs$ours = yesyes ]; then
  compile+=(-DSLUICE_GGML_CUDA -I"$cuda/include" -L"$cuda/lib64")
  backend+=("$example/sluice_cuda.cpp")
  libraries+=(-lcudart)
  "${compile[@]}" "$example/check_cuda.cpp" "${backend[@]}" "${libraries[@]}" -o "$out/check_cuda"
  "${compile[@]}" "$example/time_cuda.cpp" "${libraries[@]}" -o "$out/time_cuda"
fi
"${compile[@]}" "$example/check.cpp" "${backend[@]}" "${libraries[@]}" -o "$out/check"
"${compile[@]}" -DGGML_BACKEND_DL -DGGML_BACKEND_SHARED -DGGML_BACKEND_BUILD -fPIC -shared "${backend[@]}" \
  "${libraries[@]}" -o "$out/libggml-sluice.so"
if [ -e "$ggml/bin/libllama.so" ]; then
  "${compile[@]}" -I"$source/../include" "$example/llama_run.cpp" -lllama "${libraries[@]}" -o "$out/llama_run"
fi

if [ $theirs = yes ] && ! nvidia-smi > /dev/null 2>&1; then
  echo "SKIPPED: nothing was run, as this build of ggml has CUDA and there is no GPU"
  exit 0
fi
"$out/check"
if [ $theirs$ours != yesyes ]; then
  echo "SKIPPED: tensors on a GPU (CUDA in this build of ggml: $theirs, in $build: $ours)"
fi
if [ $theirs = no ]; then
  if [ ! -f "$cuda/include/cuda_runtime.h" ]; then
    echo "SKIPPED: the stand-in for CUDA, as $cuda has no headers"
    exit 0
  fi
  "${compile[@]}" -DSLUICE_GGML_CUDA -DSLUICE_GGML_STAND_IN -isystem "$cuda/include" "$example/check_cuda.cpp" \
    "$example/stand_in.cpp" "$example/sluice_cuda.cpp" "${backend[@]}" "${libraries[@]}" -o "$out/check_cuda"
elif [ $ours = no ]; then
  exit 0
fi
for prompts in kept float16 float32; do
  echo "SLUICE_GGML_PROMPT=$prompts"
  SLUICE_GGML_PROMPT=$prompts "$out/check_cuda"
done
