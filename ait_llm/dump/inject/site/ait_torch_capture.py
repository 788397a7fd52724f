"""Starting the capture in a program that does not know of it.

Runs at the start of each interpreter, so it needs almost nothing of the standard library;
everything else is imported once the program itself has imported torch.
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident  # threading itself is slow to import

TYPE_CHECKING = False  # typing itself would cost every interpreter some milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.abc import Loader
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


class _AfterImport:
    """A loader that calls back when the module it loads is complete."""

    def __init__(self, loader: Loader, callback: Callable[[], None]) -> None:
        self._loader = loader
        self._callback = callback

    def __getattr__(self, name: str) -> Any:  # whatever else loaders of that kind offer
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._callback()


class _Finder:
    """Watches for the import of a module, and leaves the import system as it was after that.

    Programs also ask where it is without importing it; they get a specification like any other.
    """

    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self._name = name
        self._callback = callback
        self._searching: set[int] = set()  # threads

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name or get_ident() in self._searching:
            return None
        self._searching.add(get_ident())
        try:
            spec = self._ask_others(fullname, path, target)
        finally:
            self._searching.discard(get_ident())
        if spec is not None and spec.loader is not None:
            spec.loader = _AfterImport(spec.loader, self._imported)  # type: ignore[assignment]
        return spec

    def _ask_others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    return spec
        return None

    def _imported(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        self._callback()


def when_imported(name: str, callback: Callable[[], None]) -> None:
    """Call back once a module that is not there yet has been imported."""
    sys.meta_path.insert(0, _Finder(name, callback))


def capture_when_its_library_is_imported() -> None:
    """Start the capture now if what it watches is there, else when it has been imported."""
    name = os.environ.get("AIT_CAPTURE_STARTS_WITH") or "torch"
    if name in sys.modules:
        _start_capture(name)
    else:
        when_imported(name, lambda: _start_capture(name))


def _start_capture(library: str) -> None:
    try:
        load_package()
        from ait_llm.core.notices import show_notices
        from ait_llm.dump.inject.channel import report

        show_notices()
        report(library, rank=os.environ.get("RANK"))
    except Exception as error:  # noqa: BLE001 - whatever fails here must not fail the program
        _say(error)
        return
    try:
        if library == "onnxruntime":
            from ait_llm.dump.inject.onnx_sessions import start_from_environment
        elif library == "llama_cpp":
            from ait_llm.dump.inject.llama_contexts import start_from_environment
        else:
            from ait_llm.dump.inject.root_finder import start_from_environment

        start_from_environment()
    except Exception as error:  # noqa: BLE001 - whatever fails here must not fail the program
        report("failed", reason=_say(error), executable=sys.executable)


def load_package() -> None:
    """Make ``ait_llm`` importable even where it is not installed: by its place, not by the path."""
    if "ait_llm" in sys.modules:
        return
    from importlib.util import module_from_spec, spec_from_file_location
    from pathlib import Path

    file = Path(__file__).resolve().parents[3] / "__init__.py"
    spec = spec_from_file_location("ait_llm", file, submodule_search_locations=[str(file.parent)])
    assert spec is not None
    assert spec.loader is not None
    package = module_from_spec(spec)
    sys.modules["ait_llm"] = package
    spec.loader.exec_module(package)


def _say(error: Exception) -> str:
    reason = f"{type(error).__name__}: {error}"
    sys.stderr.write(f"ait: nothing of this process is captured: {reason}\n")
    return reason
