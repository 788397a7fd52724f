"""Ranks compared in other processes; their tables travel as bytes and are written here."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ait_llm.compare.api.outcome import PairOutcome
from ait_llm.compare.api.row import Row
from ait_llm.compare.api.settings import ApiOptions
from ait_llm.compare.api.sides import ApiPair, pair_sides
from ait_llm.core.comparison import Verdict
from ait_llm.engine import Engine, Lost
from ait_llm.errors import FormatError
from ait_llm.report.files import replacing
from ait_llm.storage import address, local_path

ComparePair = Callable[..., PairOutcome]
OnRow = Callable[[Row], None]


@dataclass(frozen=True)
class ApiRequest:
    """A comparison, as far as a worker must know it.

    Attributes:
        mine, golden: paths or URLs as given.
        stamp: time in the names of the reports.
        options: settings of the user.
        formats: of the tables.
        with_rows: send every row home too.
    """

    mine: str
    golden: str
    stamp: str
    options: ApiOptions
    formats: Sequence[str]
    with_rows: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What a worker found.

    Attributes:
        outcome: its files have names only.
        contents: of the files.
        rows: all of them if they were asked for.
    """

    outcome: PairOutcome
    contents: list[bytes]
    rows: list[Row]


def compare_number(compare_pair: ComparePair, request: ApiRequest, number: int) -> Answer:
    """Compare one pair of files in this process.

    Raises:
        FormatError: there is no such pair here, or a file is malformed.
    """
    pairs = pair_sides(local_path(request.mine), local_path(request.golden)).pairs
    if number >= len(pairs):
        raise FormatError(request.mine, "has fewer ranks on the node that was to compare them")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="ait-compare-") as folder:
        outcome = compare_pair(
            pairs[number],
            Path(folder),
            request.stamp,
            replace(request.options, jobs=1),  # as many of us as there are processors
            request.formats,
            rows.append if request.with_rows else None,
        )
        contents = [path.read_bytes() for path in outcome.files]
    outcome.files = [Path(path.name) for path in outcome.files]
    return Answer(outcome, contents, rows)


def compare_elsewhere(
    pairs: Sequence[ApiPair],
    compare_pair: ComparePair,
    engine: Engine,
    mine: Path,
    golden: Path,
    output: Path,
    stamp: str,
    options: ApiOptions,
    formats: Sequence[str],
    on_row: OnRow | None,
) -> Iterator[PairOutcome]:
    """Compare all pairs with an engine, in their order; see ``compare_api_dumps``."""
    request = ApiRequest(
        address(mine), address(golden), stamp, options, tuple(formats), on_row is not None
    )
    work = partial(compare_number, compare_pair, request)
    roots = (request.mine, request.golden)
    waiting: dict[int, Answer | Lost] = {}
    following = 0
    with closing(engine.run(work, range(len(pairs)), roots=roots)) as results:
        for index, answer in results:
            waiting[index] = answer
            while following in waiting:
                found = waiting.pop(following)
                if isinstance(found, Lost):
                    yield _lost(pairs[following], found.reason)
                else:
                    yield _written(found, output, on_row)
                following += 1


def _written(answer: Answer, output: Path, on_row: OnRow | None) -> PairOutcome:
    outcome = answer.outcome
    outcome.files = [output / path.name for path in outcome.files]
    for path, content in zip(outcome.files, answer.contents, strict=True):
        with replacing(path, binary=True) as file:
            file.write(content)
    if on_row is not None:
        for row in answer.rows:
            on_row(row)
    return outcome


def _lost(pair: ApiPair, reason: str) -> PairOutcome:
    """A rank of which nothing was compared."""
    outcome = PairOutcome(pair.suffix, pair.mode)
    outcome.counts[Verdict.SKIPPED] += 1
    outcome.problems.append(f"was not compared: {reason}")
    return outcome
