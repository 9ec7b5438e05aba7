#!/usr/bin/env bash
# Tests a built wheel on a machine with a GPU, then measures: call cost, models of transformers.
#   scripts/test_python_cuda.sh WHEEL [folder for results]      (default: build/python-cuda)
# WHEEL comes from scripts/build_wheel.sh with a library that has its CUDA half. It is installed
# into a folder of its own; torch, pytest and NumPy are those of `python3` (or $PYTHON), and
# transformers, CuPy and JAX where that has them. Nothing is downloaded. Output in the folder:
# PART.log, PART.xml.
# SLUICE_PARTS="gpu host" runs these parts only. SLUICE_PART_SECONDS=300 ends a part that takes
# longer. SLUICE_PYTEST="-k jax" goes to pytest in the parts that are Sluice's own tests. The fla
# parts need SLUICE_FLA=FOLDER, with the packages fla and einops in it, and FLA_TESTS=FILE, fla's
# tests/ops/test_gdn.py. The part report (docs/report.md) leaves report.html and report.json; it takes
# speed from the benchmark tool SLUICE_TOOL=FILE, SLUICE_COMMIT as the commit measured, and begins
# nothing after SLUICE_REPORT_SECONDS (600).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
wheel=$(realpath "${1:?the wheel}")
results=$(realpath -m "${2:-build/python-cuda}")
mkdir -p "$results"
python=${PYTHON:-python3}
every="command-line gpu transformers engines host fla-backend fla call-cost bench report models models-fla"
parts=" ${SLUICE_PARTS:-$every} "
read -ra chosen <<<"${SLUICE_PYTEST:-}"
[ -z "${SLUICE_TOOL:-}" ] || SLUICE_TOOL=$(realpath "$SLUICE_TOOL")
export SLUICE_TOOL=${SLUICE_TOOL:-}
fla=${SLUICE_FLA:+$(realpath "$SLUICE_FLA")}
here=$PWD
site=$(mktemp -d)
trap 'rm -rf "$site"' EXIT
if ! nvidia-smi -L 2>/dev/null; then
  echo "skipped: no NVIDIA GPU on this machine"
  exit 0
fi
"$python" -m pip install -q --no-index --no-deps --no-compile --target "$site" "$wheel" || exit 1
export PYTHONPATH=$site
# WHY: JAX takes most of the GPU's memory at its first use otherwise; torch is in the same process.
export XLA_PYTHON_CLIENT_PREALLOCATE=false
cd "$site" || exit 1
"$python" - <<'END' || exit 1
import importlib.metadata as metadata
import sluice, torch
assert torch.cuda.is_available(), "torch sees no GPU"
assert "cuda" in sluice.info()["implementations"], "no CUDA half in the wheel, or none here"
for name in ("torch", "numpy", "transformers", "cupy-cuda13x", "jax"):
    try:
        print(name, metadata.version(name))
    except metadata.PackageNotFoundError:
        print(name, "is not here: its tests are skipped")
END

failed=()
# part NAME COMMAND..: its output goes to NAME.log, the end of that to the screen.
# WHY not through a pipe: processes that a test leaves behind would hold it open.
part() {
  local name=$1 start=$SECONDS code=0
  shift
  [[ $parts == *" $name "* ]] || return 0
  timeout -k 5 "${SLUICE_PART_SECONDS:-900}" "$@" >"$results/$name.log" 2>&1 </dev/null || code=$?
  printf '\n== %s: exit code %s, %s s\n' "$name" "$code" "$((SECONDS - start))"
  tail -n 25 "$results/$name.log"
  [ "$code" -eq 0 ] || failed+=("$name")
}
# tests NAME ARGUMENTS..: a part that is a run of pytest
tests() {
  local name=$1
  shift
  part "$name" "$python" -m pytest -v -rsf --tb=short -p no:cacheprovider \
    -c "$here/pyproject.toml" "--junitxml=$results/$name.xml" "$@" "${chosen[@]}"
}
engines=$here/python/tests/engines
part command-line "$python" -m sluice verify --backend cuda
tests gpu "$here"/python/tests/test_{cuda,nn_cuda,nn_states,layer_gradients,gradients,backward_cuda}.py
tests transformers -m cuda "$engines"
# The shims of every engine with their tensors on the GPU.
SLUICE_TEST_DEVICE=cuda tests engines "$engines" --ignore="$engines/test_engine_transformers.py"
# What needs no GPU, once more with this machine's torch.
tests host "$here/python/tests" --ignore="$engines" -m "not cuda"
if [ -n "$fla" ]; then
  # Sluice in the installed fla, then fla's own tests with Sluice as the backend.
  SLUICE_TEST_DEVICE=cuda PYTHONPATH=$site:$fla tests fla-backend "$engines/test_engine_fla.py"
  if [ -n "${FLA_TESTS:-}" ]; then
    PYTHONPATH=$site:$fla:$engines FLA_SLUICE_LIST=$results/fla_tests.tsv part fla \
      "$python" -m pytest -q -rsx --tb=line -p no:cacheprovider -p fla_forward_only "$FLA_TESTS" \
      -k "(fused_recurrent or chunk) and not flash and not guard"
  fi
fi
part call-cost "$python" "$here/benchmarks/host_time.py" --device cuda --out "$results/host_time.json"
part bench "$python" -m sluice bench --backend cuda --tokens 8192 --batch 64
# With fla on the path where it is given: the report times it in the same process then.
PYTHONPATH=$site${fla:+:$fla} part report "$python" -m sluice report --device cuda --no-results --fresh \
  --seconds "${SLUICE_REPORT_SECONDS:-600}" -o "$results/report.html"
models=("$python" "$here/benchmarks/transformers_models.py" --device cuda --tokens 4096
  --steps 32 --rounds 5)
part models "${models[@]}" --out "$results/transformers_cuda.md"
if [ -n "$fla" ]; then
  # fla's kernels are transformers' own path here.
  PYTHONPATH=$site:$fla part models-fla "${models[@]}" --dtypes bfloat16 \
    --out "$results/transformers_fla_cuda.md"
fi
cat "$results"/transformers_*.md 2>/dev/null
[ ${#failed[@]} -eq 0 ] && exit 0
echo "FAILED: ${failed[*]}"
exit 1
