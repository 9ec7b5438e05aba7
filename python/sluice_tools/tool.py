# SPDX-License-Identifier: Apache-2.0
"""Runs `sluice`, the command that the wheel installs: the C++ tool that is linked into the extension, and
the report, which is Python's. A wheel that was built without the tool's libraries has the commands of
python -m sluice in its place."""

import signal
import sys

from sluice import _core


def main() -> int:
    """Runs the command of sys.argv; returns the exit status."""
    words = sys.argv[1:]
    if words[:1] == ["report"] or not hasattr(_core, "tool"):
        from .command import main as python_command

        return python_command(words)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the tool does not return to Python to look
    return _core.tool(["sluice", *words])
