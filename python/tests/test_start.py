# SPDX-License-Identifier: Apache-2.0
"""Measures that installing the wheel is enough for flash-linear-attention to have Sluice among its
backends, that FLA_SLUICE=0 prevents it, and that nothing else happens when Python starts.
Runs processes that import a stub of fla's packages, with its registry at the place of fla 0.6."""

import os
import pathlib
import subprocess
import sys

import pytest
import sluice

SITE = pathlib.Path(sluice.__file__).parents[1]
if not (SITE / "sluice_fla.pth").exists() or str(SITE) in os.environ.get("PYTHONPATH", ""):
    pytest.skip("sluice is not installed where .pth files count", allow_module_level=True)

FILES = {
    "fla/__init__.py": "",
    "fla/backends.py": """
class BaseBackend: pass
class Registry:
    def __init__(self): self._backends = {}
    def register(self, backend): self._backends[backend.backend_type] = backend
registry = Registry()
def _get_operation_registry(operation): return registry
""",
    "fla/ops/__init__.py": "",
    "fla/ops/gated_delta_rule/__init__.py": "",
    "fla/ops/gated_delta_rule/backends/__init__.py": "",
}
REPORT = """
import importlib, sys
assert "sluice" not in sys.modules and "numpy" not in sys.modules
import fla.ops.gated_delta_rule
assert "sluice" not in sys.modules
try:
    backends = importlib.import_module("fla.ops.gated_delta_rule.backends")
except ImportError as error:
    print("ImportError", error)
else:
    from fla.backends import registry
    print(sorted(registry._backends), "sluice" in sys.modules)
"""


def run(folder, **environment):
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", REPORT], capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": str(folder), **environment},
    )
    return done.stdout.strip(), done.stderr


def test_fla_has_the_backend_when_it_loads_its_own(tmp_path):
    assert run(tmp_path) == ("['sluice'] True", "")


def test_opt_out(tmp_path):
    assert run(tmp_path, FLA_SLUICE="0") == ("[] False", "")


def test_an_fla_of_another_form_keeps_working(tmp_path):
    (tmp_path / "fla").mkdir()
    (tmp_path / "fla/backends.py").write_text("class registry: _backends = {}")
    out, log = run(tmp_path)
    assert out == "[] True" and "fla backend not registered: AttributeError" in log


def test_errors_of_fla_are_flas(tmp_path):
    changed = tmp_path / "fla/ops/gated_delta_rule/backends/__init__.py"
    changed.parent.mkdir(parents=True)
    changed.write_text("raise ImportError('no such thing')")
    assert run(tmp_path) == ("ImportError no such thing", "")
