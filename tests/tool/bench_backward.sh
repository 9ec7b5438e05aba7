#!/usr/bin/env bash
# Measures that `sluice bench backward` runs on the host, records, and refuses what is wrong; not how
# fast anything is. How: the smallest calls, and a look at the rows.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
. "$(dirname "$0")/expect.sh"

backward() { "$tool" bench backward "$@"; }
host() { backward --backend cpu --repeat 1 --heads 1/2 --K 32 --V 16 "$@"; }
expect 0 '1/2 +70x1 +auto( +[0-9.]+){10} +cpu\.chunk_backward' host --lengths 70 --dtype fp32
expect 0 '1/2 +33x2\+5 +3( +[0-9.]+){10} +cpu\.chunk_backward' host --lengths 33x2+5 --split auto,3 --json out.json
expect 0 '"split":"3"' cat out.json
expect 0 '1/2 +70x1 .* cpu\.chunk_backward' host --lengths 70 --unaligned --json unaligned.json
expect 0 '"unaligned": ?true' cat unaligned.json
expect 2 "\-\-split 1: expected auto" host --lengths 5 --split 1
expect 0 '"schema": "sluice.bench.backward/1"' cat out.json
expect 0 '"forward_ms":[0-9.e-]+,' cat out.json
expect 0 '"lengths":"33x2\+5"' cat out.json
expect 2 'cannot be written' host --lengths 5 --json /no/such/folder/x
expect 2 "HV = 3 is no multiple" backward --backend cpu --heads 2/3
expect 2 "'0'" host --lengths 0
expect 0 'sluice bench backward --commit' backward --help
if ! "$tool" info | grep -Eq '^cuda +yes'; then
  expect 3 'backend cuda (cannot run here; it needs|is not part of this build)' backward
fi
