# SPDX-License-Identifier: Apache-2.0
"""Measures that an installed Sluice does nothing until it is asked to: no file runs when Python starts,
and flash-linear-attention has Sluice among its backends where a program says so, or its command line.
Runs processes that import a stub of fla's packages, with its registry at the place of fla 0.6."""

import os
import pathlib
import subprocess
import sys

import pytest
import sluice

SITE = pathlib.Path(sluice.__file__).parents[1]

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
    "fla/ops/gated_delta_rule/__init__.py": "def fused_recurrent_gated_delta_rule(): pass",
    "fla/ops/gated_delta_rule/backends/__init__.py": "",
    "program.py": """
import sys
import fla.ops.gated_delta_rule.backends
from fla.backends import registry
print(sorted(registry._backends), "sluice" in sys.modules, sys.argv[1:], __name__)
""",
}
CALL = "import sluice.engines.fla; sluice.engines.fla.register(); import program"


@pytest.fixture
def run(tmp_path):
    """run(arguments of Python, environment=..): (output, errors) where the stub is."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(*arguments, **environment):
        path = os.pathsep.join([str(tmp_path), str(SITE)])
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": path, **environment},
        )
        return done.stdout.strip(), done.stderr

    return run


def test_nothing_runs_when_python_starts(run):
    assert not list(SITE.glob("*sluice*.pth")) and not (SITE / "_sluice_fla.py").exists()
    assert run("-c", "import sys; print([name for name in sys.modules if 'sluice' in name])")[0] == "[]"
    assert run("program.py") == ("[] False [] __main__", "")


def test_a_program_registers(run):
    assert run("-c", CALL) == ("['sluice'] True [] program", "")
    assert run("-c", CALL, FLA_SLUICE="0") == ("[] True [] program", "")


@pytest.mark.parametrize("program", [["program.py"], ["-m", "program"]])
def test_a_program_is_run_with_the_backend(run, program):
    found = run("-m", "sluice.engines.fla", *program, "--size", "3")
    assert found == ("['sluice'] True ['--size', '3'] __main__", "")


def test_a_program_must_be_named(run):
    for arguments in ([], ["-m"], ["--help"]):
        output, errors = run("-m", "sluice.engines.fla", *arguments)
        assert output == "" and errors.startswith("usage: python -m sluice.engines.fla FILE [arguments]")
