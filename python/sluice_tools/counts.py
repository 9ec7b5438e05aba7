# SPDX-License-Identifier: Apache-2.0
"""Writes how many there are of something."""


def counted(count: int, noun: str) -> str:
    """Such as `1 case` and `2 cases`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
