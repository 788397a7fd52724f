"""Starting the capture in a program that does not know of it.

Runs at interpreter start-up, so it imports only the standard library; everything else is imported
once the program itself has imported torch.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class _AfterImport(Loader):
    """A loader that calls back when the module it loads is complete."""

    def __init__(self, loader: Loader, callback: Callable[[], None]) -> None:
        self._loader = loader
        self._callback = callback

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:
            spec.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._callback()


class _TorchFinder(MetaPathFinder):
    """Watches for the import of torch, once, and leaves the import system as it was."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torch" or path is not None:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _AfterImport(spec.loader, _start_capture)
        return spec


def capture_when_torch_is_imported() -> None:
    """Start the capture now if torch is there, else when it has been imported."""
    if "torch" in sys.modules:
        _start_capture()
    else:
        sys.meta_path.insert(0, _TorchFinder())


def _start_capture() -> None:
    from ait_llm.dump.inject.root_finder import start_from_environment
    from ait_llm.errors import AitError

    try:
        start_from_environment()
    except (AitError, OSError) as error:
        sys.stderr.write(f"ait: nothing of process is captured: {error}\n")
