"""Imports that count which branches run, for a fuzzer that looks for new ones.

atheris has such a hook, but one that comes behind those of editable installations and never sees
their modules.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType

import atheris  # type: ignore[import-not-found]  # installed by scripts/fuzz


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType | None:
        code = super().get_code(fullname)
        return code if code is None else atheris.patch_code(code, True)  # comparisons, too


class _Finder(MetaPathFinder):
    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = packages

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """What another hook finds, with a loader that counts."""
        if not any(f"{fullname}.".startswith(f"{package}.") for package in self._packages):
            return None
        others = (each for each in sys.meta_path if each is not self)
        found = (each.find_spec(fullname, path, target) for each in others)
        spec = next((each for each in found if each is not None), None)
        if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
            spec.loader = _Loader(fullname, spec.origin)
        return spec


@contextmanager
def instrumented(packages: Sequence[str]) -> Iterator[None]:
    """Count branches of modules of these packages that are imported within."""
    finder = _Finder(packages)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
