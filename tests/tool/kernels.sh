#!/usr/bin/env bash
# Measures that the table of CUDA kernels in docs/kernels/README.md is what this build's catalogues say.
# Usage: kernels.sh TOOL SOURCE_DIR.
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail
command -v python3 >/dev/null || exit 77
info=$("$1" info)
python3 "$2/tests/lint/check_kernels.py" <<<"$info"
