"""Runs what an installed wheel must be able to do in environments of other versions."""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from checks import failures
from versions_page import as_page

ROOT = Path(__file__).parents[2]
RECORD = Path(__file__).with_name("versions.json")
PAGE = ROOT / "docs" / "versions.md"
# Each version of the one kind with one of the other kinds: what breaks is seldom a matter of three.
DEFAULT = (
    "3.10/2.1.2/1.26.4",
    "3.11/2.1.2/1.26.4",
    "3.11/2.4.1/1.26.4",
    "3.12/2.7.1/2.2.6",
    "3.13/2.10.0/2.3.5",
    "3.11/2.13.0/2.4.4",
    "3.13/newest/newest",
    "3.14/newest/newest",
)
NEWEST = "newest"


@dataclass(frozen=True, slots=True)
class Row:
    """One environment and what came of it.

    Attributes:
        python, torch, numpy: versions that ran; those asked for where nothing did.
        passed: checks that did what they must.
        failed: the others, each with the reason.
        missing: why the environment could not be made; empty if it could.
    """

    python: str
    torch: str
    numpy: str
    passed: int = 0
    failed: tuple[str, ...] = ()
    missing: str = ""


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "combinations",
        nargs="*",
        metavar="PYTHON/TORCH/NUMPY",
        type=_combination,
        default=[_combination(each) for each in DEFAULT],
        help=f"versions of an environment, such as {DEFAULT[0]} or 3.13/{NEWEST}/{NEWEST}",
    )
    parser.add_argument("--keep", type=Path, help="where environments stay for the next time")
    parser.add_argument("--write", action="store_true", help="write docs/versions.md")
    chosen = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        wheel = _wheel(Path(folder))
        rows = []
        for python, torch, numpy in chosen.combinations:
            place = (chosen.keep or Path(folder)) / f"{python}-{torch}-{numpy}"
            rows.append(_row(place.absolute(), wheel, python, torch, numpy))
            if chosen.keep is None:
                shutil.rmtree(place, ignore_errors=True)
    if chosen.write:
        RECORD.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
        PAGE.write_text(as_page([asdict(row) for row in rows]))
    if any(row.failed for row in rows):
        return 1
    return 3 if any(row.missing for row in rows) else 0  # what did not run has not passed


def _combination(text: str) -> tuple[str, str, str]:
    parts = text.split("/")
    if len(parts) != 3 or not all(parts):
        raise argparse.ArgumentTypeError(f"{text!r} is no PYTHON/TORCH/NUMPY such as {DEFAULT[0]}")
    return parts[0], parts[1], parts[2]


def _wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "-o", str(folder)]
    subprocess.run([*command, str(ROOT)], check=True, stdout=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _row(place: Path, wheel: Path, python: str, torch: str, numpy: str) -> Row:
    interpreter = _interpreter(python)
    if interpreter is None:
        return _said(Row(python, torch, numpy, missing=f"no Python {python} on this machine"))
    if not (place / "bin" / "ait").exists():
        subprocess.run([interpreter, "-m", "venv", place], check=True)
    wanted = [
        f"{wheel}[torch,safetensors]",
        *(f"{name}=={one}" for name, one in (("torch", torch), ("numpy", numpy)) if one != NEWEST),
    ]
    pip = [place / "bin" / "python", "-m", "pip", "--disable-pip-version-check"]
    subprocess.run([*pip, "uninstall", "-qy", "ait-llm"], check=True, capture_output=True)
    done = subprocess.run(
        [*pip, "install", "-q", *wanted], capture_output=True, text=True, check=False
    )
    if done.returncode:
        reason = next(
            (line for line in done.stderr.splitlines() if line.startswith("ERROR")), "pip failed"
        )
        return _said(Row(python, torch, numpy, missing=reason.removeprefix("ERROR: ")))
    versions = "sys.version.split()[0], torch.__version__, numpy.__version__"
    shown = subprocess.run(
        [place / "bin" / "python", "-c", f"import sys, torch, numpy; print({versions})"],
        capture_output=True,
        text=True,
        check=True,
    )
    passed, failed = 0, []
    with tempfile.TemporaryDirectory() as folder:
        for check, why in failures(place / "bin", Path(folder)):
            passed += not why
            if why:
                failed.append(f"{check.name}: {why}")
    return _said(Row(*shown.stdout.split(), passed=passed, failed=tuple(failed)))


def _said(row: Row) -> Row:
    print(f"Python {row.python:8} torch {row.torch:14} NumPy {row.numpy:8} ", end="")
    print(row.missing or f"{row.passed} passed, {len(row.failed)} failed", flush=True)
    for reason in row.failed:
        print(f"  {reason}", flush=True)
    return row


def _interpreter(version: str) -> str | None:
    """A Python of a version: the one on the path, or one that pyenv has."""
    found = [shutil.which(f"python{version}")]
    found += [str(each) for each in Path.home().glob(f".pyenv/versions/{version}.*/bin/python")]
    for each in found:
        if (
            each
            and not subprocess.run([each, "-c", ""], capture_output=True, check=False).returncode
        ):
            return each
    return None


if __name__ == "__main__":
    sys.exit(main())
