"""Golden operators of the user: modules, files and entry points that register some."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from ait_llm.errors import UsageError

GROUP = "ait_llm.golden"


@cache
def load_entry_points() -> None:
    """Import every installed module of the entry point group ``ait_llm.golden``, once.

    Raises:
        UsageError: one cannot be imported.
    """
    for point in entry_points(group=GROUP):
        try:
            point.load()
        except Exception as error:  # anything can happen in foreign code
            raise UsageError(
                f"golden operators {point.name!r} ({point.value}) cannot be loaded: {error!r}"
            ) from error


def load_golden(name: str) -> None:
    """Import a module, or run a ``.py`` file, that registers operators with ``@golden_op``.

    Raises:
        UsageError: there is none of that name, or it fails.
    """
    load_module("--golden", name)


def load_module(option: str, name: str) -> ModuleType:
    """Import a module, or run a ``.py`` file, that an option names.

    Raises:
        UsageError: there is none of that name, or it fails.
    """
    path = Path(name)
    try:
        if path.suffix != ".py":
            return importlib.import_module(name)
        spec = importlib.util.spec_from_file_location(f"ait_golden_{path.stem}", path)
        if not path.is_file() or spec is None or spec.loader is None:
            raise UsageError(f"{path}: no such file; {option} takes a module or a .py file")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
    except UsageError:
        raise
    except Exception as error:  # anything can happen in foreign code
        raise UsageError(f"{option} {name} cannot be loaded: {error!r}") from error
    return module
