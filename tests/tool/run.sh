#!/usr/bin/env bash
# Measures the main job: `sluice run` on the recorded Hugging Face layers and prefill cases.
# How: it must pass on each backend, write results that verify, and fail on a result changed by hand.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/expect.sh"

for backend in cpu reference reference-chunked; do
  for layer in qwen3_next_layer qwen3_5_layer; do
    expect 0 '4  decode +1 .* PASS' "$tool" run --backend $backend "$layers/$layer.safetensors"
  done
  expect 0 'slow.1x65x3x128x128 +prefill +65 .* PASS' "$tool" run --backend $backend "$golden"
done

layer=$layers/qwen3_next_layer.safetensors
expect 0 'results written to out' "$tool" run -o out "$layer"
expect 0 '^1 case, 15 tensors, 0 failed' "$tool" verify --against out "$layer"
expect 0 'model.1x63x2x128x128' "$tool" run --case model.1x63x2x128x128 "$golden"
expect 2 "has no case 'none'" "$tool" run --case none "$golden"
expect 2 'cannot be created' "$tool" run -o /no/such/folder/x "$layer"

# The last byte of the file belongs to a recorded value or a weight: nothing may pass unnoticed.
size=$(stat -c %s "$golden")
head -c $((size - 40000)) "$golden" >changed
head -c 20000 /dev/zero >>changed
tail -c 20000 "$golden" >>changed
expect 1 'FAIL' "$tool" run changed
