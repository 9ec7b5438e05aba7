#!/usr/bin/env bash
# Builds the wheel, checks what it carries and needs, installs it in a clean virtual environment and
# runs the Python tests from another folder.
#   scripts/test_python.sh [build directory of the library] [pytest arguments...]
# With a finished build (scripts/test.sh leaves one in build/release) its library is linked, otherwise
# the wheel compiles its own. Packages from PyPI: scikit-build-core, numpy, ml_dtypes, pytest,
# array-api-strict. Tests of torch run where SLUICE_TEST_TORCH=1 (installs torch) and say so elsewhere.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh
built=${1:-build/release}
shift || true
here=$PWD
work=$here/build/python
log=$work/build.log
rm -rf "$work"
mkdir -p "$work/elsewhere"

python=${PYTHON:-python3}
if ! "$python" -c 'import ensurepip, os, sysconfig as s; os.stat(s.get_path("include") + "/Python.h")' \
  2>/dev/null; then
  install_packages python3-dev python3-venv
fi
"$python" -m venv "$work/build-env"
"$python" -m venv "$work/env"

# shellcheck disable=SC2086
install_packages $SLUICE_BUILD_PACKAGES

options=()
if [ -f "$built/src/libsluice_inside.a" ]; then
  options+=(-C "cmake.define.SLUICE_BUILT=$(realpath "$built")")
fi
echo "building the wheel (log: $log)"
if ! {
  "$work/build-env/bin/pip" install -q scikit-build-core &&
    "$work/build-env/bin/pip" wheel -v --no-build-isolation --no-deps -w "$work/wheel" . "${options[@]}"
} >"$log" 2>&1; then
  tail -60 "$log"
  exit 1
fi
python3 python/tests/check_wheel.py "$work"/wheel/*.whl

packages=(numpy ml_dtypes pytest array-api-strict)
[ "${SLUICE_TEST_TORCH:-0}" = 0 ] || packages+=(torch)
"$work/env/bin/pip" install -q "$work"/wheel/*.whl "${packages[@]}"
cd "$work/elsewhere"
"$work/env/bin/python" -m pytest -q -rs -p no:cacheprovider -c "$here/pyproject.toml" \
  "$here/python/tests" "$@"
