"""Runs a reader on damaged files in a process of its own and says where it breaks its promise.

The promise: a reader returns, or raises an AitError that names the file; it needs bounded time and
memory, starts nothing, and touches no file outside of its folder.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import json
import mmap
import os
import random
import resource
import signal
import sys
import tempfile
import traceback
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any

from mutations import MAX_BYTES, Mutate, damaged, mutate_bytes

from ait_llm.errors import AitError

CPU_SECONDS = 20  # of one input; the slowest honest one takes a fraction of a second
SECONDS = 120  # of one input, which otherwise could wait forever
MEMORY_FACTOR = 400  # a list of lists takes 56 bytes for 2 of JSON, and is held in several forms
MEMORY_FIXED = 16 << 20  # windows, caches and tables, whatever the input
ADDRESS_SPACE = 1 << 30  # above what the process has when it starts
_MEMORY = "/dev/shm"  # files take a tenth of the time there
SECRET = "secret.npy"  # lies outside of the folder, where hostile names lead
_MEASURE_EACH = 4  # every how many inputs memory is measured; it takes half of the time
_KINDS = 50  # different findings after which a run is given up
_OURS = f"{os.sep}ait_llm{os.sep}"
_FORBIDDEN = (
    *("subprocess.Popen", "os.system", "os.exec", "os.fork", "os.posix_spawn"),
    *("socket.connect", "pickle.find_class", "urllib"),
)

_ENDINGS = {"SIGPROF": f"used {CPU_SECONDS} s", "SIGALRM": f"took {SECONDS} s"}


@dataclass(frozen=True)
class Target:
    """A reader of one kind of file.

    Attributes:
        name: of the target.
        file: name under which the damaged copy lies in the folder, perhaps in a folder below it.
        seeds: makes the good files.
        read: the reader; it gets the path of the file, and uses what it reads.
        mutate: how copies are damaged.
        surround: writes what else must lie in the folder; it is called once.
        names_folder: errors may name another file of the folder, or the folder itself.
    """

    name: str
    file: str
    seeds: Callable[[], Sequence[bytes]]
    read: Callable[[Path], object]
    mutate: Mutate = mutate_bytes
    surround: Callable[[Path], object] | None = None
    names_folder: bool = False

    @functools.cached_property
    def corpus(self) -> Sequence[bytes]:
        """The good files."""
        found = [seed for seed in self.seeds() if len(seed) <= MAX_BYTES]
        if not found:
            raise ValueError(f"{self.name} has no seeds of at most {MAX_BYTES} bytes")
        return found

    def input(self, seed: int, number: int) -> bytes:
        """A damaged copy; the same for the same numbers."""
        return damaged(random.Random(f"{self.name}/{seed}/{number}"), self.corpus, self.mutate)


@dataclass
class Finding:
    """An input on which a reader broke its promise.

    Attributes:
        target: name of the reader.
        seed, number: which input of it.
        kind: what makes it the same as others.
        text: what happened.
        data: the input in hexadecimal digits.
        times: how often that was seen.
    """

    target: str
    seed: int
    number: int
    kind: str
    text: str
    data: str
    times: int = 1


@dataclass
class Outcome:
    """What a run found.

    Attributes:
        target: name of the reader.
        inputs: inputs that were read.
        accepted: those without an error.
        kept: inputs of the repository that were read, too.
        findings: the first of each kind.
    """

    target: str
    inputs: int = 0
    accepted: int = 0
    kept: int = 0
    findings: list[Finding] = field(default_factory=list)


class Watch:
    """An audit hook: it cannot be removed, so it looks only while it is told to."""

    def __init__(self, inside: Sequence[Path], outside: Path) -> None:
        self._inside = tuple(f"{folder}{os.sep}" for folder in inside)
        self._outside = str(outside)
        self.is_looking = False
        self.seen: str | None = None
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.is_looking:
            return
        if event == "open":
            self._opened(args)
        elif event in ("os.rename", "os.link", "os.symlink", "os.remove", "os.mkdir", "os.rmdir"):
            for path in args[:2]:
                if isinstance(path, str | bytes) and not self._is_inside(path):
                    self.seen = f"{event} {path!r}"
        elif event.startswith(_FORBIDDEN):
            self.seen = f"{event} {args!r}"

    def _opened(self, args: tuple[Any, ...]) -> None:
        path, mode, flags = args
        if not isinstance(path, str | bytes | os.PathLike):
            return
        name = os.path.realpath(os.fsdecode(path))
        if name.startswith(self._outside):
            self.seen = f"opens {name} outside of its folder"
        writes = flags & (os.O_WRONLY | os.O_RDWR) if isinstance(flags, int) else 0
        if (writes or (mode and set(mode) & set("wax+"))) and not self._is_inside(name):
            self.seen = f"writes {name} outside of its folder"

    def _is_inside(self, path: str | bytes) -> bool:
        name = os.path.realpath(os.fsdecode(path)) + os.sep
        return name.startswith((*self._inside, "/dev/null")) or "__pycache__" in name


def prepare(target: Target, folder: Path) -> None:
    """Write what else must lie in the folder of a damaged copy."""
    (folder / target.file).parent.mkdir(parents=True, exist_ok=True)
    if target.surround is not None:
        target.surround(folder)


def attempt(target: Target, folder: Path, data: bytes) -> tuple[str, str] | None:
    """What kind of promise the reader breaks on an input, and how; None if it keeps all.

    Args:
        target: the reader.
        folder: as :func:`prepare` made it.
        data: what the damaged file holds.

    Raises:
        AitError: the reader refused the input, as it may.
    """
    path = folder / target.file
    path.write_bytes(data)
    try:
        target.read(path)
    except AitError as error:
        blamed = str(folder) if target.names_folder else path.name
        if blamed not in str(error):
            return f"unnamed {type(error).__name__} {_where(error)}", f"does not name it: {error}"
        if "\n" in str(error).strip() and len(str(error)) > 2000:
            return f"long {_where(error)}", f"an error of {len(str(error))} characters"
        raise
    except MemoryError as error:
        return f"MemoryError {_where(error)}", "takes more memory than it may"
    except Exception as error:  # noqa: BLE001  # what this is all about
        text = "".join(traceback.format_exception(error)[-12:])
        return f"{type(error).__name__} {_where(error)}", text[-3000:]
    return None


def _where(error: BaseException) -> str:
    """The innermost line of ours, which makes two errors the same."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if _OURS in frame.filename or "/opcheck/" in frame.filename]
    return f"{Path(ours[-1].filename).name}:{ours[-1].lineno}" if ours else "the target"


