#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the folders of a kernel for Hugging Face's `kernels` package, from a wheel or an installed package.

    build_hub_kernel.py [--cpu] WHEEL_OR_FOLDER... OUT        (e.g. dist/cpu/*.whl dist/cu13/*.whl build/hub)

OUT/build/torch-stable-abi28-cpu-x86_64-linux holds the package with metadata.json, and likewise cu130 for
a build with CUDA (--cpu: such a build as the folder for CPUs): kernels.get_local_kernel(OUT) loads the one that
fits. `stable-abi` is no lie: the extension needs nothing of torch's binary interface. Torch's operators are registered
under the kernel's own name, so that several may be loaded beside an installed sluice.
"""

import base64
import hashlib
import json
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
VERSION = 0  # of kernels: alpha
TORCH = "torch-stable-abi28"
# As src/cuda/CMakeLists.txt has them.
CUDA_ARCHS = ["8.0", "8.6", "8.9", "9.0", "9.0a", "10.0", "12.0+PTX"]
CUDA_MARK = b"cudaGetDeviceProperties"
LEFT_OUT = ("__main__.py", "__pycache__")
# What transformers puts in place of its functions.
LAYERS = '''
from .engines.transformers import hub_layers as layers

__all__ = [*__all__, "layers"]
'''
# Where the package names itself; ID takes the place of sluice.
OWN_NAME = [(r'Library\("sluice"', 'Library("ID"'), (r'"sluice::', '"ID::'), (r"torch\.ops\.sluice\b", "torch.ops.ID"),
            (r'startswith\("sluice\.functional\."\)', 'startswith("ID.functional.")')]
# Older releases of kernels import this folder in place of the one around it.
INNER = '''"""The same kernel, where older releases of kernels look for it."""

import importlib.util
import pathlib
import sys

_file = pathlib.Path(__file__).parents[1] / "__init__.py"
_spec = importlib.util.spec_from_file_location("ID", _file)
_kernel = sys.modules.setdefault("ID", importlib.util.module_from_spec(_spec))
if not hasattr(_kernel, "__version__"):
    _spec.loader.exec_module(_kernel)
globals().update({name: getattr(_kernel, name) for name in _kernel.__all__})
__all__ = _kernel.__all__
'''


def commit():
    done = subprocess.run(["git", "-C", ROOT, "rev-parse", "--short=7", "HEAD"], capture_output=True, text=True)
    return done.stdout.strip() or "unknown"


def unpacked(source, folder):
    """The folder of the package, of an installed one or a wheel's."""
    if source.is_dir():
        return source
    with zipfile.ZipFile(source) as archive:
        archive.extractall(folder)
    return folder / "sluice"


def backend_of(package, cpu):
    """("cpu", its entry) or ("cu130", ..), by what the extension holds."""
    extension = next(package.glob("_core*.so")).read_bytes()
    if cpu or CUDA_MARK not in extension:
        return "cpu", {"type": "cpu"}
    if b"a driver for CUDA 13" not in extension:
        sys.exit(f"{package}: built by CUDA 12; a folder for GPUs is for torch of CUDA 13")
    return "cu130", {"type": "cuda", "archs": CUDA_ARCHS}


def rename(folder, own):
    for path in folder.rglob("*.py"):
        text = path.read_text()
        for pattern, new in OWN_NAME:
            text = re.sub(pattern, new.replace("ID", own), text)
        path.write_text(text)


def digest(folder):
    """SHA-256 of every file, as `kernels` compares them."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "metadata.json")
    sums = {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).digest() for path in files}
    return {"algorithm": "sha256", "files": {name: base64.b64encode(each).decode() for name, each in sums.items()}}


def write_variant(package, out, cpu):
    suffix, backend = backend_of(package, cpu)
    folder = out / "build" / f"{TORCH}-{suffix}-{platform.machine()}-linux"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(package, folder, ignore=shutil.ignore_patterns(*LEFT_OUT))
    own = f"_sluice_{backend['type']}_{commit()}"
    with (folder / "__init__.py").open("a") as init:
        init.write(LAYERS)
    rename(folder, own)
    (folder / "sluice").mkdir()
    (folder / "sluice/__init__.py").write_text(INNER.replace("ID", own))
    metadata = {"id": own, "name": "sluice", "version": VERSION, "license": "Apache-2.0", "python-depends": [],
                "backend": backend, "digest": digest(folder)}
    (folder / "metadata.json").write_text(json.dumps(metadata, indent=2) + "\n")
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"{folder.name}: {own}, {size / 1e6:.1f} MB")


def main():
    cpu = sys.argv[1:2] == ["--cpu"]
    *sources, out = map(pathlib.Path, sys.argv[1 + cpu:])
    if not sources:
        sys.exit(__doc__)
    for source in sources:
        with tempfile.TemporaryDirectory() as folder:
            write_variant(unpacked(source, pathlib.Path(folder)), out, cpu)


if __name__ == "__main__":
    main()
