"""Runs captures and commands under faults drawn at random, and checks what they leave.

    scripts/chaos --draws 100 --seed 1
    scripts/chaos --minutes 30 --seed 2 --write
    scripts/chaos --minutes 90 --seed 3 --results draws.jsonl --share 1/2

Everything follows from the seed and the number of a draw but for moments, which depend on the
machine: ``--from N --draws 1`` draws number N again. Whatever is found is printed, and the exit
code is then 1. ``--write`` writes the table in ``docs/robustness.md`` and in
its Chinese page.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from chaos_page import Drawn, keep, read, read_records
from draws import COMMANDS, KINDS, Fault, draw_fault, moment
from hosts import HABITS, LARGE
from invariants import Seen, Undisturbed, broken, result_of, stable
from machine import left, limited, mounted_on, own_probe, segments, shown
from s3_store import ObjectStore
from subjects import AIT, Subject, possible

HERE = Path(__file__).resolve().parent
PAGES = [HERE.parents[1] / "docs" / f"robustness{end}" for end in (".md", ".zh.md")]
RECORD = HERE / "chaos.json"
_COMPILED = ("fx", "inductor")  # and slow
_LEAVING = ("forks", "storms")


def main() -> int:
    """Draw, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, help="how long to draw")
    parser.add_argument("--draws", type=int, help="how many, instead")
    parser.add_argument("--seed", type=int, default=1, help="draws other faults")
    parser.add_argument("--from", type=int, default=0, dest="first", help="number of the first")
    parser.add_argument("--share", default="1/1", help="draw each Nth number from the Kth on: K/N")
    parser.add_argument("--results", type=Path, help="a file that draws are added to")
    parser.add_argument("--kinds", nargs="+", choices=(*KINDS, *COMMANDS), help="only these")
    parser.add_argument("--huge", action="store_true", help="draw programs with 5 GB tensors, too")
    parser.add_argument("--keep", type=Path, help="where folders of draws with findings stay")
    parser.add_argument("--write", action="store_true", help="write its part of docs/robustness.md")
    given = parser.parse_args()
    place, shares = map(int, given.share.split("/"))
    earlier = [] if given.results is None else read(given.results)
    known = {each.number for each in earlier if each.seed == given.seed}
    records = read_records(RECORD)
    if given.draws is None and given.seed in records:  # what was asked for by number is made again
        known |= records[given.seed].numbers - set(records[given.seed].findings)
    with tempfile.TemporaryDirectory(prefix="chaos-") as temporary:
        kinds = given.kinds or possible((*KINDS, *COMMANDS))
        chaos = Chaos(Path(temporary), kinds, given.keep, huge=given.huge)
        end = None if given.minutes is None else time.monotonic() + 60 * given.minutes
        most = given.draws if given.draws is not None else (100 if end is None else 1 << 30)
        for number in range(given.first + place - 1, given.first + most, shares):
            if end is not None and time.monotonic() > end:
                break
            if number in known:
                continue
            drawn = chaos.draw(given.seed, number)
            if given.results is not None:
                with given.results.open("a", encoding="utf-8") as file:
                    file.write(drawn.line())
        chaos.close()
    findings = [each for each in chaos.drawn if each.found]
    print(f"{len(chaos.drawn)} draws, {len(findings)} with findings")
    if given.write:
        draws = chaos.drawn if given.results is None else read(given.results)
        keep(draws, RECORD, PAGES)
    return int(bool(findings))


