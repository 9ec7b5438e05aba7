#!/usr/bin/env bash
# Measures that `sluice bench decode` and `sluice bench layer` explain themselves, refuse what they
# cannot do, and where there is a GPU time one row of each. How: one small call each.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/expect.sh"

expect 0 'sluice bench decode --grid full' "$tool" bench decode --help
expect 0 'sluice bench layer --HV 32' "$tool" bench layer --help
expect 2 'none not in' "$tool" bench decode --grid none
if ! "$tool" info | grep -Eq '^cuda +yes'; then
  expect 3 'cuda' "$tool" bench decode --B 1
  expect 3 'cuda' "$tool" bench layer --B 1
  exit 0
fi
expect 0 'cuda.recurrent_step.sm_90a.k128' "$tool" bench decode --B 2 --T 2 --per-token --repeat 2
expect 0 'cuda.recurrent_step.sm_90a.single_k128' "$tool" bench decode --B 2 --repeat 2
expect 0 'single_k128.vk.narrow' "$tool" bench decode --B 2 --state-layout vk --repeat 2
expect 0 'single_k128.vk.packed' "$tool" bench decode --B 2 --state-layout vk --packed --repeat 2
expect 0 'cuda.recurrent_step.sm_90a.replay_k128' "$tool" bench decode --B 2 --T 4 --ring 16 --repeat 2
expect 0 'cuda.layer_decode.sm_90a.single_k128' "$tool" bench layer --B 2 --state bf16 --repeat 2 --json out.json
expect 0 '"share_of_copy": 0' cat out.json
