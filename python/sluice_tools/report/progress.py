# SPDX-License-Identifier: Apache-2.0
"""Keeps how far a report is, in a state file, and shows it: a progress bar on a terminal, and a line for
each part elsewhere."""

import json
import pathlib
import sys
import time
from typing import Any, TextIO

from .. import whole_file

SCHEMA = "sluice.report.state/1"
_WIDTH = 24


class Progress:
    """Shows which of `total` parts runs, and for how long."""

    def __init__(self, total: int, stream: TextIO | None = None) -> None:
        self._total = total
        self._done = 0
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty()
        self._start = time.monotonic()

    def step(self, text: str, share: float = 0.0) -> None:
        """Part `text` is done to `share` (0 to 1); shown on terminals only."""
        if not self._live:
            return
        part = (self._done + share) / max(self._total, 1)
        bar = "#" * round(_WIDTH * part)
        seconds = time.monotonic() - self._start
        line = f"[{bar:-<{_WIDTH}}] {100 * part:3.0f} %  {seconds:4.0f} s  {text}"
        print(f"\r{line[:100]:100}", end="", file=self._stream, flush=True)

    def end(self, text: str, note: str = "") -> None:
        """Part `text` is over."""
        self._done += 1
        if not self._live:
            print(f"{self._done}/{self._total} {text}: {note or 'done'}", file=self._stream)
        elif self._done == self._total:
            self.step("done")
            print(file=self._stream)


class State:
    """What an interrupted report has finished, by name. A file of another machine, version or choice of
    options is dropped: its numbers would be labelled wrongly."""

    def __init__(self, path: pathlib.Path, fingerprint: dict[str, Any]) -> None:
        self.path = path
        self._fingerprint = fingerprint
        self._parts: dict[str, Any] = {}
        self.resumed = 0
        self.dropped = self._read() if path.exists() else ""

    def _read(self) -> str:
        """Takes over what the file has; otherwise says why not."""
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
        except ValueError:
            return "it is no JSON"
        if not isinstance(content, dict) or content.get("schema") != SCHEMA:
            return "it is no state of a report"
        theirs, parts = content.get("fingerprint"), content.get("parts")
        if not isinstance(theirs, dict) or not isinstance(parts, dict):
            return "it has no fingerprint or no parts"
        other = [key for key in self._fingerprint if theirs.get(key) != self._fingerprint[key]]
        if other:
            return f"another {', '.join(other)}"
        self._parts = parts
        self.resumed = len(parts)
        return ""

    def get(self, part: str) -> Any:
        """What the part gave, or None if it has not run."""
        return self._parts.get(part)

    def put(self, part: str, result: Any) -> None:
        """Keeps a finished part, on the disk too before this returns."""
        self._parts[part] = result
        content = {"schema": SCHEMA, "fingerprint": self._fingerprint, "parts": self._parts}
        whole_file.write(self.path, json.dumps(content))

    def remove(self) -> None:
        """The report is complete: the next one measures anew."""
        self.path.unlink(missing_ok=True)
