"""Import of packages that are only needed by some functions."""

from __future__ import annotations

import importlib
from types import ModuleType

from ait_llm.errors import MissingDependencyError


def import_optional(module: str, purpose: str, extra: str = "") -> ModuleType:
    """Import ``module`` where it is used.

    Args:
        module: name to import, such as ``torch``.
        purpose: what needs it, as the subject of a sentence ("reading .pt files").
        extra: the extra of this package that installs it; the module's own name when empty.

    Raises:
        MissingDependencyError: it is not installed; the message names the extra.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        extra = extra or module.partition(".")[0]
        raise MissingDependencyError(
            f"{purpose} needs the Python package {error.name!r}, which is not installed; "
            f"run: pip install 'ait-llm[{extra}]'"
        ) from None
