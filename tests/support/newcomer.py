"""A machine on which somebody has just installed the wheel.

A virtual environment of its own gets the wheel and, as links, exactly the packages that the wheel
declares, so that a package which is used and not declared is missed. The home is empty, and no
variable, folder or path of the checkout is left.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from email.parser import HeaderParser
from importlib.metadata import Distribution, distribution
from pathlib import Path
from zipfile import ZipFile

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Newcomer:
    """What was set up.

    Attributes:
        home: an empty folder but for ``.venv``.
        environment: all variables that there are.
    """

    home: Path
    environment: dict[str, str]


def built_wheel(folder: Path) -> Path:
    """The wheel, built in this checkout as pip builds it; compiled files are used again."""
    lock = ROOT / "build" / ".wheel.lock"
    lock.parent.mkdir(exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # other tests build in the same folder
        subprocess.run(
            [
                *(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"),
                *("--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)),
            ],
            check=True,
        )
    (built,) = folder.glob("*.whl")
    return built


def set_up(folder: Path, wheel: Path, extra: str) -> Newcomer:
    """Install a wheel with an extra, without a network."""
    home = folder / "home"
    home.mkdir()
    venv, packages = home / ".venv", folder / "declared" / "site-packages"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    packages.mkdir(parents=True)
    scripts = []
    for found in _declared(wheel, extra):
        scripts += _linked(found, packages)
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "declared.pth").write_text(f"{packages}\n", encoding="utf-8")
    for name, target in scripts:
        _write_script(venv / "bin" / name, target)
    pip = (sys.executable, "-m", "pip", "--python", str(venv / "bin" / "python"))
    subprocess.run(
        [*pip, "install", "--quiet", "--no-deps", "--no-index", "--no-cache-dir", str(wheel)],
        env={**os.environ, "PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        check=True,
    )
    temporary = folder / "tmp"
    temporary.mkdir()
    environment = {
        "HOME": str(home),
        "PATH": f"{venv / 'bin'}:/usr/local/bin:/usr/bin:/bin",
        "LANG": "C.UTF-8",
        "TMPDIR": str(temporary),
        "PYTHONUNBUFFERED": "1",
        "OMP_NUM_THREADS": "1",
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
        "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0",  # pays for large programs only
    }
    return Newcomer(home, environment)


def _declared(wheel: Path, extra: str) -> Iterator[Distribution]:
    """The packages that the wheel needs with an extra, and what these need."""
    with ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith(".dist-info/METADATA"))
        metadata = HeaderParser().parsestr(archive.read(name).decode())
    own = str(metadata["Name"])
    needs = {own: metadata.get_all("Requires-Dist") or []}
    waiting, seen = [(own, extra)], set()
    while waiting:
        package, chosen = waiting.pop()
        if (package, chosen) in seen:
            continue
        seen.add((package, chosen))
        if package != own and package not in needs:
            found = distribution(package)
            yield found
            needs[package] = found.requires or []
        for text in needs[package]:
            requirement = Requirement(text)
            if requirement.marker and not requirement.marker.evaluate({"extra": chosen}):
                continue
            waiting += [(requirement.name, each) for each in ("", *requirement.extras)]


def _linked(found: Distribution, packages: Path) -> list[tuple[str, str]]:
    """Link what a package has installed, and return its commands."""
    tops = {file.parts[0] for file in found.files or () if file.parts[0] not in ("..", "/")}
    for top in tops - {"__pycache__"}:
        target = Path(str(found.locate_file(top)))
        if not (packages / top).exists() and target.exists():
            (packages / top).symlink_to(target)
    return [
        (point.name, point.value)
        for point in found.entry_points
        if point.group == "console_scripts"
    ]


def _write_script(path: Path, target: str) -> None:
    module, _, function = target.partition(":")
    path.write_text(
        f"#!{path.parent / 'python'}\nimport sys\n"
        f"from {module} import {function.partition('.')[0]}\nsys.exit({function}())\n",
        encoding="utf-8",
    )
    path.chmod(0o755)
