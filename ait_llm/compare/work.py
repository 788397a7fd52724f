"""Measuring many pairs: in parallel, in bounded memory, and so that it can be stopped."""

from __future__ import annotations

import gc
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from operator import itemgetter
from pathlib import Path

from ait_llm.compare.pair import (
    Settings,
    comparison_of,
    naming,
    shared,
    without_partner,
)
from ait_llm.compare.progress import Progress, ProgressCallback, Stopped
from ait_llm.compare.remote import OTHER_FILES, Request, is_about, measure_places, places_of
from ait_llm.compare.repeated import Repeated
from ait_llm.compare.resume import EarlierReport
from ait_llm.core.comparison import Comparison, TensorRecord, Verdict
from ait_llm.engine import Engine, LocalEngine, Lost
from ait_llm.judge.shares import operation_key, split_error
from ait_llm.match.model import Match, Unmatched
from ait_llm.storage import is_staging, prefetch

# A batch is one task of a thread: enough to make handing it over cheap, few enough that all
# threads stay busy to the end.
_BATCH_BYTES = 16 << 20
_BATCH_PAIRS = 128
# To another process handing over costs more. Where there is little it is cut finer than this.
_REMOTE_BYTES = 256 << 20
_REMOTE_PAIRS = 4096
_UNITS_PER_SLOT = 16
# After measuring so much, what errors left in cycles is looked for: they hold on to values.
_COLLECTED_BYTES = 64 << 20


Item = Match | Unmatched
Results = list[tuple[int, Comparison]]


@dataclass(frozen=True, slots=True)
class _Batch:
    """Consecutive items: place of the first, and the items operation by operation."""

    operations: tuple[tuple[int, tuple[Item, ...]], ...]
    pairs: int
    bytes: int

    def items(self) -> Iterator[tuple[int, Item]]:
        """Each item with its place in the report."""
        for first, operation in self.operations:
            yield from enumerate(operation, first)

    def match(self, place: int) -> Match:
        """The match at a place of the report."""
        number = bisect_right(self.operations, place, key=itemgetter(0)) - 1
        first, items = self.operations[number]
        found = items[place - first]
        assert isinstance(found, Match)
        return found


_Outcome = tuple[_Batch, Results, int]


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Other processes to measure in.

    Attributes:
        engine: has them.
        request: what they must know.
        sources: number of the pass and place among its matches, of each item.
    """

    engine: Engine
    request: Request
    sources: Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of the work.

    Attributes:
        comparisons: in the order of the items; None for what was not reached before a stop.
        failed: the matches that failed, by place.
    """

    comparisons: list[Comparison | None]
    failed: dict[int, Match]


def measure_all(
    items: list[Item],
    settings: Settings,
    *,
    jobs: int,
    elsewhere: Elsewhere | None = None,
    earlier: EarlierReport | None = None,
    on_comparison: Callable[[int, Comparison], None] | None = None,
    on_progress: ProgressCallback | None = None,
) -> Measured:
    """Compare all items.

    Args:
        items: in the order of the report; the list is emptied while it is worked off.
        settings: of all pairs; when its ``stop`` is set, finished comparisons are returned.
        jobs: threads.
        elsewhere: to measure in other processes instead.
        earlier: where to take finished pairs from.
        on_comparison: called in this thread with the place in ``items`` of each comparison as it
            is finished, in any order.
        on_progress: called in this thread.

    A KeyboardInterrupt stops the work like ``settings.stop``, which is set afterwards.
    """
    found: list[Comparison | None] = [None] * len(items)
    failed: dict[int, Match] = {}
    slots = None if elsewhere is None else elsewhere.engine.slots
    batches = list(_batches(items, *_limits(items, slots)))
    items.clear()
    total_pairs = sum(batch.pairs for batch in batches)
    total_bytes = sum(batch.bytes for batch in batches)
    done_pairs = done_bytes = resumed = since = 0

    if elsewhere is None:
        outcomes = _here(batches, settings, earlier, jobs)
    else:
        outcomes = _there(batches, settings, earlier, elsewhere)
    try:
        with closing(outcomes) as finished:
            for batch, results, taken_over in finished:
                for place, comparison in results:
                    found[place] = comparison
                    if comparison.verdict is Verdict.FAIL:
                        failed[place] = batch.match(place)
                    if on_comparison is not None:
                        on_comparison(place, comparison)
                done_pairs += sum(_is_pair(comparison) for _, comparison in results)
                done_bytes += batch.bytes
                resumed += taken_over
                if (since := since + batch.bytes) >= _COLLECTED_BYTES:
                    since = 0
                    gc.collect(0)
                if on_progress is not None:
                    on_progress(Progress(done_pairs, total_pairs, done_bytes, total_bytes, resumed))
    except KeyboardInterrupt:
        settings.stop.set()
    return Measured(found, failed)


def _is_pair(comparison: Comparison) -> bool:
    return comparison.golden is not None and comparison.mine is not None


def _here(
    batches: list[_Batch], settings: Settings, earlier: EarlierReport | None, jobs: int
) -> Generator[_Outcome, None, None]:
    """Batches measured in threads as they come; after a stop only those already under way."""

    ahead = _files_ahead(batches) if is_staging() else {}
    repeated = Repeated()

    def work(batch: _Batch) -> _Outcome:
        prefetch(ahead.pop(batch.operations[0][0], ()))
        return batch, *_compare_batch(batch, settings, earlier, repeated)

    engine = LocalEngine(jobs, "ait-compare")
    with closing(engine.run(work, batches, stop=settings.stop)) as results:
        for _, outcome in results:
            assert not isinstance(outcome, Lost)  # threads of this process do not get lost
            yield outcome


