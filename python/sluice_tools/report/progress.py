# SPDX-License-Identifier: Apache-2.0
"""Shows a progress bar on a terminal, and a line for each part elsewhere."""

import sys
import time
from typing import TextIO

_WIDTH = 24


class Progress:
    """Shows which of `total` parts runs, and for how long."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._total = total
        self._done = 0
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty()
        self._start = time.monotonic()

    def begin(self, text: str) -> None:
        """Part `text` runs now."""
        self._show(text)

    def step(self, text: str, share: float) -> None:
        """Part `text` is done to `share` (0 to 1); shown on terminals only."""
        if self._live:
            self._show(text, share)

    def end(self, text: str, note: str = "") -> None:
        """Part `text` is over."""
        self._done += 1
        if not self._live:
            print(f"{self._done}/{self._total} {text}: {note or 'done'}", file=self._stream)
        elif self._done == self._total:
            self._show("done")
            print(file=self._stream)

    def _show(self, text: str, share: float = 0.0) -> None:
        if not self._live:
            return
        part = (self._done + share) / max(self._total, 1)
        bar = "#" * round(_WIDTH * part)
        seconds = time.monotonic() - self._start
        line = f"[{bar:-<{_WIDTH}}] {100 * part:3.0f} %  {seconds:4.0f} s  {text}"
        print(f"\r{line[:100]:100}", end="", file=self._stream, flush=True)
