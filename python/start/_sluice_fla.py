# SPDX-License-Identifier: Apache-2.0
"""Makes Sluice a backend of flash-linear-attention as soon as fla loads its own backends.

sluice_fla.pth imports this when Python starts, unless FLA_SLUICE=0: fla looks for backends in its own
tree only, and this is how an installed package gets there. It costs one comparison an import.
"""

import sys

_BACKENDS = "fla.ops.gated_delta_rule.backends"


class _Loader:
    """The module's own loader; registers Sluice after it."""

    def __init__(self, loader):
        self._loader = loader

    def __getattr__(self, name):
        return getattr(self._loader, name)

    def create_module(self, spec):
        return self._loader.create_module(spec)

    def exec_module(self, module):
        self._loader.exec_module(module)
        try:
            from sluice.engines import fla

            fla.register(decode=False)
        except Exception as error:  # fla works without us, whatever went wrong here
            import logging

            logging.getLogger("sluice.engines").warning("fla backend not registered: %r", error)


class _Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != _BACKENDS:
            return None
        from importlib.machinery import PathFinder

        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


sys.meta_path.insert(0, _Finder)
