"""What must be true of a draw, whatever went wrong in it."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_NUMBER = re.compile(r"(?<![0-9a-f])[0-9]+(?![0-9a-f])")
_GRAPH = re.compile(rb'"graph": ?[0-9]+')  # a second capture counts on
_USAGE = 2
_CODES = frozenset({0, 1, 2, 3})
_SAID = re.compile(r"result ([0-9a-f]{64})")


@dataclass
class Files:
    """Files of one name but for numbers.

    Attributes:
        count: how many there are.
        digests: of their bytes; of tables, of their rows.
    """

    count: int = 0
    digests: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class Undisturbed:
    """What a run leaves when nothing goes wrong.

    Attributes:
        files: those that are the same from run to run, by name.
        result: what the program said.
        code: exit code.
        seconds: that it took.
        alone: what the program says without a capture, in its last bits: where nothing can be
            written, kernels are those that Inductor makes by itself.
    """

    files: Mapping[str, Files]
    result: str
    code: int
    seconds: float
    alone: str = ""


@dataclass
class Seen:
    """What was seen of a draw.

    Attributes:
        output: folder that was written.
        text: all that was printed.
        code: exit code; negative for a signal.
        seconds: that it took.
        alive: processes that were left.
        segments: shared memory that was left.
        temporary: files of ours in the folder of temporary files.
        shown: exit code of ``ait llm show`` of what was left; None where nothing was.
        beside: of the same that ran at the same time, without a fault of its own.
    """

    output: Path
    text: str
    code: int
    seconds: float
    alive: list[int] = field(default_factory=list)
    segments: list[str] = field(default_factory=list)
    temporary: list[str] = field(default_factory=list)
    shown: int | None = None
    beside: Seen | None = None


def files_in(folder: Path) -> dict[str, Files]:
    """All files by their paths without numbers.

    Processes have other numbers each time, and passes on several threads come in any order.
    """
    found: dict[str, Files] = {}
    inner = folder / "ait_dump"
    places = [(folder, folder), *([(inner.resolve(), inner)] if inner.is_symlink() else [])]
    for place, named in places:
        for path in sorted(place.rglob("*")):
            if path.is_file() and not path.is_symlink():
                called = named.relative_to(folder) / path.relative_to(place)
                content = path.read_bytes()
                if path.suffix == ".json":
                    content = _GRAPH.sub(b"", content)
                # Of a table rows may be missing where the disk was full, and threads mix them.
                parts = content.splitlines() if path.suffix == ".csv" else [content]
                one = found.setdefault(_NUMBER.sub("N", str(called)), Files())
                one.count += 1
                one.digests |= {hashlib.sha256(part).hexdigest() for part in parts}
    return found


def stable(one: Path, other: Path) -> dict[str, Files]:
    """Files that two runs both left, with the same bytes."""
    first, second = files_in(one), files_in(other)
    return {name: each for name, each in first.items() if second.get(name) == each}


def result_of(text: str) -> str:
    """The last result that a program printed; empty if none."""
    found: list[str] = _SAID.findall(text)
    return found[-1] if found else ""


def broken(
    seen: Seen, usual: Undisturbed, *, strikes: bool, removes: bool, ends: bool
) -> list[str]:
    """What is not as it must be.

    Args:
        seen, usual: the draw, and a run without a fault.
        strikes: the fault may end the program.
        removes: it takes away what was written.
        ends: it may end ``ait``.
    """
    companion = (
        broken(seen.beside, usual, strikes=False, removes=False, ends=False)
        if seen.beside is not None
        else []
    )
    refused = removes and seen.code == _USAGE  # before the program was started
    return [
        *(f"beside it: {each}" for each in companion),
        *_of_program(seen, usual, strikes=strikes or refused),
        *_of_exit(seen, usual, strikes=strikes or refused, ends=ends),
        *_of_files(seen, usual),
        *_of_losses(seen, usual, removes=removes),
        *_of_remains(seen),
    ]


def _of_program(seen: Seen, usual: Undisturbed, *, strikes: bool) -> Iterator[str]:
    found = result_of(seen.text)
    if found and found not in (usual.result, usual.alone):
        yield "the program has another result"
    if usual.result and not found and not strikes:
        yield "the program has no result"
    if seen.seconds > 10 * usual.seconds + 60:
        yield f"it took {seen.seconds:.0f} s, {usual.seconds:.0f} s without the fault"


def _of_exit(seen: Seen, usual: Undisturbed, *, strikes: bool, ends: bool) -> Iterator[str]:
    allowed = {usual.code, 3} if usual.result else {usual.code, 2, 3}
    if seen.code not in allowed and not strikes and not ends:
        yield f"exit code {seen.code}, {usual.code} without the fault"
    if seen.code == 4 and "MemoryError" not in seen.text and "memory" not in seen.text:
        yield "an exception that nobody foresaw (exit code 4)"
    own = "ait_llm/cli" in seen.text and "Traceback (most recent call last)" in seen.text
    if own:
        yield "a traceback of ait"


def _of_files(seen: Seen, usual: Undisturbed) -> Iterator[str]:
    for name, found in files_in(seen.output).items():
        if name.rpartition("/")[2].startswith(".ait-"):
            continue  # begun, and named so
        right = usual.files.get(name)
        if right is not None and not found.digests <= right.digests:
            yield f"{name} has other bytes"
        if name.endswith(".jsonl"):
            yield from _of_lines(seen.output, name)


def _of_lines(folder: Path, name: str) -> Iterator[str]:
    for path in folder.rglob("*.jsonl"):
        if _NUMBER.sub("N", str(path.relative_to(folder))) != name:
            continue
        whole, _, _ = path.read_bytes().rpartition(b"\n")
        for line in whole.splitlines():
            try:
                json.loads(line)
            except ValueError:
                yield f"{name} has a line that is no JSON"
                return


def _of_losses(seen: Seen, usual: Undisturbed, *, removes: bool) -> Iterator[str]:
    missing = _missing(seen.output, usual)
    if not missing or seen.code != 0:
        return
    if removes and not all(_missing(each, usual) for each in _moved(seen.output)):
        return  # all was there and told when it was taken away
    where = "a part was taken away, and " if removes else ""
    such = f"files of {len(missing)} names are missing, {missing[0]} for one"
    yield f"{where}{such}; the exit code is 0"


def _missing(folder: Path, usual: Undisturbed) -> list[str]:
    there = files_in(folder)
    return [
        name for name, each in usual.files.items() if there.get(name, Files()).count < each.count
    ]


def _moved(output: Path) -> Iterator[Path]:
    """Folders like the output, with what a fault has moved away from it."""
    for inner in output.parent.glob("moved-ait_dump"):
        whole = output.parent / "moved"
        whole.mkdir()
        inner.rename(whole / "ait_dump")
        yield whole
    yield from output.parent.glob(f"moved-{output.name}")


def _of_remains(seen: Seen) -> Iterator[str]:
    if seen.alive:
        yield f"processes are left: {seen.alive}"
    if seen.segments:
        yield f"shared memory is left: {seen.segments}"
    if seen.temporary:
        yield f"temporary files are left: {seen.temporary}"
    if seen.shown is not None and seen.shown not in _CODES:
        yield f"what is left cannot be shown (exit code {seen.shown})"
