#!/usr/bin/env bash
# Builds the wheel (scripts/build_wheel.sh), installs it in a clean virtual environment and runs the
# linter over all Python files and the Python tests from another folder, the type checker's among them.
#   scripts/test_python.sh [build directory of the library] [pytest arguments...]
# Packages from PyPI: those of the wheel, numpy, ml_dtypes, pytest, array-api-strict, mypy, ruff. With
# SLUICE_TEST_TORCH=1 torch, transformers and kernels are installed then, and all tests run once more beside
# them; without it tests that need torch say so. Those of a GPU are scripts/test_python_cuda.sh's.
set -euo pipefail
cd "$(dirname "$0")/.."
built=${1:-build/release}
shift || true
here=$PWD
work=$here/build/python
rm -rf "$work"
mkdir -p "$work/elsewhere"
scripts/build_wheel.sh "$built" "$work/wheel"

"${PYTHON:-python3}" -m venv "$work/env"
"$work/env/bin/pip" install -q "$work"/wheel/*.whl numpy ml_dtypes pytest array-api-strict mypy==2.4.1 \
  ruff==0.17.6
tests/abi/check_hardening.sh "$work"/env/lib/python*/site-packages/sluice/_core*.so
"$work/env/bin/ruff" check -q --no-cache "$here"
cd "$work/elsewhere"
run_tests() {
  "$work/env/bin/python" -m pytest -q -rs -p no:cacheprovider -c "$here/pyproject.toml" \
    "$here/python/tests" "$@"
}
run_tests "$@"
[ "${SLUICE_TEST_TORCH:-0}" != 0 ] || exit 0
echo "once more, beside torch"
# Several gigabytes: uv unpacks them in half a minute, pip in four.
"$work/env/bin/pip" install -q uv==0.13.9
"$work/env/bin/uv" pip install -q --no-cache --python "$work/env/bin/python" torch==2.15.0 \
  transformers==5.23.0 kernels==0.17.2
run_tests "$@"
