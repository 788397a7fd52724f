"""Runs captures and commands under faults drawn at random, and checks what they leave.

    scripts/chaos --draws 100 --seed 1
    scripts/chaos --minutes 30 --seed 2 --write

Everything follows from the seed and the number of a draw but for moments, which depend on the
machine: ``--from N --draws 1`` draws number N again. Whatever is found is printed, and the exit
code is then 1. ``--write`` writes the table in ``docs/robustness.md`` and in
its Chinese page.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from chaos_page import publish
from draws import COMMANDS, KINDS, Fault, draw_fault, members, moment, send
from hosts import HABITS
from invariants import Seen, Undisturbed, broken, result_of, stable

HERE = Path(__file__).resolve().parent
PAGES = [HERE.parents[1] / "docs" / f"robustness{end}" for end in (".md", ".zh.md")]
_AIT = (sys.executable, "-m", "ait_llm", "llm")
_QUIET_SECONDS = 20.0  # for writers to end behind a program that was killed
_SLOW = ("fx", "inductor")


@dataclass(frozen=True)
class Subject:
    """What is run.

    Attributes:
        kind: of capture, or a command.
        habit: of the program; empty for commands.
    """

    kind: str
    habit: str

    def words(self, output: Path, inputs: Path, fault: Fault) -> list[str]:
        """The command line."""
        if self.kind in KINDS:
            program = f"{sys.executable} {HERE / 'hosts.py'} {self.kind} {self.habit}"
            words = ["dump", "--exec", program, "--type", self.kind, "-er", "all", "-q"]
            return [*_AIT, *words, *_room(self.kind, fault), "-o", str(output)]
        golden, mine = str(inputs / "torch-op"), str(inputs / "torch-op-again")
        words = {
            "compare": ["-gp", golden, "-mp", mine, "--format", "csv", "jsonl", "html"],
            "opcheck": ["-i", str(inputs / "tensor")],
            "convert": [str(inputs / "tensor"), "--to", "npy"],
            "show": [str(inputs / "torch-op")],
        }[self.kind]
        out = [] if self.kind == "show" else ["-o", str(output)]
        return [*_AIT, self.kind, *words, *out]


def _room(kind: str, fault: Fault) -> list[str]:
    if kind != "tensor":
        return []
    # The writer of the probe has an environment of its own: the program writes where errors are
    # brought in by one.
    return ["--min-free", "0", *(["--queue-size", "0"] if fault.environment else [])]


def main() -> int:
    """Draw, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, help="how long to draw")
    parser.add_argument("--draws", type=int, help="how many, instead")
    parser.add_argument("--seed", type=int, default=1, help="draws other faults")
    parser.add_argument("--from", type=int, default=0, dest="first", help="number of the first")
    parser.add_argument("--kinds", nargs="+", choices=(*KINDS, *COMMANDS), help="only these")
    parser.add_argument("--keep", type=Path, help="where folders of draws with findings stay")
    parser.add_argument("--write", action="store_true", help="write its part of docs/robustness.md")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-") as temporary:
        chaos = Chaos(Path(temporary), given.kinds or (*KINDS, *COMMANDS), given.keep)
        end = None if given.minutes is None else time.monotonic() + 60 * given.minutes
        most = given.draws if given.draws is not None else (100 if end is None else 1 << 30)
        for number in range(given.first, given.first + most):
            if end is not None and time.monotonic() > end:
                break
            chaos.draw(given.seed, number)
    print(f"{chaos.count} draws, {len(chaos.findings)} with findings")
    if given.write:
        command = ["git", "rev-parse", "--short=7", "HEAD"]
        commit = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=True)
        for page in PAGES:
            publish(page, given.seed, commit.stdout.strip(), chaos.drawn, chaos.findings)
    return int(bool(chaos.findings))