def fuzz(target: Target, seed: int, numbers: range) -> Outcome:
    """Read the damaged files of those numbers, in a process of its own."""
    target.corpus  # noqa: B018  # made once, before the process is copied
    return _run(target, seed, numbers, lambda number: target.input(seed, number))


def replay(target: Target, inputs: Sequence[bytes]) -> Outcome:
    """Read files that are given, in a process of its own; all memory is measured."""
    return _run(target, 0, range(len(inputs)), lambda number: inputs[number], measure_each=1)


def _run(
    target: Target,
    seed: int,
    numbers: range,
    source: Callable[[int], bytes],
    measure_each: int = _MEASURE_EACH,
) -> Outcome:
    """A crash or a hang ends the process; another one goes on behind the input that did it."""
    outcome = Outcome(target.name)
    start = numbers.start
    memory = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    while start < numbers.stop and len(outcome.findings) < _KINDS:
        with (
            mmap.mmap(-1, 64) as progress,
            tempfile.TemporaryFile("w+") as result,
            tempfile.TemporaryDirectory(prefix="ait-fuzz-", dir=memory) as base,
        ):
            work = _Work(target, seed, range(start, numbers.stop), source, measure_each, Path(base))
            status = in_child(functools.partial(work.run, progress, result))
            last = int.from_bytes(progress[:8], "little")
            outcome.inputs += int.from_bytes(progress[8:16], "little")
            outcome.accepted += int.from_bytes(progress[16:24], "little")
            result.seek(0)
            add_findings(outcome.findings, [Finding(**json.loads(line)) for line in result])
        if status == 0:
            break
        number = os.waitstatus_to_exitcode(status)
        if number == -signal.SIGINT:
            raise KeyboardInterrupt
        name = signal.Signals(-number).name if number < 0 else f"exit {number}"
        text = _ENDINGS.get(name, f"ended the process: {name}")
        ended = Finding(target.name, seed, last, name, text, source(last).hex())
        add_findings(outcome.findings, [ended])
        outcome.inputs += 1
        start = last + 1
    return outcome


