"""Measuring many pairs: in parallel, in bounded memory, and so that it can be stopped."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass
from math import prod

from ait_llm.compare.error_split import operation_key, split_error
from ait_llm.compare.pair import Settings, compare_match, without_partner
from ait_llm.compare.progress import Progress, ProgressCallback, Stopped
from ait_llm.compare.resume import EarlierReport
from ait_llm.core.comparison import Comparison, TensorRecord, Verdict
from ait_llm.match.model import Match, Unmatched

MAX_JOBS = 64
# A batch is one task of a thread: enough to make handing it over cheap, few enough that all
# threads stay busy to the end.
_BATCH_BYTES = 16 << 20
_BATCH_PAIRS = 128
_POLL_SECONDS = 0.2  # how long a signal waits at most where threads swallow it


@contextmanager
def without_full_collections() -> Iterator[None]:
    """Keep Python from searching all objects for cycles each time their number has grown.

    Hundreds of thousands of records are made here, none of them in a cycle; looking through them
    again and again takes a quarter of the time. :func:`measure_all` looks at young ones itself.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


Item = Match | Unmatched
Results = list[tuple[int, Comparison]]


@dataclass(frozen=True, slots=True)
class _Batch:
    """Consecutive items: place of the first, and the items operation by operation."""

    operations: tuple[tuple[int, tuple[Item, ...]], ...]
    pairs: int
    bytes: int

    def match(self, place: int) -> Match:
        """The match at a place of the report."""
        found = next(
            items[place - first]
            for first, items in self.operations
            if first <= place < first + len(items)
        )
        assert isinstance(found, Match)
        return found


@dataclass(frozen=True, slots=True)
class Measured:
    """What came of the work.

    Attributes:
        comparisons: in the order of the items; None for what was not reached before a stop.
        failed: the matches that failed, by place.
    """

    comparisons: list[Comparison | None]
    failed: dict[int, Match]


def default_jobs() -> int:
    """One thread for each processor that this process may use."""
    return min(len(os.sched_getaffinity(0)), MAX_JOBS)


def measure_all(
    items: list[Item],
    settings: Settings,
    *,
    jobs: int,
    earlier: EarlierReport | None = None,
    on_comparison: Callable[[int, Comparison], None] | None = None,
    on_progress: ProgressCallback | None = None,
) -> Measured:
    """Compare all items.

    Args:
        items: in the order of the report; the list is emptied while it is worked off.
        settings: of all pairs; when its ``stop`` is set, finished comparisons are returned.
        jobs: threads.
        earlier: where to take finished pairs from.
        on_comparison: called in this thread with the place in ``items`` of each comparison as it
            is finished, in any order.
        on_progress: called in this thread.

    A KeyboardInterrupt stops the work like ``settings.stop``, which is set afterwards.
    """
    found: list[Comparison | None] = [None] * len(items)
    failed: dict[int, Match] = {}
    batches = list(_batches(items))
    items.clear()
    total_pairs = sum(batch.pairs for batch in batches)
    total_bytes = sum(batch.bytes for batch in batches)
    done_pairs = done_bytes = resumed = 0

    def work(batch: _Batch) -> tuple[_Batch, Results, int]:
        return batch, *_compare_batch(batch, settings, earlier)

    try:
        with closing(_in_parallel(work, batches, jobs, settings)) as finished:
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
                gc.collect(0)
                if on_progress is not None:
                    on_progress(Progress(done_pairs, total_pairs, done_bytes, total_bytes, resumed))
    except KeyboardInterrupt:
        settings.stop.set()
    return Measured(found, failed)


def _is_pair(comparison: Comparison) -> bool:
    return comparison.golden is not None and comparison.mine is not None


def _in_parallel(
    work: Callable[[_Batch], tuple[_Batch, Results, int]],
    batches: list[_Batch],
    jobs: int,
    settings: Settings,
) -> Generator[tuple[_Batch, Results, int], None, None]:
    """Results of all batches as they come; after a stop only those already under way."""
    if jobs <= 1 or len(batches) <= 1:
        while batches and not settings.stop.is_set():
            yield work(batches.pop(0))
        return
    batches.reverse()
    with ThreadPoolExecutor(jobs, thread_name_prefix="ait-compare") as pool:
        running: set[Future[tuple[_Batch, Results, int]]] = set()
        try:
            while running or (batches and not settings.stop.is_set()):
                while batches and len(running) < 2 * jobs and not settings.stop.is_set():
                    running.add(pool.submit(work, batches.pop()))
                done, running = wait(running, _POLL_SECONDS, FIRST_COMPLETED)
                for future in done:
                    yield future.result()
        except BaseException:
            settings.stop.set()  # threads end at their next block
            raise


def _compare_batch(
    batch: _Batch, settings: Settings, earlier: EarlierReport | None
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
                comparisons.append(compare_match(item, settings))
            except Stopped:
                break
        results += enumerate(split_error(comparisons), first)
        if settings.stop.is_set():
            break
    return results, taken_over


def _batches(items: Sequence[Item]) -> Iterator[_Batch]:
    operations: list[tuple[int, tuple[Item, ...]]] = []
    pairs = size = 0
    for first, operation in _operations(items):
        operations.append((first, operation))
        matches = [item for item in operation if isinstance(item, Match)]
        pairs += len(matches)
        size += sum(map(_bytes_of, matches))
        if size >= _BATCH_BYTES or pairs >= _BATCH_PAIRS:
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
