"""Which build of our native libraries lies here: who compiled each, and its build id."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ait_llm.errors import FormatError
from ait_llm.probe.elf import read_build
from ait_llm.probe.library import find_packaged

LIBRARIES = {
    "probe, ABI 0": "libatb_probe_abi0.so",
    "probe, ABI 1": "libatb_probe_abi1.so",
    "hostatb, ABI 0": "hostatb/cxx_abi_0/lib/libatb.so",
    "hostatb, ABI 1": "hostatb/cxx_abi_1/lib/libatb.so",
    "metrics": "libait_metrics.so",
    "statistics": "libait_statistics.so",
}
"""Files below ``ait_llm/lib``, by the name that users read."""

_SHOWN = 12  # digits of a build id: git shows as many of large repositories


@dataclass(frozen=True, slots=True)
class NativeBuild:
    """One native library.

    Attributes:
        name: a key of :data:`LIBRARIES`.
        path: the file; None where it is not built.
        build_id: the linker's id of exactly this build, shortened; empty if it has none.
        compiler: name and version, such as ``GCC 12.2.0``; empty if the file does not say.
        problem: why the file cannot be read; empty if it can.
    """

    name: str
    path: Path | None
    build_id: str = ""
    compiler: str = ""
    problem: str = ""

    @property
    def text(self) -> str:
        """The build in words."""
        if self.path is None:
            return "not built"
        if self.problem:
            return self.problem
        id_text = f"build {self.build_id}" if self.build_id else "no build id"
        return f"{id_text}, {self.compiler or 'unknown compiler'}"


def native_builds(environ: Mapping[str, str]) -> list[NativeBuild]:
    """All native libraries, in the order of :data:`LIBRARIES`."""
    return [_build(name, find_packaged(file, environ)) for name, file in LIBRARIES.items()]


def _build(name: str, path: Path | None) -> NativeBuild:
    if path is None:
        return NativeBuild(name, None)
    try:
        build_id, comment = read_build(path)
    except FormatError as error:
        return NativeBuild(name, path, problem=error.reason)
    return NativeBuild(name, path, build_id[:_SHOWN], _compiler(comment))


def _compiler(comment: str) -> str:
    """``GCC: (Debian 12.2.0-14) 12.2.0`` as ``GCC 12.2.0``."""
    found = re.match(r"GCC: \(.*\) (\S+)", comment)
    if found is not None:
        return f"GCC {found[1]}"
    found = re.search(r"clang version (\S+)", comment)
    return f"clang {found[1]}" if found is not None else comment[:60]
