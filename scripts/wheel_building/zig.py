"""Zig as a C++ compiler that links against an older glibc than the machine has.

Zig carries the symbols of every glibc, and links against those of one version. Its own C++ library
is no use to us: the probe meets ATB through the ``std::string`` of libstdc++. So the headers and
the static libstdc++ of GCC are taken instead, and the few functions of a newer glibc that this
library asks for are made of older ones.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path

GLIBC = "2.28"  # of openEuler 20.03 and RHEL 8
PACKAGES = {"x86_64": "g++", "aarch64": "libstdc++-12-dev-arm64-cross"}

# The header came with glibc 2.32. 0 says that there may be other threads, which is always right.
_SINGLE_THREADED = """\
#pragma once
extern "C" __attribute__((visibility("hidden"))) char __libc_single_threaded;
"""
_OLDER = """\
#include <stdlib.h>
#include <unistd.h>
__attribute__((visibility("hidden"))) char __libc_single_threaded = 0;
// of glibc 2.36; std::random_device asks for it
__attribute__((visibility("hidden"))) unsigned arc4random(void) {
  unsigned value;
  if (getentropy(&value, sizeof value)) abort();
  return value;
}
"""
# What GCC and Zig call differently is translated. Version scripts hide what --exclude-libs would.
_WRAPPER = """\
#!/usr/bin/env bash
set -euo pipefail
links=1 given=()
while [ "$#" -gt 0 ]; do
  case "$1" in
    -c | -S | -E) links=0; given+=("$1") ;;
    -static-libstdc++ | -static-libgcc | -Wl,--exclude-libs,ALL) ;;
    -Xlinker) # one word of the linker each
      case "$2" in
        --exclude-libs | ALL) ;;
        *) given+=("-Wl,$2") ;;
      esac
      shift
      ;;
    -march=armv8-a+crc) given+=(-mcpu=generic+crc) ;;
    -Wno-maybe-uninitialized) ;; # a warning of GCC
    *) given+=("$1") ;;
  esac
  shift
done
if [ "$links" = 1 ]; then
  given+=(-nostdlib++ {older} {library} -lunwind -lpthread)
fi
exec {zig} c++ -target {target} -nostdinc++ {includes} "${{given[@]}}"
"""


class MissingError(Exception):
    """What has to be installed first, as a sentence."""


@dataclass(frozen=True, slots=True)
class Libstdcxx:
    """The static C++ library of GCC for one architecture, and its headers."""

    library: Path
    headers: tuple[Path, Path]


def find_libstdcxx(machine: str, root: Path = Path("/")) -> Libstdcxx:
    """The newest one, of the machine's own GCC or of a cross compiler.

    Raises:
        MissingError: there is none.
    """
    triple = f"{machine}-linux-gnu"
    places = (("usr/lib/gcc", "usr/include"), ("usr/lib/gcc-cross", f"usr/{triple}/include"))
    for libraries, includes in places:
        found = list((root / libraries / triple).glob("*/libstdc++.a"))
        for library in sorted(found, key=lambda file: int(file.parent.name), reverse=True):
            version = library.parent.name
            headers = root / includes / "c++" / version
            own = [headers / triple, root / includes / triple / "c++" / version]
            for folder in own:
                if (folder / "bits" / "c++config.h").exists():
                    return Libstdcxx(library, (headers, folder))
    raise MissingError(f"no libstdc++ for {machine}: install {PACKAGES[machine]}")


def write_compiler(folder: Path, machine: str, zig: list[str]) -> Path:
    """A script that CMake can use as a C++ compiler for that architecture.

    Args:
        folder: gets the script and what it needs.
        machine: ``x86_64`` or ``aarch64``.
        zig: the command.
    """
    found = find_libstdcxx(machine)
    headers = folder / "headers"
    (headers / "sys").mkdir(parents=True, exist_ok=True)
    (headers / "sys" / "single_threaded.h").write_text(_SINGLE_THREADED)
    older = folder / "older.c"
    older.write_text(_OLDER)
    script = folder / "c++"
    includes = [f"-I{each}" for each in (headers, *found.headers)]
    script.write_text(
        _WRAPPER.format(
            # C, though the compiler is told to take C++
            older=f"-x c {shlex.quote(str(older))} -x none",
            library=shlex.quote(str(found.library)),
            zig=shlex.join(zig),
            target=f"{machine}-linux-gnu.{GLIBC}",
            includes=shlex.join(includes),
        )
    )
    script.chmod(0o755)
    return script
