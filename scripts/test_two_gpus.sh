#!/usr/bin/env bash
# Tests context parallelism on a machine with two GPUs or more, then measures it beside one GPU.
#   scripts/test_two_gpus.sh [folder for results]      (default: build/two-gpus)
# Sluice (with its CUDA half) and torch are those of `python3` (or $PYTHON); $GPUS (2) processes.
# Output in the folder: check.log, bench.json, bench.log, topology.txt. SLUICE_BENCH="--tokens 32k"
# goes to the benchmark. NVLink multicast stays off where the environment says so (NCCL_NVLS_ENABLE).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
results=$(realpath -m "${1:-build/two-gpus}")
python=${PYTHON:-python3}
gpus=${GPUS:-2}
mkdir -p "$results"
if [ "$(nvidia-smi -L 2>/dev/null | wc -l)" -lt "$gpus" ]; then
  echo "skipped: fewer than $gpus NVIDIA GPUs on this machine"
  exit 0
fi
nvidia-smi topo -m >"$results/topology.txt" 2>&1
read -ra chosen <<<"${SLUICE_BENCH:---tokens 32k,128k --heads 16/64,16/32,2/8}"
run=("$python" -m torch.distributed.run --standalone --nproc-per-node "$gpus")
timeout 120 "${run[@]}" python/tests/check_two_gpus.py 2>&1 | tee "$results/check.log" | grep -v '^W'
status=${PIPESTATUS[0]}
timeout "${SLUICE_BENCH_SECONDS:-240}" "${run[@]}" -m sluice.distributed.bench "${chosen[@]}" \
  --json --out "$results/bench.json" 2>&1 | tee "$results/bench.log" | grep '^{'
[ "${PIPESTATUS[0]}" = 0 ] || status=1
exit "$status"