def add_findings(all_findings: list[Finding], findings: Sequence[Finding]) -> None:
    """Add the first of each kind, and count the others."""
    known = {finding.kind: finding for finding in all_findings}
    for finding in findings:
        if finding.kind in known:
            known[finding.kind].times += finding.times
        else:
            all_findings.append(finding)
            known[finding.kind] = finding


def in_child(work: Callable[[], None], seconds: int | None = SECONDS) -> int:
    """Run a function in a copy of this process, with an alarm or without; its status."""
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child:
        try:
            return os.waitpid(child, 0)[1]
        except KeyboardInterrupt:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        signal.alarm(seconds or 0)
        work()
        code = 0
    except BaseException:  # noqa: BLE001  # a bug here; the parent says on which input
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


@dataclass(frozen=True)
class _Work:
    """What a process of its own does."""

    target: Target
    seed: int
    numbers: range
    source: Callable[[int], bytes]
    measure_each: int
    base: Path

    def run(self, progress: mmap.mmap, result: IO[str]) -> None:
        """Read all inputs; findings go to ``result``, how far it came to ``progress``."""
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
            kinds = self._findings(folder, Watch((folder, temporary), outside), progress)
        result.writelines(json.dumps(asdict(finding)) + "\n" for finding in kinds.values())
        result.flush()

    def _findings(self, folder: Path, watch: Watch, progress: mmap.mmap) -> dict[str, Finding]:
        kinds: dict[str, Finding] = {}
        read = accepted = 0
        for number in self.numbers:
            progress[:8] = number.to_bytes(8, "little")
            data = self.source(number)
            is_measured = number % self.measure_each == 0
            signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
            signal.alarm(SECONDS)
            problem, is_accepted = judge(self.target, folder, data, watch, is_measured)
            signal.setitimer(signal.ITIMER_PROF, 0)
            read += 1
            accepted += is_accepted
            progress[8:24] = read.to_bytes(8, "little") + accepted.to_bytes(8, "little")
            if problem is None:
                continue
            kind, text = problem
            if kind in kinds:
                kinds[kind].times += 1
                continue
            kinds[kind] = Finding(self.target.name, self.seed, number, kind, text, data.hex())
            if len(kinds) >= _KINDS:
                break
        return kinds


def judge(
    target: Target, folder: Path, data: bytes, watch: Watch, measured: bool
) -> tuple[tuple[str, str] | None, bool]:
    """What is wrong with how the reader takes an input, and whether it accepts it."""
    watch.seen, watch.is_looking = None, True
    if measured:
        tracemalloc.start()
    accepted, problem = True, None
    try:
        problem = attempt(target, folder, data)
    except AitError:
        accepted = False
    finally:
        watch.is_looking = False
        if measured:
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
    if problem is None and measured and peak > MEMORY_FIXED + MEMORY_FACTOR * len(data):
        problem = "memory", f"takes {peak} bytes for an input of {len(data)}"
    if problem is None and watch.seen is not None:
        problem = f"escape {watch.seen[:60]}", watch.seen
    return problem, accepted and problem is None


@contextlib.contextmanager
def bounded() -> Iterator[None]:
    """Limits of this process, and a traceback where the time is up."""
    with Path("/proc/self/statm").open() as statm:
        pages = int(statm.read().split()[0])
    limit = pages * resource.getpagesize() + ADDRESS_SPACE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    faulthandler.register(signal.SIGPROF, chain=True)
    sys.setrecursionlimit(1000)
    yield
