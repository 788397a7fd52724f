"""Taking over what an earlier, interrupted comparison has measured already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ait_llm.compare.pair import naming
from ait_llm.core.comparison import Comparison, TensorRecord, Verdict
from ait_llm.errors import UsageError
from ait_llm.match.model import Match
from ait_llm.match.views import describe
from ait_llm.report.jsonl import read_jsonl
from ait_llm.report.jsonl_records import plain
from ait_llm.storage import local_path

_Key = tuple[str, str, int, str, str, int, str, str]


class EarlierReport:
    """The measured pairs of an earlier report.

    A pair is taken over if both files still have the size and the time of last change that they had
    when they were measured, and the match asks for the same views.

    Args:
        path: a report that was written as jsonl.
        options: those of the present comparison; they must be the same.

    Raises:
        FormatError: the report cannot be read.
        UsageError: it was made with other options.
    """

    def __init__(self, path: Path | str, options: Mapping[str, Any]) -> None:
        report = read_jsonl(path)
        before, now = dict(report.options), plain(options)
        different = sorted(name for name in {*before, *now} if before.get(name) != now.get(name))
        if different:
            raise UsageError(
                f"{path} was made with other options ({', '.join(different)}); "
                "give the same ones, or compare without --resume"
            )
        self._measured: dict[_Key, Comparison] = {}
        for item in report.comparisons:
            measured = item.verdict in (Verdict.PASS, Verdict.FAIL) and item.stamp is not None
            if measured and item.golden is not None and item.mine is not None:
                key = (*_side(item.golden), *_side(item.mine), item.golden_view, item.my_view)
                self._measured[key] = item

    def __len__(self) -> int:
        return len(self._measured)

    def find(self, match: Match) -> Comparison | None:
        """What the earlier report says about a pair, None if it must be measured."""
        golden, mine = match.golden, match.mine
        if len(golden.tensors) > 1 or len(mine.tensors) > 1:
            return None  # a stamp tells of one file per side only
        key = (
            *_side(golden.record),
            *_side(mine.record),
            describe(golden.views),
            describe(mine.views),
        )
        found = self._measured.get(key)
        if found is None or found.stamp != _stamp(golden.record.path, mine.record.path):
            return None
        return replace(found, **naming(match))


def _side(record: TensorRecord) -> tuple[str, str, int]:
    return record.path, record.name, record.call


def _stamp(*paths: str) -> tuple[int, ...] | None:
    stamp: tuple[int, ...] = ()
    for path in paths:
        try:
            status = local_path(path).stat()
        except OSError:
            return None
        stamp += (status.st_size, status.st_mtime_ns)
    return stamp
