#!/usr/bin/env bash
# Measures `sluice make-case`: every operator, layout and profile gives a file that verifies.
# How: cases of each kind are written to one file, which the CPU backend and both references must pass.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/expect.sh"

add() { expect 0 'case ' "$tool" make-case -o cases "$@"; }
add --name packed --H 2 --HV 4 --K 128 --V 64 --lengths 96,0,300
add --append --name strong --gates strong --keys cos75 --T 130 --l2norm --layout bhtd \
  --state-layout vk --B 2 --H 1 --HV 3 --tolerance 1e-4
add --append --name raw --gate-space raw --dtype bf16
add --append --name linear --gate-space linear --gates half-zeros --initial none
add --append --name infinity --gates minus-infinity --K 60 --V 100
add --append --name decode --op decode --T 6 --steps 3 --B 3
add --append --name conv --op conv1d --lengths 5,0,1 --width 3
add --append --name norm --op gated_norm --dtype f16
add --append --name next --op layer --packing qwen3_next --H 2 --HV 4 --T 70 --steps 3
add --append --name flat --op layer --packing qwen3_5 --H 1 --HV 2 --T 70 --steps 3
add --append --name empty --T 0
add --append --name chain --op stages --H 2 --HV 4 --lengths 96,0,70 --gates strong --layout bhtd
add --append --name sums --op stages --rule linear_attention --part one-call --T 130 --chunk 128
add --append --name upper --op stages --part upper --chunk 32 --T 70
add --append --name reverse --op stages --part reverse --gates strong --T 70
add --append --name kda --key-gates --gates resets --K 40 --HV 2 --lengths 30,0,70 --l2norm
add --append --name gla --key-gates --gate-space linear --rule linear_attention --layout bhtd --K 24
add --append --name kda_decode --op decode --key-gates --gates minus-infinity --T 6 --steps 3
add --append --name kda_stages --op stages --key-gates --HV 2 --gates strong --T 90 --layout bhtd
add --append --name gla_stages --op stages --key-gates --rule linear_attention --lengths 40,0,70 \
  --state-layout vk --chunk 32
for backend in cpu reference reference-chunked; do
  expect 0 '20 cases, 66 tensors, 0 failed' "$tool" verify --backend $backend cases
done
expect 0 '20 cases, 66 tensors, 0 failed' "$tool" verify --dtype bf16 cases
expect 0 'PASS' "$tool" run cases

# Gradients.
grad() { expect 0 'case ' "$tool" make-case -o gradients --op gradients "$@"; }
grad --name packed --H 2 --HV 4 --K 40 --V 24 --lengths 70,0,1,66 --l2norm --gate-space raw
grad --append --name strong --gates strong --keys cos75 --T 130 --layout bhtd --state-layout vk \
  --B 2 --HV 3 --tolerance 1e-4
grad --append --name gla --rule linear_attention --gate-space linear --initial none --dtype bf16
grad --append --name plain --betas absent --gates none --initial none --final-gradient none --T 20
for backend in cpu reference reference-chunked; do
  expect 0 '4 cases, 23 tensors, 0 failed' "$tool" verify --backend $backend gradients
done
for dtype in bf16 f16; do
  expect 0 '4 cases, 23 tensors, 0 failed' "$tool" verify --dtype $dtype gradients
done
expect 0 'gradients +137 .*PASS' "$tool" run -o results gradients
expect 0 '4 cases, 23 tensors, 0 failed' "$tool" verify --against results gradients
# The file ends with results of 'strong': nothing may pass for them.
{ head -c -3000 results; head -c 3000 /dev/zero; } >wrong
expect 1 '4 cases, 23 tensors, [12] failed' "$tool" verify --against wrong gradients

# A suite is many cases at once; results of another program are judged by name.
expect 0 '280 cases written' "$tool" make-case -o kit --suite smoke
expect 0 '280 cases, 1290 tensors, 0 failed' "$tool" verify kit
"$tool" run -o results kit >/dev/null
expect 0 '280 cases, 1290 tensors, 0 failed' "$tool" verify --against results kit

# The same seed gives the same bytes, another one others.
"$tool" make-case -o a --seed 3 >/dev/null
"$tool" make-case -o b --seed 3 >/dev/null
"$tool" make-case -o c --seed 4 --name prefill.slow.3 >/dev/null
cmp a b
! cmp -s a c

expect 2 "has a case 'packed'" "$tool" make-case -o cases --append --name packed
expect 2 'goes with --op prefill, gradients, stages or conv1d' "$tool" make-case -o d --op decode --lengths 3
expect 2 'not in' "$tool" make-case -o d --op stages --chunk 48
expect 2 'goes with --op prefill, decode, stages or layer' "$tool" make-case -o d --op conv1d --key-gates
expect 2 'goes with --op prefill, decode, stages or layer' "$tool" make-case -o d --op gradients --key-gates
expect 2 'goes with --packing qwen3_5' "$tool" make-case -o d --op layer --packing qwen3_next --key-gates
expect 2 'in stages goes with --gate-space log or linear' "$tool" make-case -o d --op stages --gate-space raw --key-gates
expect 2 'has no use in --part upper' "$tool" make-case -o d --op stages --part upper --key-gates
expect 2 'is no multiple of --H' "$tool" make-case -o d --H 2 --HV 3
expect 2 'no multiple of --steps' "$tool" make-case -o d --op decode --T 5 --steps 2
expect 2 'cannot be opened' "$tool" make-case -o none --append
expect 2 'not in' "$tool" make-case -o d --gates sideways
