# SPDX-License-Identifier: Apache-2.0
"""Runs an action once a module has been imported by somebody else.

WHY: importing an engine's kernels makes a CUDA context in every process that loads plug-ins, those that never launch
a kernel too.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class Imports(MetaPathFinder):
    """Actions that wait for modules."""

    def __init__(self) -> None:
        self._actions: dict[str, list[Callable[[], Any]]] = {}

    def after(self, name: str, action: Callable[[], Any]) -> None:
        """Runs `action` when module `name`, which nobody has imported yet, has been executed."""
        self._actions.setdefault(name, []).append(action)
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def each(
        self, names: Iterable[str], act: Callable[[str], list[str]], tell: Callable[[list[str]], Any]
    ) -> list[str]:
        """Acts on modules by their names: on those that are loaded now, whose results it returns, on the others once
        they have been executed, and tells the results of each."""

        def act_later(name: str) -> None:
            tell(act(name))

        found: list[str] = []
        for name in names:
            if name in sys.modules:
                found += act(name)
            else:
                self.after(name, partial(act_later, name))
        return found

    def waits(self) -> bool:
        """Whether an action has not run yet."""
        return bool(self._actions)

    def forget(self) -> None:
        """Drops the actions that have not run."""
        self._actions.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the other finders have, whose loader runs the actions afterwards."""
        if name not in self._actions:
            return None
        others = (finder for finder in sys.meta_path if finder is not self)
        specs = (finder.find_spec(name, path, target) for finder in others)
        spec = next((found for found in specs if found is not None), None)
        if spec is not None and spec.loader is not None:
            self._follow(name, spec.loader)
        return spec

    def _follow(self, name: str, loader: Any) -> None:
        execute = loader.exec_module

        def executed(module: ModuleType) -> None:
            execute(module)
            for action in self._actions.pop(name, ()):
                action()

        loader.exec_module = executed
