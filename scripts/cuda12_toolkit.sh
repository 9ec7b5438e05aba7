#!/usr/bin/env bash
# Puts a CUDA 12 toolkit for building Sluice into a folder, where NVIDIA's own is not at hand.
#   scripts/cuda12_toolkit.sh [folder]          (default: build/cuda12)
# nvcc 12.4, cudafe++, cicc and fatbinary are Debian 13's (nvidia-cuda-toolkit, section non-free, from the mirror that
# this machine's sources name); nothing is installed. The rest is PyPI's: headers of 12.4, ptxas and the static
# runtime of 12.9. WHY: ptxas 12.4 spills registers of the prefill kernels, 12.9 does not; the wheels before 12.9
# have no static runtime. Then: CUDACXX=build/cuda12/bin/nvcc scripts/build_wheel.sh build/cu12 dist/cu12
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p "${1:-build/cuda12}"
folder=$(realpath "${1:-build/cuda12}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# Debian 13's packages, with lists and a status of their own.
mirror=$(find /etc/apt \( -name "*.list" -o -name "*.sources" \) -exec cat {} + |
  sed -n 's/^\(URIs:\|deb\) .*\(https\?:[^ ]*\/debian\)\/\?\( .*\)\?$/\2/p' | head -1)
[ -n "$mirror" ] || { echo "$0: no mirror of Debian in apt's sources" >&2; exit 1; }
mkdir -p "$work/state/lists/partial" "$work/cache/archives/partial" "$work/deb"
touch "$work/status"
echo "deb [signed-by=$keyring] $mirror trixie non-free" >"$work/sources.list"
cat >"$work/apt.conf" <<END
Dir::Etc::sourcelist "$work/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State "$work/state";
Dir::State::status "$work/status";
Dir::Cache "$work/cache";
APT::Sandbox::User "root";
END
export APT_CONFIG=$work/apt.conf
apt-get update -qq
(cd "$work" && apt-get download -qq nvidia-cuda-toolkit)
dpkg -x "$work"/nvidia-cuda-toolkit_*.deb "$work/deb"

for wheel in runtime-cu12==12.4.127 nvcc-cu12==12.4.131 runtime-cu12==12.9.79 nvcc-cu12==12.9.86; do
  "${PYTHON:-python3}" -m pip install -q --no-deps --no-compile --target "$work/$wheel" "nvidia-cuda-$wheel"
done
headers=$work/runtime-cu12==12.4.127/nvidia/cuda_runtime
compiler=$work/nvcc-cu12==12.4.131/nvidia/cuda_nvcc
runtime=$work/runtime-cu12==12.9.79/nvidia/cuda_runtime
assembler=$work/nvcc-cu12==12.9.86/nvidia/cuda_nvcc

rm -rf "${folder:?}"/*
mkdir -p "$folder/bin/crt" "$folder/lib64" "$folder/nvvm/bin" "$folder/include"
debian=$work/deb/usr/lib/nvidia-cuda-toolkit/bin
cp "$debian/nvcc" "$folder/bin/"
cp "$debian"/crt/*.stub "$folder/bin/crt/"
cp "$debian/cicc" "$folder/nvvm/bin/"
for program in bin2c cu++filt cudafe++ cuobjdump fatbinary nvdisasm nvlink nvprune; do
  cp "$work/deb/usr/bin/$program" "$folder/bin/"
done
install -m 755 "$assembler/bin/ptxas" "$folder/bin/"
cp -r "$headers/include/." "$folder/include/"
cp -r "$compiler/include/." "$folder/include/"
cp -r "$compiler/nvvm/libdevice" "$folder/nvvm/"
cp "$runtime"/lib/libcudart* "$folder/lib64/"
ln -s libcudart.so.12 "$folder/lib64/libcudart.so"
# Kernels that launch kernels, which none here does; nvlink 12.4 refuses 12.9's library.
printf '!<arch>\n' >"$folder/lib64/libcudadevrt.a"
cat >"$folder/bin/nvcc.profile" <<'END'
TOP               = $(_HERE_)/..
CICC_PATH         = $(TOP)/nvvm/bin
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
PATH              += $(CICC_PATH):$(_HERE_):
INCLUDES          += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES         =+ $(_SPACE_) "-L$(TOP)/lib64"
END
"$folder/bin/nvcc" --version | tail -2
"$folder/bin/ptxas" --version | tail -1
