"""One reader under libFuzzer, in processes of its own: what it read, needed and broke."""

from __future__ import annotations

import functools
import json
import mmap
import os
import random
import resource
import tempfile
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import atheris  # type: ignore[import-not-found]  # installed by scripts/fuzz
from engine import (
    SECRET,
    Finding,
    Target,
    Watch,
    add_findings,
    bounded,
    in_child,
    judge,
    prepare,
)
from mutations import MAX_BYTES

CPU_SECONDS = 5.0  # of one file
RSS_MIB = 512  # of the whole process, torch and the fuzzer included
_HANGS = 60  # seconds of the clock after which libFuzzer ends the process
_MEMORY = "/dev/shm"  # files take a tenth of the time there
_OWN_CHANGES = 0.6  # the share of changes that know the format
_STARTS = 20  # processes after which a reader that ends them is given up
_ENDINGS = {"timeout": f"takes more than {_HANGS} s", "oom": f"needs more than {RSS_MIB} MiB"}


@dataclass
class Explored:
    """What a reader did.

    Attributes:
        target: its name.
        runs: files that it read.
        accepted: those without an error.
        seconds: of the clock.
        slowest: seconds of processor time of one file.
        rss_mib: the most memory that the process had.
        corpus: files, each of which reaches code in a way that no other does.
        findings: the first of each kind.
        seeds: of what was drawn.
    """

    target: str
    runs: int = 0
    accepted: int = 0
    seconds: float = 0
    slowest: float = 0
    rss_mib: int = 0
    corpus: int = 0
    findings: list[Finding] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, record: dict[str, Any]) -> Explored:
        """From what ``asdict`` made of one."""
        return cls(**{**record, "findings": [Finding(**each) for each in record["findings"]]})

    def add(self, more: Explored) -> None:
        """Add what another run of the same reader did."""
        self.runs += more.runs
        self.accepted += more.accepted
        self.seconds += more.seconds
        self.slowest = max(self.slowest, more.slowest)
        self.rss_mib = max(self.rss_mib, more.rss_mib)
        self.corpus = more.corpus
        self.seeds = sorted({*self.seeds, *more.seeds})
        add_findings(self.findings, more.findings)

    def line(self) -> str:
        """For people."""
        lines = [
            f"{self.target:24} {self.runs:>9} runs, {self.accepted:>8} accepted, "
            f"{self.runs / max(self.seconds, 1e-9):6.0f}/s, slowest {self.slowest:.2f} s, "
            f"{self.rss_mib} MiB, corpus {self.corpus}, {len(self.findings)} findings"
        ]
        for each in self.findings:
            text = each.text.strip().replace("\n", "\n    ")
            lines.append(f"  {each.kind} ({each.times} times)\n    {text}")
        return "\n".join(lines)


def explore(
    target: Target, folder: Path, seconds: float, runs: int, seed: int, kept: Sequence[bytes]
) -> Explored:
    """Look for files that reach new code of a reader.

    Args:
        target: the reader.
        folder: ``corpus`` in it has what was found, now and before; ``findings`` what broke it.
        seconds: of the clock.
        runs: files to read, at most.
        seed: of what is drawn.
        kept: files that an earlier run has found.
    """
    corpus, broken = folder / "corpus", folder / "findings"
    for each in (corpus, broken):
        each.mkdir(exist_ok=True)
    for number, data in enumerate((*target.corpus, *kept)):
        (corpus / f"seed-{number}").write_bytes(data)
    explored = Explored(target.name, seeds=[seed])
    started = time.monotonic()
    for start in range(_STARTS):
        left = seconds - (time.monotonic() - started)
        if left < 1 or explored.runs >= runs:
            break
        arguments = [
            *(target.name, str(corpus), f"-artifact_prefix={broken}/", f"-seed={seed + start}"),
            *(f"-max_total_time={int(left)}", f"-runs={runs - explored.runs}", "-len_control=0"),
            *(f"-timeout={_HANGS}", f"-rss_limit_mb={RSS_MIB}", f"-max_len={MAX_BYTES}"),
        ]
        earlier = set(broken.iterdir())
        status = _run(target, arguments, folder / "log", explored)
        if status == 0:
            break
        for artifact in sorted(set(broken.iterdir()) - earlier):
            what = artifact.name.partition("-")[0]
            data = artifact.read_bytes()
            text = f"{_ENDINGS.get(what, 'ends the process')}: {artifact}"
            add_findings(explored.findings, [Finding(target.name, 0, 0, what, text, data.hex())])
    explored.seconds = round(time.monotonic() - started, 1)
    explored.corpus = len(list(corpus.iterdir()))
    for number, finding in enumerate(explored.findings):
        (broken / f"finding-{number}").write_bytes(bytes.fromhex(finding.data))
    return explored