def _files_ahead(batches: Sequence[_Batch]) -> dict[int, list[Path]]:
    """Files of each batch and of the next one, by the first place of the batch."""
    files = [
        [
            tensor.path
            for _, item in batch.items()
            if isinstance(item, Match)
            for side in (item.golden, item.mine)
            for tensor in side.tensors
        ]
        for batch in batches
    ]
    return {
        batch.operations[0][0]: own + following
        for batch, own, following in zip(batches, files, [*files[1:], []], strict=True)
    }


def _there(
    batches: list[_Batch],
    settings: Settings,
    earlier: EarlierReport | None,
    elsewhere: Elsewhere,
) -> Generator[_Outcome, None, None]:
    """Batches of which other processes measure what must be measured, as they come."""
    asked: list[tuple[_Batch, dict[int, Comparison], list[int], int]] = []
    units = []
    for batch in batches:
        known: dict[int, Comparison] = {}
        missing: list[int] = []
        taken_over = 0
        for place, item in batch.items():
            if isinstance(item, Unmatched):
                known[place] = without_partner(item)
            elif earlier is not None and (found := earlier.find(item)) is not None:
                known[place] = found
                taken_over += 1
            else:
                missing.append(place)
        if missing:
            asked.append((batch, known, missing, taken_over))
            units.append(places_of([elsewhere.sources[place] for place in missing]))
        else:
            yield batch, _split(batch, known), taken_over
    batches.clear()
    work = partial(measure_places, elsewhere.request)
    roots = elsewhere.request.roots
    running = elsewhere.engine.run(work, units, roots=roots, stop=settings.stop)
    with closing(running) as results:
        for index, answer in results:
            batch, known, missing, taken_over = asked[index]
            for number, place in enumerate(missing):
                match = batch.match(place)
                if isinstance(answer, Lost):
                    known[place] = comparison_of(match, Verdict.SKIPPED, answer.reason)
                else:
                    known[place] = _received(match, answer[number])
            yield batch, _split(batch, known), taken_over


def _received(match: Match, found: Comparison | None) -> Comparison:
    """A comparison from another process under the names of this one."""
    if found is None or not is_about(found, match):
        return comparison_of(match, Verdict.ERROR, OTHER_FILES)
    return replace(
        found,
        **naming(match),
        missing=shared(found.missing),
        tolerance=shared(found.tolerance),
    )


def _split(batch: _Batch, known: Mapping[int, Comparison]) -> Results:
    results: Results = []
    for first, operation in batch.operations:
        places = range(first, first + len(operation))
        results += enumerate(split_error([known[place] for place in places]), first)
    return results


def _compare_batch(
    batch: _Batch, settings: Settings, earlier: EarlierReport | None, repeated: Repeated
) -> tuple[Results, int]:
    results: Results = []
    taken_over = 0
    for first, operation in batch.operations:
        comparisons: list[Comparison] = []
        for item in operation:
            if settings.stop.is_set():
                break
            if isinstance(item, Unmatched):
                comparisons.append(without_partner(item))
                continue
            known = earlier.find(item) if earlier is not None else None
            if known is not None:
                comparisons.append(known)
                taken_over += 1
                continue
            try:
                comparisons.append(repeated.compare(item, settings))
            except Stopped:
                break
        results += enumerate(split_error(comparisons), first)
        if settings.stop.is_set():
            break
    return results, taken_over


def _limits(items: Sequence[Item], slots: int | None) -> tuple[int, int]:
    """Bytes and pairs of a batch: for threads, or for other processes that compute ``slots``."""
    if slots is None:
        return _BATCH_BYTES, _BATCH_PAIRS
    matches = [item for item in items if isinstance(item, Match)]
    units = slots * _UNITS_PER_SLOT
    size = sum(map(_bytes_of, matches)) // units
    return (
        min(max(size, _BATCH_BYTES), _REMOTE_BYTES),
        min(max(len(matches) // units, _BATCH_PAIRS), _REMOTE_PAIRS),
    )


def _batches(items: Sequence[Item], max_bytes: int, max_pairs: int) -> Iterator[_Batch]:
    operations: list[tuple[int, tuple[Item, ...]]] = []
    pairs = size = 0
    for first, operation in _operations(items):
        operations.append((first, operation))
        matches = [item for item in operation if isinstance(item, Match)]
        pairs += len(matches)
        size += sum(map(_bytes_of, matches))
        if size >= max_bytes or pairs >= max_pairs:
            yield _Batch(tuple(operations), pairs, size)
            operations, pairs, size = [], 0, 0
    if operations:
        yield _Batch(tuple(operations), pairs, size)


def _operations(items: Sequence[Item]) -> Iterator[tuple[int, tuple[Item, ...]]]:
    """Place of the first and items of each operation of mine; others one by one.

    Others are golden ones without a partner, and tensors of files and weights: a single file may
    hold thousands.
    """
    first = 0
    while first < len(items):
        last = first + 1
        record = _my_record(items[first])
        if record is not None and record.role in ("in", "out"):
            key = operation_key(record)
            while last < len(items):
                following = _my_record(items[last])
                if following is None or operation_key(following) != key:
                    break
                last += 1
        yield first, tuple(items[first:last])
        first = last


def _my_record(item: Item) -> TensorRecord | None:
    if isinstance(item, Match):
        return item.mine.record
    return item.record if item.side == "mine" else None


def _bytes_of(match: Match) -> int:
    """Bytes of both sides, as far as their headers tell."""
    return sum(
        side.record.dtype.byte_count(prod(side.record.shape))
        for side in (match.golden, match.mine)
        if side.record.dtype is not None and side.record.shape is not None
    )
