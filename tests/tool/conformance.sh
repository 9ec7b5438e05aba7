#!/usr/bin/env bash
# Measures whether conformance/check.py, which shares no code with Sluice, agrees with the reference.
# How: it recomputes cases of every convention, judges the tool's results, and must fail on wrong ones.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/expect.sh"

# A distribution's NumPy belongs to the distribution's Python, which need not be the first one found.
for python in python3 /usr/bin/python3 none; do
  if "$python" -c 'import numpy' 2>/dev/null; then break; fi
done
if [ "$python" = none ]; then
  echo "no NumPy here: skipped"
  exit 77
fi
check() { "$python" "$source_dir/conformance/check.py" "$@"; }

make() { "$tool" make-case -o kit "$@" >/dev/null; }
make --name tails --H 2 --HV 6 --K 32 --V 48 --lengths 96,0,30,1 --l2norm
make --append --name strong --gates strong --keys cos75 --T 70 --tolerance 1e-4 --layout bhtd \
  --state-layout vk --B 2 --HV 3
make --append --name raw --gate-space raw --T 52 --dtype bf16
make --append --name linear --gate-space linear --initial none --gates minus-infinity
make --append --name decode --op decode --T 4 --steps 2 --B 3
make --append --name conv --op conv1d --lengths 5,0,1
make --append --name norm --op gated_norm
make --append --name chain --op stages --H 2 --HV 4 --lengths 96,0,70 --gates strong --layout bhtd
make --append --name pairs --op stages --part pairs --H 1 --HV 2 --T 90 --chunk 32
make --append --name gla --op stages --rule linear_attention --part one-call --T 70 --state-layout vk
make --append --name upper --op stages --part upper --chunk 32 --T 70
make --append --name reverse --op stages --part reverse --gates strong --T 70
make --append --name kda --key-gates --gates resets --HV 2 --K 40 --lengths 30,0,70 --l2norm
make --append --name gla_decode --op decode --key-gates --gate-space linear --rule linear_attention --T 4
make --append --name kda_stages --op stages --key-gates --H 2 --HV 4 --T 90 --layout bhtd --state-layout vk
make --append --name kda_pairs --op stages --part pairs --key-gates --HV 2 --T 90 --chunk 32
make --append --name gla_stages --op stages --key-gates --rule linear_attention --lengths 40,0,70 --gates strong
make --append --name gradients --op gradients --H 2 --HV 4 --K 20 --V 24 --lengths 40,0,1,30 --l2norm \
  --gate-space raw
make --append --name head_first --op gradients --layout bhtd --state-layout vk --gates resets --T 70 \
  --tolerance 1e-4
make --append --name gla_gradients --op gradients --rule linear_attention --gate-space linear --B 2 --T 20
make --append --name plain_gradients --op gradients --gates none --betas absent --initial none \
  --final-gradient none --T 20
make --append --name layer --op layer --packing qwen3_next --H 2 --HV 4 --T 70 --steps 3

expect 0 '19 cases checked, 0 tensors failed' check kit
expect 0 '6 cases checked, 0 tensors failed' check "$golden"
"$tool" run -o results kit >/dev/null
expect 0 '22 cases checked, 0 tensors failed' check kit --against results
size=$(stat -c %s results)
head -c $((size - 3000)) results >wrong
head -c 3000 /dev/zero >>wrong
expect 1 'FAIL' check kit --against wrong
expect 1 'FAIL: missing' check "$golden" --against results
