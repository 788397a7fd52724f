"""Origins that a search names itself, without a comparison that does."""

from __future__ import annotations

from ait_llm.core.comparison import Origin
from ait_llm.dumps.model import Operation


def origin_at(
    operation: Operation, evidence: str, *, kind: str = "", certain: bool = True, golden: str = ""
) -> Origin:
    """An operation of mine as an origin.

    Args:
        operation: that is named.
        evidence, kind, certain: as in :class:`Origin`.
        golden: name of its counterpart.
    """
    return Origin(
        operation.name,
        str(operation.op_id),
        operation.type,
        operation.step,
        operation.device,
        operation.pid,
        golden_op=golden,
        evidence=evidence,
        certain=certain,
        kind=kind,
    )
