"""Finds the host's ``libatb.so`` and the probe that fits it, and explains why one does not.

A probe of the other C++ ABI loads without a word and is never called, so the ABI is read from the
host library's symbols before anything is started.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import ait_llm
from ait_llm.errors import FormatError, ProbeError
from ait_llm.probe.elf import SharedLibrary, read_shared_library
from ait_llm.probe.trust import check_trusted

_PROBE = "_ZN3atb5Probe"
_STRING = {0: "Ss", 1: "NSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"}
# Without these two a library is no probe: the gate that selects operations, and the writer.
_GATE = {
    abi: f"{_PROBE}16IsTensorNeedSaveERKSt6vectorIlSaIlEERK{text}" for abi, text in _STRING.items()
}
_WRITER = {
    0: f"{_PROBE}10SaveTensorERKSsS2_S2_PKvmS2_",
    1: f"{_PROBE}10SaveTensorERK{_STRING[1]}S8_S8_PKvmS8_",
}
# ATB 8.3 and later ask for settings after every Setup.
_SINCE_8_3 = f"{_PROBE}12UpdateConfigEv"

WRITER_NAME = "ait_probe_writer"
"""The process that writes a capture to disk; the probe starts the one beside itself."""

LIB_DIR_VARIABLE = "AIT_LLM_LIB_DIR"
"""Names a directory that is searched for our native libraries before the package's own."""


@dataclass(frozen=True, slots=True)
class HostLibrary:
    """The acceleration library that the traced program will load.

    Attributes:
        path: its ``libatb.so``.
        abi: value of ``_GLIBCXX_USE_CXX11_ABI`` it was built with, 0 or 1.
        evidence: how the ABI was found, as a clause.
        embedded: True for our own CPU library, False for one under ``ATB_HOME_PATH``.
        recent: it asks for new settings after every Setup, which ATB does since 8.3.
        warnings: sentences about what will keep a preloaded library from being called.
    """

    path: Path
    abi: int
    evidence: str
    embedded: bool
    recent: bool = False
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ProbeLibrary:
    """A probe that fits the host. ``packaged`` is False for one given by the user."""

    path: Path
    abi: int
    packaged: bool


def library_directories(environ: Mapping[str, str]) -> list[Path]:
    """Where our native libraries may lie, in the order of search."""
    override = environ.get(LIB_DIR_VARIABLE)
    # An editable install has two entries: the sources, and site-packages with what was built.
    packaged = [Path(entry) / "lib" for entry in ait_llm.__path__]
    return [Path(override), *packaged] if override else packaged


def find_packaged(name: str, environ: Mapping[str, str]) -> Path | None:
    """The first native library of that relative name, or None."""
    for directory in library_directories(environ):
        if (directory / name).is_file():
            return (directory / name).resolve()
    return None


def find_host(environ: Mapping[str, str]) -> HostLibrary:
    """Find ``libatb.so`` and its ABI.

    ``ATB_HOME_PATH`` decides; when it is unset, our own CPU library stands in.

    Raises:
        ProbeError: no library, or its ABI cannot be told.
    """
    home = environ.get("ATB_HOME_PATH", "").strip()
    if home:
        path = Path(home).expanduser() / "lib" / "libatb.so"
        if not path.exists():
            raise ProbeError(
                f"ATB_HOME_PATH is {home} but there is no {path}; source the set_env.sh of your "
                "ATB installation, or unset ATB_HOME_PATH to use the embedded CPU library"
            )
        return inspect_host(path.resolve(), home)
    embedded = find_embedded(environ)
    if embedded is None:
        raise ProbeError(
            "ATB_HOME_PATH is not set and the embedded CPU library hostatb is not built; source "
            "the set_env.sh of your ATB installation, or install ait-llm with its native part"
        )
    return inspect_host(embedded, str(embedded.parent.parent), embedded=True)


def find_embedded(environ: Mapping[str, str]) -> Path | None:
    """The ``libatb.so`` of hostatb; ``HOSTATB_CXX_ABI`` chooses between its two ABIs."""
    abi = environ.get("HOSTATB_CXX_ABI", "1")
    return find_packaged(f"hostatb/cxx_abi_{abi}/lib/libatb.so", environ)


