#!/usr/bin/env bash
# Measures that `sluice bench prefill` runs on the host, records, and refuses what is wrong; not how
# fast anything is. How: tiny cells, a look at the rows and their errors.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/expect.sh"

bench() { "$tool" bench prefill "$@"; }
host() { bench --backend cpu --repeat 2 --rest 1 --heads 2/4 "$@"; }
small='2/4 +65\+3 +auto +[0-9.]+ .* [0-9.]+e-0[78] +[0-9.]+e-0[78] .* cpu\.chunk_forward'
expect 0 "$small" host --lengths 65+3 --dtype fp32 --json out.json
expect 0 '2/4 +65x1 .* cpu\.' host --lengths 65,64x2 --dtype bf16 --gates slow --no-error --warm
expect 0 '2/4 +5x1 ' host --lengths 5 --dtype fp16 --gates flat --K 64 --V 32
expect 0 "$small" host --lengths 65+3 --dtype fp32 --gate-dtype bf16 --json halves.json
expect 0 '"gate_dtype": ?"bf16"' cat halves.json
expect 0 '"gate_dtype": ?"fp32"' cat out.json
expect 0 "$small" host --lengths 65+3 --dtype fp32 --norm --json norm.json
expect 0 '"norm": ?true' cat norm.json
expect 0 '"norm": ?false' cat out.json
expect 2 'gate-dtype' host --lengths 5 --gate-dtype fp8
expect 0 '"schema": "sluice.bench.prefill/1"' cat out.json
expect 0 '"command": "sluice bench prefill .*--lengths 65\+3 --dtype fp32 --backend cpu --repeat 2 --rest 1"' cat out.json
expect 0 '"error_state": ?[0-9.]+e-0[78]' cat out.json
expect 2 'cannot be written' host --lengths 5 --json /no/such/folder/x
expect 2 "'2/3': HV = 3 is no multiple" bench --backend cpu --heads 2/3 --lengths 64
expect 2 "'8k' is no list of lengths" bench --backend cpu --heads 2/4 --lengths 8k
expect 2 'has no such cell' bench --backend cpu --heads 3/3
expect 2 '--split 1: expected auto, never, columns, length or 2 to 4096 segments' host --lengths 5 --split 1
expect 0 '2/4 +5x1 +3 +[0-9.]+ ' host --lengths 5 --split never,3
expect 0 '1 of 1 choice within|0 of 1 choice within' host --lengths 5 --sweep
expect 2 'some not in' bench --history some
expect 2 'fast not in' bench --gates fast
expect 2 'none not in' bench --grid none

# Without a GPU: a message and a status of its own, for every command that takes --backend cuda.
if ! "$tool" info | grep -Eq '^cuda +yes'; then
  lacking='backend cuda (cannot run here; it needs|is not part of this build)'
  expect 3 "$lacking" bench --grid marks
  expect 3 "$lacking" "$tool" verify --backend cuda "$golden"
  expect 3 "$lacking" "$tool" run --backend cuda "$golden"
fi
expect 3 'not supported by cpu: chunk_forward: k\.shape\[3\] = 300' host --lengths 5 --K 300
