"""Which layer of a model a tensor belongs to, as far as names tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ait_llm.core.comparison import TensorRecord


def layer_of(record: TensorRecord, names: Mapping[str, str]) -> str:
    """The layer that a tensor belongs to.

    Torch modules: the path down to its first number (``root.model.layers.3``), or the whole path.
    ATB operations: the top-level operation (``2``), with its type where ``names`` has it.
    Compiled graphs know no layers: the graph stands for one.
    """
    if record.graph:
        return record.graph
    if "." in record.op or record.op in names:
        parts = record.op.split(".")
        for place, part in enumerate(parts):
            if part.isdecimal():
                return ".".join(parts[: place + 1])
        return record.op
    if record.op_id:
        top = record.op_id.partition("_")[0]
        return names.get(top, top)
    return record.op


def layer_names(records: Iterable[TensorRecord]) -> dict[str, str]:
    """``{"2": "2 Prefill_layer"}`` for top-level ATB operations, and ``root`` of torch modules."""
    names: dict[str, str] = {}
    for record in records:
        if "." in record.op:
            names.setdefault(record.op.partition(".")[0], "")
        elif record.op_id.isdecimal():
            names.setdefault(record.op_id, f"{record.op_id} {record.op_type}".strip())
    return names
