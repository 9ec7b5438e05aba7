# SPDX-License-Identifier: Apache-2.0
"""Describes this machine: host, devices, versions. Nothing that names a user or a path."""

import datetime
import importlib.metadata
import os
import platform
import re
from typing import Any

import sluice

_PACKAGES = ("numpy", "ml_dtypes", "matplotlib", "torch", "triton", "transformers", "fla")
# Of the library; others may hold paths.
_VARIABLES = (
    "SLUICE_CPU_ISA",
    "SLUICE_CUDA_HISTORY",
    "SLUICE_CUDA_KERNEL",
    "SLUICE_CUDA_SPLIT",
    "SLUICE_DEBUG",
    "SLUICE_IMPL",
    "SLUICE_NUM_THREADS",
    "SLUICE_VERBOSE",
)
_DISTRIBUTIONS = {"fla": "flash-linear-attention"}


def now() -> str:
    """UTC, to the second."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def cpu_name() -> str:
    """The processor as the kernel names it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            found = re.search(r"^model name\s*:\s*(.+)$", file.read(), re.M)
    except OSError:
        found = None
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def package_versions() -> dict[str, str]:
    """Versions of the packages that matter here, those that are installed."""
    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = importlib.metadata.version(_DISTRIBUTIONS.get(name, name))
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def gpu_name() -> str | None:
    """The first CUDA device by torch's word, None without torch or device."""
    try:
        import torch
    except ImportError:
        return None
    return str(torch.cuda.get_device_name(0)) if torch.cuda.is_available() else None


def best_device() -> str:
    """"cuda" where the library has kernels for the GPU that torch can use, else "cpu"."""
    return "cuda" if gpu_name() and "cuda" in sluice.info()["implementations"].split(", ") else "cpu"


def describe(device: str, commit: str) -> dict[str, Any]:
    """The environment section: everything that a number may depend on."""
    facts: dict[str, Any] = {
        "date": now(),
        "sluice": sluice.__version__,
        "commit": commit,
        "cpu": cpu_name(),
        "cpus of this process": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": package_versions(),
        "library": {k: v for k, v in sluice.info().items() if k != "version"},
        "variables": {k: v for k, v in sorted(os.environ.items()) if k in _VARIABLES},
        "device": device,
    }
    if device == "cuda":
        facts["gpu"] = gpu_name() or "unknown"
    return facts


def device_name(facts: dict[str, Any]) -> str:
    """The device that this report's own numbers are of."""
    return str(facts.get("gpu") or facts["cpu"])
