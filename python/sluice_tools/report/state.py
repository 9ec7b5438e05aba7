# SPDX-License-Identifier: Apache-2.0
"""Keeps the state file: what an interrupted report has finished, and for which machine and library."""

import json
import pathlib
from typing import Any

from .. import whole_file

SCHEMA = "sluice.report.state/1"


class State:
    """Finished parts by name. A file of another machine, version or choice of options is dropped:
    its numbers would be labelled wrongly."""

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
