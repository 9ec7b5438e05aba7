# SPDX-License-Identifier: Apache-2.0
"""Runs `python -m sluice`: the commands of sluice_tools, which a program that imports sluice never
loads."""

import sys

from sluice_tools.command import main

if __name__ == "__main__":
    sys.exit(main())
