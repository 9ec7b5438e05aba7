#!/usr/bin/env bash
# Measures that `sluice bench parts` runs on the host, records, and refuses what is wrong; not how fast
# anything is. How: the smallest calls of its grid, and a look at the rows.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/expect.sh"

parts() { "$tool" bench parts "$@"; }
host() { parts --backend cpu --repeat 1 --heads 1/2 --most-tokens 512 "$@"; }
expect 0 'update +ring, columns outside +1/2 +64 +1 .* cpu\.causal_conv1d' host --op update
expect 0 'norm +1/2 +1 +64 .* cpu\.gated_rms_norm' host --op norm --dtype fp16
expect 0 'layer +flat +1/2 +1 +512 .* cpu\.layer_prefill' host --op layer --json out.json
expect 0 'layer-backward +flat +1/2 +1 +512 .* cpu\.layer_backward' host --op layer-backward
expect 0 'interleaved +1/2 +65 .* cpu\.layer_backward' "$tool" bench train-layer --backend cpu \
  --repeat 1 --heads 1/2 --tokens 65 --packing interleaved --json train.json
expect 0 '"tokens_per_s":[0-9]' cat train.json
expect 0 '"schema": "sluice.bench.parts/1"' cat out.json
expect 0 '"around_us":[0-9.-]+' cat out.json
expect 2 'cannot be written' host --op norm --json /no/such/folder/x
expect 2 "'2/3': HV = 3 is no multiple" parts --backend cpu --heads 2/3
if ! "$tool" info | grep -Eq '^cuda +yes'; then
  expect 3 'backend cuda (cannot run here; it needs|is not part of this build)' parts
fi
