"""Operations that go wrong by themselves as the origin does, and not because of it."""

from __future__ import annotations

from collections.abc import Iterable

from ait_llm.core.comparison import Report, TensorRecord, Verdict


def wrong_as_the_origin(report: Report) -> list[str]:
    """Names of operations of the origin's pass whose inputs agree to the last bit and results fail.

    A fault in one place of a program is often one in others: the biases of q, k and v are lost
    together. What contains such an operation, or the origin, is left out. Later passes are, too:
    what they read of a cache is no input of theirs.
    """
    if not report.origins or not report.origins[0].certain:
        return []
    first = report.origins[0]
    pass_of_it = (first.device, first.pid, first.step)
    found: dict[str, TensorRecord] = {}
    for item in report.comparisons:
        record = item.record
        if record.role != "out" or (record.device, record.pid, record.step) != pass_of_it:
            continue
        if item.verdict is Verdict.FAIL and item.inherited == 0:
            found.setdefault(record.op, record)
    known = {origin.op for origin in report.origins}
    named = [*found, *known]
    ids = [*(each.op_id for each in found.values()), *(each.op_id for each in report.origins)]
    return [
        op
        for op, record in found.items()
        if op not in known
        and not _starts_any(f"{op}.", named)
        and not (record.op_id and _starts_any(f"{record.op_id}_", ids))
    ]


def _starts_any(start: str, texts: Iterable[str | None]) -> bool:
    return any(text is not None and text.startswith(start) for text in texts)
