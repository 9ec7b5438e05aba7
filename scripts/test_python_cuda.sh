#!/usr/bin/env bash
# Tests a built wheel on a machine with a GPU, then measures: call cost, models of transformers.
#   scripts/test_python_cuda.sh WHEEL [folder for results]      (default: build/python-cuda)
# WHEEL comes from scripts/build_wheel.sh with a library that has its CUDA half. It is installed into a
# folder of its own; torch, pytest and NumPy are those of `python3` (or $PYTHON), and transformers,
# CuPy, JAX and flash-linear-attention where that has them. Nothing is downloaded.
# SLUICE_SKIP_BENCHMARKS=1 leaves the measurements out; FLA_TESTS=FILE is fla's tests/ops/test_gdn.py.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
wheel=$(realpath "${1:?the wheel}")
results=$(realpath -m "${2:-build/python-cuda}")
mkdir -p "$results"
python=${PYTHON:-python3}
here=$PWD
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
if ! nvidia-smi -L 2>/dev/null; then
  echo "skipped: no NVIDIA GPU on this machine"
  exit 0
fi
"$python" -m pip install -q --no-index --no-deps --no-compile --target "$site" "$wheel" || exit 1
export PYTHONPATH=$site
cd "$site" || exit 1
"$python" - <<'EOF' || exit 1
import importlib.metadata as metadata
import sluice, torch
assert torch.cuda.is_available(), "torch sees no GPU"
assert "cuda" in sluice.info()["implementations"], "the wheel has no CUDA half, or it cannot run here"
for name in ("torch", "numpy", "transformers", "flash-linear-attention", "cupy-cuda13x", "jax"):
    try:
        print(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        print(name, "is not here: its tests are skipped")
EOF

failed=()
# part NAME COMMAND..: output to NAME.log and the screen
part() {
  local name=$1
  shift
  printf '\n== %s\n' "$name"
  "$@" 2>&1 | tee "$results/$name.log"
  [ "${PIPESTATUS[0]}" -eq 0 ] || failed+=("$name")
}
tests=("$python" -m pytest -q -rs -p no:cacheprovider -c "$here/pyproject.toml")
part command-line "$python" -m sluice verify --device cuda
part gpu "${tests[@]}" "$here/python/tests/test_cuda.py" "--junitxml=$results/gpu.xml"
part transformers "${tests[@]}" -m cuda "$here/python/tests/engines" \
  "--junitxml=$results/transformers.xml"
# The shims of every engine with their tensors on the GPU.
SLUICE_TEST_DEVICE=cuda part engines "${tests[@]}" "$here/python/tests/engines" \
  --ignore="$here/python/tests/engines/test_engine_transformers.py" "--junitxml=$results/engines.xml"
# What needs no GPU, once more with this machine's torch.
part host "${tests[@]}" "$here/python/tests" --ignore="$here/python/tests/engines" -m "not cuda" \
  "--junitxml=$results/host.xml"
if [ -n "${FLA_TESTS:-}" ]; then
  PYTHONPATH=$site:$here/python/tests/engines FLA_SLUICE_LIST=$results/fla_tests.tsv part fla \
    "$python" -m pytest -q -p no:cacheprovider -p fla_forward_only "$FLA_TESTS" \
    -k "chunk or fused_recurrent"
fi
if [ "${SLUICE_SKIP_BENCHMARKS:-0}" = 0 ]; then
  part call-cost "$python" "$here/benchmarks/python_call.py"
  part bench "$python" -m sluice bench --device cuda --tokens 8192 --batch 64
  part models "$python" "$here/benchmarks/transformers_models.py" --device cuda --tokens 4096 \
    --steps 32 --rounds 5 --out "$results/transformers_cuda.md"
  cat "$results/transformers_cuda.md"
fi
[ ${#failed[@]} -eq 0 ] && exit 0
echo "FAILED: ${failed[*]}"
exit 1
