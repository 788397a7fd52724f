"""Compare the dumps of two runs: one file with one file, or all ranks of two folders."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ait_llm.compare.api.advisor import Advice, advice_on, nothing_to_advise
from ait_llm.compare.api.tables import csv_table
from ait_llm.compare.ptdbg.pairing import CallPair, pair_calls
from ait_llm.compare.ptdbg.rows import COLUMNS, NOT_REACHED, STACK_COLUMN, Item, PtdbgRow, make_row
from ait_llm.dumps.ptdbg import PtdbgDump
from ait_llm.dumps.ptdbg_place import RANK_NAME, PtdbgPlace
from ait_llm.dumps.ptdbg_records import PtdbgCall, PtdbgValue, ptdbg_tensor
from ait_llm.errors import FormatError, UsageError
from ait_llm.report.files import make_folder, replacing

_log = logging.getLogger(__name__)
_HEADER_LINES = 1  # the advisor counts lines of the csv from 1, its header included
_SUFFIX = re.compile(r"[\w.-]*", re.ASCII)
STACK_PREFIX = "api_stack_"


@dataclass(slots=True)
class PtdbgOutcome:
    """What a comparison found.

    Attributes:
        table: the csv file.
        advisor: file of the advice, None if none was asked for.
        rows: number of rows by ``Accuracy Reached or Not``.
        advice: where to look first.
    """

    table: Path
    advisor: Path | None = None
    rows: dict[str, int] = field(default_factory=dict)
    advice: Advice = field(default_factory=nothing_to_advise)


def compare_pkl(
    mine: PtdbgPlace,
    golden: PtdbgPlace,
    output: Path,
    *,
    stacks: bool = False,
    advise: bool = True,
    suffix: str = "",
    fuzzy: bool = False,
    log: bool = False,
) -> PtdbgOutcome:
    """Compare two files.

    Args:
        mine, golden: the ``.pkl`` files with their folders.
        output: folder of the table; it is made if need be.
        stacks: whether mine has call stacks.
        advise: also write what the first failing row suggests.
        suffix: part of the table's name.
        fuzzy: numbers of calls may differ.
        log: log every row.

    Raises:
        UsageError: ``stacks`` does not agree with the file.
        FormatError: a file is damaged.
    """
    if _SUFFIX.fullmatch(suffix) is None:
        raise UsageError(f"suffix {suffix!r} is part of a file's name: letters, digits and _ . -")
    mine_calls = _calls(mine)
    _check_stacks(mine.path, mine_calls, stacks)
    make_folder(output)
    part = f"_{suffix}" if suffix and not suffix.startswith("_") else suffix
    stamp = time.strftime("%Y%m%d%H%M%S")
    outcome = PtdbgOutcome(output / f"compare_result{part}_{stamp}.csv")
    columns = [*COLUMNS, STACK_COLUMN] if stacks else [*COLUMNS]
    with csv_table(outcome.table, columns) as table:
        number = _HEADER_LINES
        for pair in pair_calls(mine_calls, _calls(golden), fuzzy=fuzzy):
            for row in _rows(pair, mine, golden):
                number += 1
                table.add(row.cells(stack=stacks))
                _count(outcome, number, row)
                if log:
                    _log.info("%s", row.cells(stack=False))
    if advise:
        outcome.advisor = output / f"advisor{part}_{stamp}.txt"
        with replacing(outcome.advisor) as file:
            file.write(str(outcome.advice))
        for line in str(outcome.advice).splitlines():
            _log.info("%s", line)
    return outcome


def compare_distributed(
    mine: Path, golden: Path, output: Path, *, advise: bool = True, fuzzy: bool = False
) -> list[PtdbgOutcome]:
    """Compare every rank of two folders, in the order of their numbers.

    Args:
        mine, golden: folders that hold ``rank*`` folders and nothing else.
        output: folder of the tables.
        advise, fuzzy: as of :func:`compare_pkl`.

    Raises:
        UsageError: the folders do not hold the same number of ranks.
        FormatError: a file is damaged.
    """
    ours, theirs = _ranks(mine), _ranks(golden)
    if len(ours) != len(theirs):
        raise UsageError(
            f"{mine} has {len(ours)} ranks and {golden} has {len(theirs)}: the number of ranks in "
            "the two runs must be equal; compare single ranks with compare()"
        )
    outcomes = []
    for one, other in zip(ours, theirs, strict=True):
        places = _sole_file(one), _sole_file(other)
        outcomes.append(
            compare_pkl(
                *places,
                output,
                stacks=places[0].path.name.startswith(STACK_PREFIX),
                advise=advise,
                suffix=f"{one.name}-{other.name}",
                fuzzy=fuzzy,
            )
        )
    return outcomes


def _ranks(folder: Path) -> list[Path]:
    """The folders of ranks, by number."""
    if not folder.is_dir():
        raise FormatError(folder, "is not a folder", "Give the one that holds rank0, rank1, …")
    found = list(folder.iterdir())
    others = [each.name for each in found if not RANK_NAME.fullmatch(each.name)]
    if others or not found:
        raise UsageError(
            f"{folder}: must hold rank folders and nothing else"
            + (f", but has {', '.join(sorted(others)[:3])}" if others else ", but is empty")
        )
    return sorted(found, key=lambda each: int(each.name.removeprefix("rank") or 0))


def _sole_file(folder: Path) -> PtdbgPlace:
    files = [each for each in folder.iterdir() if each.suffix == ".pkl"]
    if len(files) != 1 or not files[0].with_suffix("").is_dir():
        raise UsageError(
            f"{folder}: must hold one .pkl file and its folder of arrays, but has "
            + (f"{len(files)} .pkl files" if len(files) != 1 else f"no folder {files[0].stem}")
        )
    return PtdbgPlace(files[0])


def _calls(place: PtdbgPlace) -> list[PtdbgCall]:
    dump = PtdbgDump(place.path.parent, [place])
    for process in dump.processes:
        if process.problem is not None:
            _log.warning("%s", process.problem)
    return list(dump.calls())


def _check_stacks(path: Path, calls: list[PtdbgCall], stacks: bool) -> None:
    has_stacks = any(call.has_stack for call in calls)
    if has_stacks and not stacks:
        raise UsageError(
            f"{path}: The current file contains stack information, please turn on the stack_mode"
        )
    if stacks and not has_stacks and calls:
        raise UsageError(
            f"{path}: The current file does not contain stack information, please turn off the "
            "stack_mode"
        )


def _rows(pair: CallPair, mine: PtdbgPlace, golden: PtdbgPlace) -> Iterator[PtdbgRow]:
    stack = "None"
    if pair.mine is not None and pair.mine.has_stack:
        stack = "\n".join(pair.mine.stack or ())
    for one, other in pair.items():
        yield make_row(_item(one, mine), _item(other, golden), stack)
        stack = "None"


def _item(value: PtdbgValue | None, place: PtdbgPlace) -> Item | None:
    if value is None:
        return None
    return value, ptdbg_tensor(value, 0, place.data_folder) if value.is_tensor else None


def _count(outcome: PtdbgOutcome, line: int, row: PtdbgRow) -> None:
    outcome.rows[row.accuracy] = outcome.rows.get(row.accuracy, 0) + 1
    if row.accuracy == NOT_REACHED and outcome.advice.line is None and row.mine is not None:
        name = row.mine.item
        text = advice_on(_dotted(row.mine), row.mine.role == "out")
        outcome.advice = Advice(line, name, text)


def _dotted(value: PtdbgValue) -> str:
    """``Tensor.permute.1.forward.input.0`` of ``Tensor_permute_1_forward_input.0``."""
    prefix, _, rest = value.record_name.partition("_")
    api, number, direction = (["", "", *rest.rsplit("_", 2)])[-3:]
    return f"{prefix}.{api}.{number}.{direction}.{value.label}"
