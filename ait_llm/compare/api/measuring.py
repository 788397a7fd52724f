"""Two files to rows, record by record, with real data measured on several threads."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from ait_llm.compare.api.colours import colour
from ait_llm.compare.api.item import NO_FILE, Item
from ait_llm.compare.api.manual_results import judge_manual
from ait_llm.compare.api.matching import Pair, match_by_name, match_by_table, match_fuzzily
from ait_llm.compare.api.reading import Places, read_side
from ait_llm.compare.api.real_data import (
    NO_BENCH_FILE,
    NO_NPU_FILE,
    UNMATCHED,
    UNSUPPORTED,
    RealData,
    compare_files,
    without_metrics,
)
from ait_llm.compare.api.release_results import judge_release
from ait_llm.compare.api.row import Row, make_row
from ait_llm.compare.api.settings import ApiOptions
from ait_llm.compare.api.sides import ApiPair, ApiSide
from ait_llm.compare.api.verdicts import judge_text
from ait_llm.errors import FormatError
from ait_llm.formats.opening import contained_file

_AHEAD = 64  # records that are measured while earlier ones are written


@contextlib.contextmanager
def rows_of(
    pair: ApiPair, options: ApiOptions, on_problem: Callable[[str], None]
) -> Iterator[Iterator[list[Row]]]:
    """Judged rows of each record of mine, in its order, then what only golden has.

    Reading begins with the block, in other processes where files are large.

    Args:
        pair: the files.
        options: settings of the user.
        on_problem: told of what could not be read, in a sentence.

    Raises:
        FormatError: a file is malformed.
        ReaderError: a process that reads one was killed.
    """
    apart = options.jobs > 1
    with (
        read_side(pair.mine, on_problem, apart=apart) as mine,
        read_side(pair.golden, on_problem, apart=apart) as golden,
    ):
        if options.fuzzy:
            groups = match_fuzzily(mine, golden)
        elif options.table:
            groups = match_by_table(mine, golden, options.table)
        else:
            groups = match_by_name(mine, golden, Places(pair.golden).items)
        with _measured(pair, groups, options) as measured:
            yield (_judged(rows, pair, options) for rows in measured)


def _judged(rows: list[Row], pair: ApiPair, options: ApiOptions) -> list[Row]:
    if options.style == "release":
        judge_release(rows, pair.mode)
    else:
        judge_manual(rows, pair.mode, fuzzy=options.fuzzy)
    if options.highlight:
        colour(rows, pair.mode)
    return rows


@contextlib.contextmanager
def _measured(
    pair: ApiPair, groups: Iterator[list[Pair]], options: ApiOptions
) -> Iterator[Iterator[list[Row]]]:
    if pair.mode != "tensor":
        yield (
            [make_row(each, pair.mode, None, options.tolerance) for each in group]
            for group in groups
        )
        return
    with ThreadPoolExecutor(options.jobs) as pool:
        try:
            yield _in_order(pool, pair, groups, options)
        finally:
            pool.shutdown(cancel_futures=True)


def _in_order(
    pool: ThreadPoolExecutor,
    pair: ApiPair,
    groups: Iterator[list[Pair]],
    options: ApiOptions,
) -> Iterator[list[Row]]:
    pending: deque[Future[list[Row]]] = deque()
    for group in groups:
        pending.append(pool.submit(_measure, pair, group, options))
        if len(pending) > _AHEAD:
            yield pending.popleft().result()
    while pending:
        yield pending.popleft().result()


def _measure(pair: ApiPair, group: list[Pair], options: ApiOptions) -> list[Row]:
    return [
        make_row(each, pair.mode, _real_data(pair, *each, options), options.tolerance)
        for each in group
    ]


def _real_data(
    pair: ApiPair, mine: Item | None, golden: Item | None, options: ApiOptions
) -> RealData:
    found = _found(pair, mine, golden, options)
    if len(found.custom) < len(options.custom):
        return replace(found, custom=(UNSUPPORTED,) * len(options.custom))
    return found


def _found(pair: ApiPair, mine: Item | None, golden: Item | None, options: ApiOptions) -> RealData:
    if mine is None or golden is None:
        return without_metrics(UNSUPPORTED, UNMATCHED)
    if mine.data_name == NO_FILE:
        return without_metrics(UNSUPPORTED, NO_NPU_FILE)
    if golden.data_name == NO_FILE:
        return without_metrics(UNSUPPORTED, NO_BENCH_FILE)
    try:
        files = value_file(pair.mine, mine), value_file(pair.golden, golden)
        found = compare_files(*files, options.custom, options.tolerance)
    except FormatError as error:
        return without_metrics(UNSUPPORTED, str(error))
    if mine.is_text and golden.is_text:
        return replace(found, judged=judge_text(*files))
    return found


def value_file(side: ApiSide, item: Item) -> Path:
    """The file of an item; a name that leads out of the folder of the data is refused."""
    folder = side.place.data_folder
    if "/" in item.data_name or "\\" in item.data_name or item.data_name in ("", ".", ".."):
        raise FormatError(side.place.path, f"names a file outside of its data: {item.data_name!r}")
    return Path(contained_file(folder / item.data_name, folder))
