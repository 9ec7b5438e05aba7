#!/usr/bin/env bash
# Measures `sluice verify` on the recorded cases: each backend, dtype and layout, and foreign results.
# How: all must pass; zeros, another file's results and missing ones must not.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/expect.sh"

for backend in cpu reference reference-chunked; do
  expect 0 '8 cases, 42 tensors, 0 failed' \
    "$tool" verify --backend $backend "$golden" "$layers"/*.safetensors
done
for dtype in bf16 f16; do
  expect 0 '6 cases, 12 tensors, 0 failed' "$tool" verify --dtype $dtype --layout bhtd "$golden"
  expect 0 '2 cases, 30 tensors, 0 failed' "$tool" verify --dtype $dtype "$layers"/*.safetensors
done
expect 0 '3 cases, 6 tensors, 0 failed' "$tool" verify --filter 1x65 "$golden"
expect 2 "no case's name contains" "$tool" verify --filter nothing "$golden"

# Without files: cases drawn here, every operator.
expect 0 '^model_layer \(layer, cpu\.' "$tool" verify --backend cpu
expect 0 ' tensors, 0 failed$' "$tool" verify --dtype bf16
expect 2 'needs the case files' "$tool" verify --against results
# What the Python command takes, with the same meaning.
expect 0 'One such layer reads' "$tool" bench --backend cpu --heads 1 --value-heads 2 --dim 16 \
  --tokens 20 --batch 2 --threads 1

# Results of float32 do not pass for results on inputs rounded to float16, and the reverse.
"$tool" run -o results "$golden" >/dev/null
expect 0 '6 cases, 12 tensors, 0 failed' "$tool" verify --against results "$golden"
"$tool" run -o layer "$layers/qwen3_5_layer.safetensors" >/dev/null
expect 1 'FAIL: missing' "$tool" verify --against layer "$golden"
expect 1 'FAIL: shape \[1, 150, 4, 128\], expected \[1, 200, 4, 128\]' \
  "$tool" verify --against layer "$layers/qwen3_next_layer.safetensors"

# Zeros in place of every result.
header=$(od -An -t u8 -N 8 results | tr -d ' ')
head -c $((header + 8)) results >zeros
head -c $(($(stat -c %s results) - header - 8)) /dev/zero >>zeros
expect 1 '6 cases, 12 tensors, 12 failed' "$tool" verify --against zeros "$golden"

# What a backend does not support is listed and counted, with a status of its own; a failure goes first.
"$tool" make-case -o mixed --name wide --K 300 --T 3 >/dev/null
"$tool" make-case -o mixed --append --name narrow --K 32 --T 3 >/dev/null
expect 3 'not supported by cpu: chunk_forward: k\.shape\[3\] = 300' "$tool" verify --backend cpu mixed
expect 3 '^1 case, 2 tensors, 0 failed; 1 more case not supported by cpu$' \
  "$tool" verify --backend cpu mixed
expect 0 '^2 cases, 4 tensors, 0 failed$' "$tool" verify --backend reference mixed
expect 3 '^0 cases, 0 tensors, 0 failed; 1 more case ' "$tool" verify --backend cpu --filter wide mixed
expect 3 'wide: not supported by cpu: ' "$tool" run --backend cpu mixed
expect 3 'not all supported' "$tool" run --backend cpu mixed
expect 3 'wide: not supported' "$tool" run --backend cpu --case wide mixed
# The narrow case comes first in the file.
data=$(($(od -An -t u8 -N 8 mixed | tr -d ' ') + 8))
{ head -c "$data" mixed; head -c 300 /dev/zero; tail -c +$((data + 301)) mixed; } >spoilt
expect 1 '1 more case not supported by cpu' "$tool" verify --backend cpu spoilt
