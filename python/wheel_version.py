# SPDX-License-Identifier: Apache-2.0
"""Tells scikit-build-core the version: the CMake project's, and after a plus sign which build a wheel is
(SLUICE_WHEEL_LABEL, set by scripts/build_wheel.sh: cpu, cu13)."""

import os
import pathlib
import re


def dynamic_metadata(field, settings=None):
    text = (pathlib.Path(__file__).parents[1] / "CMakeLists.txt").read_text()
    version = re.search(r"project\(sluice VERSION ([0-9.]+)", text)[1]
    label = os.environ.get("SLUICE_WHEEL_LABEL", "")
    return f"{version}+{label}" if label else version