class Chaos:
    """Draws and what was found.

    Args:
        folder: for what runs write.
        kinds: of subjects.
        keep: where to put what a finding left.
        huge: draw programs with a tensor of 5 GB, too.

    Attributes:
        drawn: all draws.
    """

    def __init__(
        self, folder: Path, kinds: Sequence[str], keep: Path | None, *, huge: bool = False
    ) -> None:
        self.drawn: list[Drawn] = []
        self._own = f"usual-{os.getpid()}"  # another run beside this one has such programs, too
        self._folder, self._kinds, self._keep = folder, kinds, keep
        self._habits = [each for each in HABITS if huge or each != "huge"]
        self._store: ObjectStore | None = None
        self._usual: dict[Subject, Undisturbed] = {}
        self._shim = folder / "failing_io.so"
        source = HERE / "failing_io.c"
        subprocess.run(
            ["cc", "-shared", "-fPIC", "-O2", "-o", self._shim, source, "-ldl"], check=True
        )
        self._inputs = folder / "inputs"

    def draw(self, seed: int, number: int) -> Drawn:
        """Run one draw, and keep what it broke."""
        rng = Random(f"{seed}/{number}")
        kind = rng.choice(self._kinds)
        habits = [each for each in self._habits if kind not in _COMPILED or each == "plain"]
        weights = [1 if each in LARGE else 4 for each in habits]
        habit = rng.choices(habits, weights)[0] if kind in KINDS else ""
        subject, fault = Subject(kind, habit), draw_fault(rng)
        usual = self._usually(subject)
        place = self._folder / f"draw-{number}"
        when, mark = moment(rng, usual.seconds), f"{seed}.{number}"
        seen = self._run(subject, fault, place, mark, when, usual.seconds)
        found = broken(seen, usual, strikes=fault.strikes, removes=fault.removes, ends=fault.ends)
        what = f"{number} {kind} {habit}, {fault.name}"
        drawn = Drawn(seed, number, kind, _family(fault), what, tuple(found))
        self.drawn.append(drawn)
        print(f"{what}: exit {seen.code}, {seen.seconds:.1f} s", flush=True)
        for each in found:
            print(f"    {each}", flush=True)
        if found and self._keep is not None:
            place.joinpath("text").write_text(seen.text, encoding="utf-8")
            kept = self._keep / f"{seed}-{number}"
            shutil.rmtree(kept, ignore_errors=True)  # of the same draw, earlier
            shutil.copytree(place, kept, symlinks=True)
        shutil.rmtree(place, ignore_errors=True)
        return drawn

    def _usually(self, subject: Subject) -> Undisturbed:
        """A run without a fault, twice, so that what changes from run to run is known."""
        if subject.kind in COMMANDS and not self._inputs.exists():
            self._make_inputs()
        if subject.kind == "compare-store" and self._store is None:
            self._store = ObjectStore(self._inputs)
        if subject not in self._usual:
            places = [self._folder / f"usual-{number}" for number in range(2)]
            runs = [self._run(subject, Fault("nothing"), each, self._own, None) for each in places]
            files = stable(*(each.output for each in runs))
            first = runs[0]
            if len({result_of(each.text) for each in runs}) > 1:
                raise RuntimeError(f"{subject}: its result changes from run to run")
            # Children that end at once leave ledgers that are not sealed.
            if first.code not in (0, 1, *((3,) if subject.habit in _LEAVING else ())):
                raise RuntimeError(f"{subject}: exit code {first.code}\n{first.text}")
            alone = self._alone(subject) if subject.kind in _COMPILED else ""
            usual = Undisturbed(files, result_of(first.text), first.code, first.seconds, alone)
            self._usual[subject] = usual
            for each in places:
                shutil.rmtree(each)
        return self._usual[subject]

    def _alone(self, subject: Subject) -> str:
        """What a program says that is not captured."""
        environment = {**os.environ, "TORCHINDUCTOR_CACHE_DIR": str(self._folder / "kernels")}
        done = subprocess.run(
            subject.program, env=environment, capture_output=True, text=True, check=True
        )
        return result_of(done.stdout)

    def _make_inputs(self) -> None:
        for name in ("torch-op", "torch-op-again", "tensor"):
            folder = self._inputs / name
            folder.mkdir(parents=True)
            subject = Subject(name.removesuffix("-again"), "plain")
            words = subject.words(folder, self._inputs, Fault("nothing"))
            subprocess.run(words, check=True, capture_output=True)

    def close(self) -> None:
        """End what draws needed."""
        if self._store is not None:
            self._store.close()

    def _run(
        self,
        subject: Subject,
        fault: Fault,
        place: Path,
        mark: str,
        when: float | None,
        usual: float = 0.0,
    ) -> Seen:
        output = place / "out"
        output.mkdir(parents=True)
        before = segments()
        mounted = bool(fault.disk) and mounted_on(output, fault.disk)
        started = time.monotonic()
        other = None
        if fault.beside:
            beside = place / "beside"
            target = output if fault.beside == "same" else beside / "out"
            target.mkdir(parents=True, exist_ok=True)
            other = self._start(subject, Fault("nothing"), beside, target, mark)
        process = self._start(subject, fault, place, output, mark)
        if fault.act is not None and when is not None:
            try:
                process.wait(when)
            except subprocess.TimeoutExpired:
                fault.act(process, output)
        code, seconds = _ended(process), time.monotonic() - started
        companion = _ended(other) if other is not None else 0
        remaining = left(mark, usual)
        new_segments = sorted(segments() - before)
        if mounted:  # its files stay, for what looks at them
            shutil.copytree(output, place / "copy", symlinks=True)
            subprocess.run(["umount", "-l", str(output)], check=True)
            shutil.rmtree(output)
            place.joinpath("copy").rename(output)
        seen = Seen(output, _said(place), code, seconds, remaining, new_segments)
        if not fault.ends:
            seen = replace(seen, temporary=_ours(place))
        if subject.kind in KINDS:
            seen = replace(seen, shown=shown(AIT, output))
        if other is None:
            return seen
        companion_seen = Seen(target, _said(beside), companion, seconds, temporary=_ours(beside))
        return replace(seen, beside=companion_seen)

    def _start(
        self, subject: Subject, fault: Fault, place: Path, output: Path, mark: str
    ) -> subprocess.Popen[str]:
        temporary = place / "tmp"
        temporary.mkdir(parents=True)
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("ATB_", "AIT_", "LD_PRELOAD"))
        }
        environment |= {"CHAOS_DRAW": mark, "TMPDIR": str(temporary)}
        environment["TORCHINDUCTOR_CACHE_DIR"] = str(self._folder / "kernels")
        own = dict(fault.environment)
        if own:
            own["LD_PRELOAD"] = str(self._shim)
        if "CHAOS_ERRNO" in own:
            own["CHAOS_FOLDER"] = str(output)
        by_writer = fault.writer and subject.kind == "tensor"
        if not by_writer:
            environment |= own
        if subject.kind == "tensor":
            marked = {"CHAOS_DRAW": mark, **(own if by_writer else {})}
            environment["AIT_LLM_LIB_DIR"] = str(own_probe(place / "lib", marked))
        if self._store is not None:
            environment |= self._store.environment
        url = self._store.url if self._store is not None else ""
        with place.joinpath("printed").open("w", encoding="utf-8") as printed:
            process = subprocess.Popen(
                subject.words(output, self._inputs, fault, url),
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
                preexec_fn=lambda: limited(fault.limits),
            )
        process.mark = mark  # type: ignore[attr-defined]
        return process


def _ended(process: subprocess.Popen[str]) -> int:
    try:
        return process.wait(600)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def _said(place: Path) -> str:
    return place.joinpath("printed").read_text("utf-8", "replace")


def _ours(place: Path) -> list[str]:
    return sorted(each.name for each in place.joinpath("tmp").iterdir() if "ait" in each.name)


def _family(fault: Fault) -> str:
    """Its name without numbers."""
    return (
        fault.name.lstrip("0123456789 ")
        .removeprefix("KiB ")
        .removeprefix("of ")
        .partition(" for ")[0]
    )


if __name__ == "__main__":
    sys.exit(main())
