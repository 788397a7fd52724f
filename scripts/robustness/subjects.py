"""What chaos runs: captures of programs, and commands on what was captured."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from draws import KINDS, Fault

HERE = Path(__file__).resolve().parent
AIT = (sys.executable, "-m", "ait_llm", "llm")


@dataclass(frozen=True)
class Subject:
    """What is run.

    Attributes:
        kind: of capture, or a command.
        habit: of the program; empty for commands.
    """

    kind: str
    habit: str

    @property
    def program(self) -> list[str]:
        """What is captured; of a kind of capture only."""
        return [sys.executable, str(HERE / "hosts.py"), self.kind, self.habit]

    def words(self, output: Path, inputs: Path, fault: Fault, store: str = "") -> list[str]:
        """The command line."""
        if self.kind in KINDS:
            words = ["dump", "--exec", shlex.join(self.program), "--type", self.kind]
            return [*AIT, *words, "-er", "all", "-q", *_room(self.kind, fault), "-o", str(output)]
        golden, mine = str(inputs / "torch-op"), str(inputs / "torch-op-again")
        words = {
            "compare": ["-gp", golden, "-mp", mine, "--format", "csv", "jsonl", "html"],
            "compare-ray": ["-gp", golden, "-mp", mine, "--engine", "ray", "-j", "2"],
            "compare-store": ["-gp", f"{store}/torch-op", "-mp", f"{store}/torch-op-again"],
            "opcheck": ["-i", str(inputs / "tensor")],
            "convert": [str(inputs / "tensor"), "--to", "npy"],
            "show": [str(inputs / "torch-op")],
        }[self.kind]
        out = [] if self.kind == "show" else ["-o", str(output)]
        return [*AIT, self.kind.partition("-")[0], *words, *out]


def _room(kind: str, fault: Fault) -> list[str]:
    if kind != "tensor":
        return []
    # Errors are brought in by an environment, and the writer of the probe has one of its own.
    by_program = fault.environment and not fault.writer
    return ["--min-free", "0", *(["--queue-size", "0"] if by_program else [])]


def possible(kinds: Sequence[str]) -> list[str]:
    """The kinds for which all is installed; of the others it is said what is missing."""
    needs = {"compare-ray": ("ray",), "compare-store": ("s3fs", "moto")}
    found = []
    for kind in kinds:
        missing = [each for each in needs.get(kind, ()) if find_spec(each) is None]
        if missing:
            print(f"{kind} is not drawn: {', '.join(missing)} is not installed", flush=True)
        else:
            found.append(kind)
    return found
