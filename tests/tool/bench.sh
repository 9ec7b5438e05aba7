#!/usr/bin/env bash
# Measures that `sluice bench cpu` runs every kind of row and writes JSON; not how fast anything is.
# How: the smallest shape, one short round, and a look at the rows, their errors and the file.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/expect.sh"

bench() { "$tool" bench cpu --model qwen3-next-tp8 --rounds 1 --seconds 0.001 --no-peers "$@"; }
expect 0 'prefill +1 +65 +sluice .* [0-9.]+ GFLOP/s .* [0-9.]+e-0[78]$' bench --op prefill --T 65
expect 0 'decode, hot +3 +1 +sluice .* GB/s .* [0-9.]+e-0[78]$' bench --op decode --B 3 --states hot
expect 0 'bfloat16' bench --op prefill --T 65 --dtype bf16 --threads 2
bench --op prefill --T 2,65 -o out.json >/dev/null
expect 0 '"error_sample"' cat out.json
expect 2 'cannot be written' bench --op prefill --T 2 -o /no/such/folder/x
expect 0 'decode, hot +2 +4 +sluice [0-9.]+ bfloat16 vk .* GB/s ' bench --op decode --B 2 --steps 4 --states hot --state-type fp32,bf16 --state-layout kv,vk
expect 0 '2/6/16x48 +prefill +1 +65 +sluice .* [0-9.]+e-0[78]$' bench --model 2/6/16x48 --op prefill --T 65
expect 0 '2/6/16x48 +decode, hot .* float16 vk .* [0-9.]+e-04$' bench --model 2/6/16x48 --op decode --states hot --state-type fp16 --state-layout vk
expect 0 'layer +[0-9.]+ [mu]s .* [0-9.]+ [KM]iB' bench --op prefill --T 65 --layer --dtype bf16 --pages small
expect 0 'decode, hot .*, layer' bench --op decode --states hot --layer
expect 0 'sluice [0-9.]+, 1 thread .* [0-9.]+e-0[78]$' bench --op prefill --T 65 --threads 2
expect 0 '"peak_resident_bytes": [1-9]' cat out.json
expect 2 "no model '3/4'" bench --model 3/4
