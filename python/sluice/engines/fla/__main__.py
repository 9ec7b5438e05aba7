# SPDX-License-Identifier: Apache-2.0
"""Runs a program that need not know of Sluice with Sluice among fla's backends:
python -m sluice.engines.fla FILE [arguments], or -m MODULE [arguments]."""

import os
import runpy
import sys

from .backend import register


def main(arguments: list[str]) -> None:
    """Registers, then runs the program that `arguments` name, as Python itself would."""
    module = arguments[:1] == ["-m"]
    program = arguments[1:] if module else arguments
    if not program or program[0].startswith("-"):
        sys.exit("usage: python -m sluice.engines.fla FILE [arguments] | -m MODULE [arguments]")
    sys.path[0] = os.getcwd() if module else os.path.dirname(os.path.abspath(program[0]))
    register()
    sys.argv = program
    if module:
        runpy.run_module(program[0], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program[0], run_name="__main__")


if __name__ == "__main__":
    main(sys.argv[1:])
