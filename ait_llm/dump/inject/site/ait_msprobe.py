"""Puts what is ours in the place of ``msprobe.pytorch``, in a program that does not know of it.

Runs at the start of each interpreter, so it needs almost nothing; everything else is imported once
the program imports ``msprobe``. The other parts of an installed msprobe stay what they are.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # typing itself would cost every interpreter some milliseconds
if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

try:  # beside this file, whose folder is on the path at start-up
    from ait_torch_capture import load_package  # type: ignore[import-not-found]
except ModuleNotFoundError:  # where this file was imported as a part of the package
    from ait_llm.dump.inject.site.ait_torch_capture import load_package

_PACKAGE, _OURS = "msprobe", "msprobe.pytorch"


class MsprobeFinder:
    """Finds ``msprobe`` and everything in ``msprobe.pytorch``."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _PACKAGE and not f"{fullname}.".startswith(f"{_OURS}."):
            return None
        load_package()
        from ait_llm.core.notices import show_notices

        show_notices()
        from ait_llm.dump.inject.msprobe.modules import found

        return found(fullname, _installed() if fullname == _PACKAGE else ())


def _installed() -> list[str]:
    """Folders of the msprobe that the program would have had without us."""
    for finder in sys.meta_path:
        if not _is_ours(finder) and hasattr(finder, "find_spec"):
            spec = finder.find_spec(_PACKAGE, None, None)
            if spec is not None:
                return list(spec.submodule_search_locations or ())
    return []


def _is_ours(finder: object) -> bool:
    """By its name: a process may have imported this file in both of its ways."""
    return type(finder).__name__ == MsprobeFinder.__name__


def stand_in() -> None:
    """Answer imports of ``msprobe.pytorch`` from now on."""
    if not any(map(_is_ours, sys.meta_path)):
        sys.meta_path.insert(0, MsprobeFinder())