def _run(target: Target, arguments: Sequence[str], log: Path, explored: Explored) -> int:
    memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with (
        mmap.mmap(-1, 64) as progress,
        tempfile.TemporaryFile("w+") as result,
        tempfile.TemporaryDirectory(prefix="ait-fuzz-", dir=memory) as base,
    ):
        seen = _Seen(progress)

        def work() -> None:
            with log.open("ab") as file:
                for descriptor in (1, 2):
                    os.dup2(file.fileno(), descriptor)
            _Work(target, seen, result.fileno(), Path(base)).run(arguments)

        status = in_child(work, seconds=None)
        explored.runs += seen.get(0)
        explored.accepted += seen.get(1)
        explored.slowest = max(explored.slowest, round(seen.get(2) / 1e9, 3))
        explored.rss_mib = max(explored.rss_mib, seen.get(3) >> 10)
        result.seek(0)
        add_findings(explored.findings, [Finding(**json.loads(line)) for line in result])
    return status


@dataclass(frozen=True)
class _Seen:
    """Numbers that outlive the process which counts."""

    memory: mmap.mmap

    def get(self, place: int) -> int:
        return int.from_bytes(self.memory[8 * place : 8 * place + 8], "little")

    def put(self, place: int, value: int) -> None:
        self.memory[8 * place : 8 * place + 8] = value.to_bytes(8, "little")


@dataclass
class _Work:
    """What a process of its own does.

    Attributes:
        target: the reader.
        seen: runs, accepted ones, nanoseconds of the slowest, KiB of memory.
        result: a descriptor for a line of JSON for each kind of finding.
        base: an empty folder.
    """

    target: Target
    seen: _Seen
    result: int
    base: Path
    kinds: set[str] = field(default_factory=set)

    def run(self, arguments: Sequence[str]) -> None:
        """Hand the process to libFuzzer, which ends it."""
        warnings.simplefilter("ignore")
        base = self.base.resolve()
        outside, folder, temporary = base / "outside", base / "inside" / "folder", base / "t"
        for each in (outside, folder, temporary):
            each.mkdir(parents=True)
        (outside / SECRET).write_bytes(b"\x93NUMPY")
        tempfile.tempdir = str(temporary)
        os.chdir(folder)
        with bounded():
            prepare(self.target, folder)
            watch = Watch((folder, temporary), outside)
            atheris.Setup(
                list(arguments),
                functools.partial(self._read, folder, watch),
                custom_mutator=self._change,
            )
            atheris.Fuzz()

    def _change(self, data: bytes, most: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < _OWN_CHANGES:
            return self.target.mutate(rng, data, self.target.corpus)[:most]
        changed: bytes = atheris.Mutate(data, most)
        return changed

    def _read(self, folder: Path, watch: Watch, data: bytes) -> None:
        started = time.process_time_ns()
        problem, is_accepted = judge(self.target, folder, data, watch, measured=False)
        taken = time.process_time_ns() - started
        runs = self.seen.get(0)
        self.seen.put(0, runs + 1)
        self.seen.put(1, self.seen.get(1) + is_accepted)
        self.seen.put(2, max(self.seen.get(2), taken))
        if runs % 256 == 0:
            self.seen.put(3, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
        if problem is None and taken > CPU_SECONDS * 1e9:
            problem = "slow", f"uses {taken / 1e9:.1f} s"
        if problem is None or problem[0] in self.kinds:
            return
        kind, text = problem
        self.kinds.add(kind)
        finding = Finding(self.target.name, 0, runs, kind, text, data.hex())
        os.write(self.result, json.dumps(asdict(finding)).encode() + b"\n")
