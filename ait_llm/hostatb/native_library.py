"""Finds the ``libatb.so`` that holds the graph runtime."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import ait_llm
from ait_llm.errors import ProbeError

MARKER_SYMBOL = b"hostatb_leaf_create"


def find_library(abi: int | None = None) -> Path:
    """Path of the ``libatb.so`` to load.

    In this order: the library below ``ATB_HOME_PATH`` if it is one of ours, the one below
    ``AIT_LLM_LIB_DIR`` (a development build), the packaged one.

    Args:
        abi: ``_GLIBCXX_USE_CXX11_ABI`` of the library, 0 or 1; None takes ``HOSTATB_CXX_ABI``,
            or 1.

    Raises:
        ProbeError: there is none, or ``HOSTATB_CXX_ABI`` is neither 0 nor 1.
    """
    home = os.environ.get("ATB_HOME_PATH")
    if home:
        candidate = Path(home) / "lib" / "libatb.so"
        if candidate.is_file() and MARKER_SYMBOL in candidate.read_bytes():
            return candidate
    searched = [directory / "lib" / "libatb.so" for directory in _homes(abi)]
    for path in searched:
        if path.is_file():
            return path
    raise ProbeError(
        "the embedded acceleration library is not built: no libatb.so at "
        + ", ".join(map(str, searched))
        + ". Install the package again with a C++ compiler present, or set AIT_LLM_LIB_DIR to a "
        "directory that holds a build."
    )


def home_directory(abi: int | None = None) -> Path:
    """The directory that serves as ``ATB_HOME_PATH`` for programs started on hostatb.

    Raises:
        ProbeError: the library is not built.
    """
    return find_library(abi).parent.parent


def _homes(abi: int | None) -> Iterator[Path]:
    if abi is None:
        text = os.environ.get("HOSTATB_CXX_ABI", "1")
        if text not in ("0", "1"):
            raise ProbeError(f"HOSTATB_CXX_ABI is {text!r}; it must be 0 or 1")
        abi = int(text)
    roots = [Path(entry) / "lib" for entry in ait_llm.__path__]
    override = os.environ.get("AIT_LLM_LIB_DIR")
    if override:
        roots.insert(0, Path(override))
    for root in roots:
        yield root / "hostatb" / f"cxx_abi_{abi}"
