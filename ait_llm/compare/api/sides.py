"""Two API-level dumps to the pairs of files that belong together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ait_llm.compare.api.columns import Mode
from ait_llm.compare.sides import itself
from ait_llm.dumps.api_json import UnfinishedError
from ait_llm.dumps.api_ledger import problem_of
from ait_llm.dumps.api_place import ApiPlace, find_api_places
from ait_llm.dumps.api_records import ApiFile
from ait_llm.dumps.api_stream import content_of, read_records
from ait_llm.errors import FormatError, UsageError

_TASKS: Mapping[str, Mode] = {"tensor": "tensor", "statistics": "statistics"}


@dataclass(frozen=True, slots=True)
class ApiSide:
    """One JSON file of one side.

    Attributes:
        place: where it lies.
        file: what it says about itself.
    """

    place: ApiPlace
    file: ApiFile

    @property
    def is_debug(self) -> bool:
        """True for single points that a program saved by hand."""
        return self.place.path.name == "debug.json"

    @property
    def problem(self) -> str | None:
        """What the ledger of the capture says is missing; None if nothing is.

        Raises:
            FormatError: the ledger is damaged.
        """
        return problem_of(self.place)

    def records(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Name and content of each record, in the order of the file; the last of one name counts.

        Raises:
            FormatError: the file is malformed.
            UnfinishedError: it breaks off.
        """
        path = self.place.path
        for member in read_records(path):
            yield member.key, content_of(path, member.key, member.value)


@dataclass(frozen=True, slots=True)
class ApiPair:
    """Two files that are compared with each other.

    Attributes:
        mine, golden: the files.
        mode: what both offer.
        suffix: part of the name of a report: ``_rank0``, ``_proc42``, ``_step3_rank0`` where
            several steps are compared, or empty for single files.
    """

    mine: ApiSide
    golden: ApiSide
    mode: Mode
    suffix: str = ""


@dataclass(frozen=True, slots=True)
class ApiPairs:
    """What is compared, and what is left alone.

    Attributes:
        pairs: by rank.
        problems: ranks and steps that only one side has.
    """

    pairs: tuple[ApiPair, ...]
    problems: tuple[str, ...] = ()


def pair_sides(mine: Path, golden: Path) -> ApiPairs:
    """Find the files of two dumps that belong together: by rank and step.

    Ranks of the same number belong together; if the numbers differ altogether, ranks do in their
    order.

    Raises:
        FormatError: a path is no API-level dump.
        UsageError: the two sides cannot be compared with each other.
    """
    ours, theirs = _places(mine), _places(golden)
    single = len(ours) == len(theirs) == 1
    matched, problems = _matched(ours, theirs)
    if same := itself(golden, mine):
        problems = [same, *problems]
    if not matched:
        raise UsageError(
            f"{mine} and {golden}: no step and rank is in both; give folders of a step"
        )
    pairs = []
    steps = len({place.step for place, _ in matched}) > 1
    for my_place, golden_place in matched:
        side, other = _side(my_place), _side(golden_place)
        if side.is_debug != other.is_debug:
            raise UsageError(
                f"{my_place.path} and {golden_place.path}: one has single points, one has calls; "
                "give two files of one kind"
            )
        suffix = "" if single and not mine.is_dir() else _suffix(my_place, len(ours) > 1)
        if steps:
            suffix = f"_step{my_place.step}{suffix}"
        pairs.append(ApiPair(side, other, common_mode(side, other), suffix))
    return ApiPairs(tuple(pairs), tuple(problems))


def problems_of(pair: ApiPair) -> list[str]:
    """What the ledgers of both sides say is missing.

    Raises:
        FormatError: a ledger is damaged.
    """
    sides = (("mine", pair.mine.problem), ("golden", pair.golden.problem))
    return [f"{name}: {problem}" for name, problem in sides if problem is not None]


def sides_of(path: Path) -> dict[int, list[ApiSide]]:
    """The files of a dump by step, in the order of their ranks; single points are left out.

    Raises:
        FormatError: it is no API-level dump.
    """
    found: dict[int, list[ApiSide]] = {}
    for place in _places(path):
        side = _side(place)
        if not side.is_debug:
            found.setdefault(place.step, []).append(side)
    return found


def share_no_ranks(mine: Path, golden: Path) -> bool:
    """True if one side ran on a multiple of the other's ranks, so that these hold parts of tensors.

    Raises:
        FormatError: a path is no API-level dump.
    """
    ours, theirs = ({len(each) for each in sides_of(path).values()} for path in (mine, golden))
    if len(ours) != 1 or len(theirs) != 1:
        return False
    few, many = sorted((*ours, *theirs))
    return few < many and many % few == 0


def _places(path: Path) -> list[ApiPlace]:
    found = find_api_places(path)
    if not found:
        raise FormatError(
            path,
            "is not an API-level dump",
            "Give a dump.json or debug.json, or the folder of a rank or step",
        )
    return found


def _side(place: ApiPlace) -> ApiSide:
    return ApiSide(place, ApiFile(place, place.folder))


def _matched(
    ours: list[ApiPlace], theirs: list[ApiPlace]
) -> tuple[list[tuple[ApiPlace, ApiPlace]], list[str]]:
    if len(ours) == len(theirs) == 1:
        return [(ours[0], theirs[0])], []
    pairs = []
    problems = []
    steps = sorted({place.step for place in ours} | {place.step for place in theirs})
    for step in steps:
        mine = {_key(p): p for p in ours if p.step == step}
        golden = {_key(p): p for p in theirs if p.step == step}
        if mine and golden and not mine.keys() & golden.keys() and len(mine) == len(golden):
            pairs += list(zip(mine.values(), golden.values(), strict=True))
            continue
        pairs += [(mine[key], golden[key]) for key in mine if key in golden]
        for side, places, others in (("mine", mine, golden), ("golden", golden, mine)):
            left = [place for key, place in places.items() if key not in others]
            problems += [f"only {side} has {place.folder}" for place in left]
    return pairs, problems


def _key(place: ApiPlace) -> tuple[str, int]:
    """The same for places that answer each other; process ids differ from run to run."""
    return place.path.name, place.rank


def _suffix(place: ApiPlace, several: bool) -> str:
    if place.rank >= 0:
        return f"_rank{place.rank}"
    return f"_proc{place.pid}" if several and place.pid else ""


def common_mode(mine: ApiSide, golden: ApiSide) -> Mode:
    """What two files both offer.

    Raises:
        UsageError: they cannot be compared with each other.
        FormatError: one has no values at all.
    """
    modes = [_mode_of(side) for side in (mine, golden)]
    if modes[0] == modes[1]:
        return modes[0]
    if "md5" in modes:
        raise UsageError(
            f"{mine.place.path} and {golden.place.path}: one has checksums only "
            f"({modes[0]} against {modes[1]}); capture both with the same task and summary_mode"
        )
    return "statistics"  # tensors have statistics too


def _mode_of(side: ApiSide) -> Mode:
    task = side.file.header.get("task")
    mode = _TASKS.get(str(task))
    if mode is None:
        raise FormatError(side.place.path, f"was captured with task {task!r}, which has no values")
    if mode == "statistics" and _has_checksums(side):
        return "md5"
    return mode


def _has_checksums(side: ApiSide) -> bool:
    """Look at the first tensor."""
    try:
        for _, content in side.records():
            stack: list[Any] = [content]
            while stack:
                value = stack.pop()
                if isinstance(value, list):
                    stack += value
                elif isinstance(value, dict):
                    if "dtype" in value and "shape" in value:
                        return "md5" in value
                    stack += value.values()
    except UnfinishedError:
        pass
    return False