class Chaos:
    """Draws and what was found.

    Args:
        folder: for what runs write.
        kinds: of subjects.
        keep: where to put what a finding left.
    """

    def __init__(self, folder: Path, kinds: Sequence[str], keep: Path | None) -> None:
        self.count = 0
        self.drawn: Counter[tuple[str, str]] = Counter()
        self.findings: dict[str, list[str]] = {}
        self._folder, self._kinds, self._keep = folder, kinds, keep
        self._usual: dict[Subject, Undisturbed] = {}
        self._shim = folder / "failing_io.so"
        source = HERE / "failing_io.c"
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O2", "-o", self._shim, source, "-ldl"], check=True
        )
        self._inputs = folder / "inputs"

    def draw(self, seed: int, number: int) -> None:
        """Run one draw, and keep what it broke."""
        rng = Random(f"{seed}/{number}")
        kind = rng.choice(self._kinds)
        habits = [each for each in HABITS if kind not in _SLOW or each == "plain"]
        weights = [1 if each == "large" else 4 for each in habits]
        habit = rng.choices(habits, weights)[0] if kind in KINDS else ""
        subject, fault = Subject(kind, habit), draw_fault(rng)
        usual = self._usually(subject)
        place = self._folder / f"draw-{number}"
        seen = self._run(subject, fault, place, f"{seed}.{number}", moment(rng, usual.seconds))
        found = broken(seen, usual, strikes=fault.strikes, removes=fault.removes, ends=fault.ends)
        self.count += 1
        self.drawn[kind, _family(fault)] += 1
        what = f"{number} {kind} {habit}, {fault.name}"
        print(f"{what}: exit {seen.code}, {seen.seconds:.1f} s", flush=True)
        for each in found:
            print(f"    {each}", flush=True)
        if found:
            self.findings[what] = found
            if self._keep is not None:
                place.joinpath("text").write_text(seen.text, encoding="utf-8")
                shutil.copytree(place, self._keep / f"{seed}-{number}", symlinks=True)
        shutil.rmtree(place, ignore_errors=True)

    def _usually(self, subject: Subject) -> Undisturbed:
        """A run without a fault, twice, so that what changes from run to run is known."""
        if subject.kind in COMMANDS and not self._inputs.exists():
            for name, kind in (("torch-op", "torch-op"), ("torch-op-again", "torch-op"),
                               ("tensor", "tensor")):  # fmt: skip
                self._inputs.joinpath(name).mkdir(parents=True)
                words = Subject(kind, "plain").words(
                    self._inputs / name, self._inputs, Fault("nothing")
                )
                subprocess.run(words, check=True, capture_output=True)
        if subject not in self._usual:
            places = [self._folder / f"usual-{number}" for number in range(2)]
            runs = [self._run(subject, Fault("nothing"), each, "usual", None) for each in places]
            files = stable(*(each.output for each in runs))
            first = runs[0]
            if len({result_of(each.text) for each in runs}) > 1:
                raise RuntimeError(f"{subject}: its result changes from run to run")
            # Children that end at once leave ledgers that are not sealed.
            if first.code not in (0, 1) and (first.code, subject.habit) != (3, "forks"):
                raise RuntimeError(f"{subject}: exit code {first.code}\n{first.text}")
            usual = Undisturbed(files, result_of(first.text), first.code, first.seconds)
            self._usual[subject] = usual
            for each in places:
                shutil.rmtree(each)
        return self._usual[subject]

    def _run(
        self, subject: Subject, fault: Fault, place: Path, mark: str, when: float | None
    ) -> Seen:
        output, temporary = place / "out", place / "tmp"
        temporary.mkdir(parents=True)
        output.mkdir()
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ATB_", "AIT_", "LD_PRELOAD"))
        }
        environment |= {"CHAOS_DRAW": mark, "TMPDIR": str(temporary), **fault.environment}
        environment["TORCHINDUCTOR_CACHE_DIR"] = str(self._folder / "kernels")
        if fault.environment:
            environment["LD_PRELOAD"] = str(self._shim)
        if "CHAOS_ERRNO" in fault.environment:
            environment["CHAOS_FOLDER"] = str(output)
        before = _segments()
        mounted = bool(fault.disk) and _mounted(output, fault.disk)
        started = time.monotonic()
        with place.joinpath("printed").open("w+", encoding="utf-8", errors="replace") as printed:
            process = subprocess.Popen(
                subject.words(output, self._inputs, fault),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
                preexec_fn=lambda: _limited(fault.limits),
            )
            process.mark = mark  # type: ignore[attr-defined]
            if fault.act is not None and when is not None:
                try:
                    process.wait(when)
                except subprocess.TimeoutExpired:
                    fault.act(process, output)
            try:
                code = process.wait(600)
            except subprocess.TimeoutExpired:
                process.kill()
                code = process.wait()
            seconds = time.monotonic() - started
            printed.seek(0)
            text = printed.read()
        left = _left(mark)
        segments = sorted(_segments() - before)
        ours = sorted(each.name for each in temporary.iterdir() if "ait" in each.name)
        if mounted:  # its files stay, for what looks at them
            shutil.copytree(output, place / "copy", symlinks=True)
            subprocess.run(["umount", "-l", str(output)], check=True)
            shutil.rmtree(output)
            place.joinpath("copy").rename(output)
        seen = Seen(output, text, code, seconds, left, segments, [] if fault.ends else ours)
        return replace(seen, shown=_shown(output)) if subject.kind in KINDS else seen


def _family(fault: Fault) -> str:
    """Its name without numbers."""
    return (
        fault.name.lstrip("0123456789 ")
        .removeprefix("KiB ")
        .removeprefix("of ")
        .partition(" for ")[0]
    )


def _limited(limits: Mapping[int, int]) -> None:
    for each, value in limits.items():
        resource.setrlimit(each, (value, value))


def _mounted(folder: Path, size: int) -> bool:
    """Whether the folder is a small file system now; that needs root."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _segments() -> set[str]:
    """Shared memory of ours, but for that of tests that damage files."""
    names = {each.name for each in Path("/dev/shm").iterdir()}
    return {name for name in names if "ait" in name and not name.startswith("ait-fuzz")}


def _left(mark: str) -> list[int]:
    """Processes of a draw that do not end by themselves."""
    end = time.monotonic() + _QUIET_SECONDS
    while (found := members(mark)) and time.monotonic() < end:
        time.sleep(0.05)
    for each in found:
        send(each, signal.SIGKILL)
    return found


def _shown(output: Path) -> int | None:
    folder = output / "ait_dump"
    if not folder.is_dir() or folder.is_symlink():
        return None
    done = subprocess.run([*_AIT, "show", str(folder)], capture_output=True, text=True, check=False)
    return 4 if "Traceback" in done.stderr else done.returncode


if __name__ == "__main__":
    sys.exit(main())