def inspect_host(path: Path, home: str, *, embedded: bool = False) -> HostLibrary:
    """Tell the ABI of the library at ``path``.

    The exact test is which spelling of one Probe function it defines. If its symbols say nothing,
    a directory name ``cxx_abi_0`` or ``cxx_abi_1`` in ``home`` or in ``path`` decides.

    Raises:
        ProbeError: neither is conclusive, or the library is of another architecture.
    """
    try:
        library = read_shared_library(path)
    except FormatError as error:
        trouble = error.reason
    else:
        if not library.runs_here:
            raise ProbeError(
                f"{path} is built for {library.machine_name}, not for this machine; "
                "set ATB_HOME_PATH to the ATB of this machine"
            )
        abis = [abi for abi in (0, 1) if _GATE[abi] in library.exported]
        if len(abis) == 1:
            return HostLibrary(
                path,
                abis[0],
                "from its symbols",
                embedded,
                recent=_SINCE_8_3 in library.exported,
                warnings=_obstacles(library),
            )
        trouble = (
            "has the Probe interface of both ABIs" if abis else "has no atb::Probe in its symbols"
        )
    named = {
        int(digit)
        for text in (home, str(path))
        for digit in re.findall(r"cxx_abi_([01])(?:/|$)", text)
    }
    if len(named) != 1:
        raise ProbeError(
            f"cannot tell the C++ ABI of {path}: it {trouble}, and no directory of its path is "
            "called cxx_abi_0 or cxx_abi_1; set ATB_HOME_PATH to the cxx_abi_0 or cxx_abi_1 "
            "directory of your ATB installation"
        )
    abi = named.pop()
    return HostLibrary(
        path,
        abi,
        f"from the directory name, because the library {trouble}",
        embedded,
        warnings=(f"{path} {trouble}; if nothing is captured, that is why",),
    )


def _obstacles(library: SharedLibrary) -> tuple[str, ...]:
    if library.binds_locally:
        return (f"{library.path} is linked with -Bsymbolic: it will not call a preloaded probe",)
    return ()


def find_probe(abi: int, environ: Mapping[str, str], own: Path | None = None) -> ProbeLibrary:
    """The probe for a host of that ABI: ``own`` if given, else the packaged one; checked.

    Raises:
        ProbeError: none is found, or it is not safe or not able to be preloaded.
    """
    if own is not None:
        path = own.expanduser().resolve()
        if not path.exists():
            raise ProbeError(f"--probe-lib {own} does not exist; give the path of a probe library")
    else:
        name = f"libatb_probe_abi{abi}.so"
        found = find_packaged(name, environ)
        if found is None:
            places = ", ".join(map(str, library_directories(environ)))
            raise ProbeError(
                f"the probe {name} is not in {places}; install ait-llm with its native part "
                "(a C++17 compiler is needed), or give your own with --probe-lib"
            )
        path = found
    check_probe(path, abi)
    return ProbeLibrary(path, abi, packaged=own is None)


def check_probe(path: Path, abi: int) -> None:
    """Refuse a probe that must not or cannot be preloaded into a host of that ABI.

    Raises:
        ProbeError: in the hands of others, another architecture, another ABI, or no probe at all.
    """
    try:
        library = read_shared_library(path)
    except FormatError as error:
        raise ProbeError(f"the probe cannot be used: {error}") from error
    for file in (path, path.with_name(WRITER_NAME)):  # the probe starts the writer beside it
        if file.exists():
            check_trusted(file.resolve())
    if not library.runs_here:
        raise ProbeError(f"the probe {path} is built for {library.machine_name}, not this machine")
    missing = [name for name in (_GATE[abi], _WRITER[abi]) if name not in library.exported]
    if not missing:
        return
    if _GATE[1 - abi] in library.exported:
        raise ProbeError(
            f"the probe {path} is built for C++ ABI {1 - abi} but the host's libatb.so for ABI "
            f"{abi}: it would load and never be called; use the abi{abi} library"
        )
    raise ProbeError(f"{path} is not an ATB probe: it does not export {missing[0]}")


@contextmanager
def preloadable(library: Path) -> Iterator[Path]:
    """A path of ``library`` that may stand in ``LD_PRELOAD``, for the duration of the block.

    The dynamic linker splits the variable at ':' and blanks and expands '$'. A path that contains
    one of these is reached through a link in a private temporary directory; the link is to the
    library's directory, because the probe looks for its writer beside itself.

    Raises:
        ProbeError: no name that could stand in the variable.
    """
    if not _splits(str(library)):
        yield library
        return
    places = (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm")
    parent = next((place for place in places if _may_hold_link(place)), None)
    if parent is None or _splits(library.name):
        raise ProbeError(
            f"the path of the probe, {library}, contains a character that LD_PRELOAD cannot carry; "
            "move or rename the library"
        )
    with tempfile.TemporaryDirectory(prefix="ait-probe-", dir=parent) as directory:
        link = Path(directory) / "lib"
        link.symlink_to(library.parent, target_is_directory=True)
        yield link / library.name


def _splits(path: str) -> bool:
    return re.search(r"[:$\s]", path) is not None


def _may_hold_link(directory: str) -> bool:
    return not _splits(directory) and os.access(directory, os.W_OK | os.X_OK)
