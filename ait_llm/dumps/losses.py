"""What a ledger and the folders beside it say is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Literal

from ait_llm.dumps.ledger import Ledger, LedgerEntry
from ait_llm.dumps.model import Loss


def find_losses(
    ledger: Ledger,
    present: Mapping[tuple[str, str], int],
    is_selected: Callable[[LedgerEntry], bool],
) -> Iterator[Loss]:
    """Losses that the capture noticed, then files that vanished after it.

    Args:
        ledger: the account of the capture.
        present: number of tensor files by ``(folder below tensors, phase)``.
        is_selected: whether an entry belongs to the part of the dump that is looked at.

    Raises:
        FormatError: the ledger is damaged.
    """
    for entry in filter(is_selected, ledger.losses):
        yield _loss(entry, "failed" if entry.state == "failed" else "dropped", entry.reason)
    # an operation that ran again at the same step replaced its files
    expected: dict[tuple[str, str], LedgerEntry] = {}
    for entry in filter(is_selected, ledger.entries()):
        expected[entry.path, entry.phase] = entry
    for place, entry in expected.items():
        files = present.get(place, 0)
        if files < entry.tensors:
            reason = f"the ledger says {entry.tensors} files, the folder has {files}"
            yield _loss(entry, "missing", reason, entry.tensors - files)


def _loss(
    entry: LedgerEntry,
    state: Literal["failed", "dropped", "missing"],
    reason: str,
    tensors: int | None = None,
) -> Loss:
    return Loss(
        op=entry.op,
        type=entry.type,
        step=entry.step,
        phase=entry.phase,
        state=state,
        tensors=entry.lost if tensors is None else tensors,
        reason=reason,
    )
