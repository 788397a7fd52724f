"""A dump as a data frame, as a line and as a small table of HTML."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ait_llm.core import frames
from ait_llm.core.frames import MAYBE_WHOLE, REAL, SIZES, TEXT, WHOLE
from ait_llm.errors import FormatError

if TYPE_CHECKING:
    import pandas
    import pyarrow

    from ait_llm.dumps.model import Dump
    from ait_llm.dumps.operations import Operation
    from ait_llm.dumps.tensors import Tensor

_COLUMNS = {
    "device": MAYBE_WHOLE,
    "pid": WHOLE,
    "rank": MAYBE_WHOLE,
    "step": WHOLE,
    "op": TEXT,
    "op_id": TEXT,
    "op_type": TEXT,
    "call": WHOLE,
    "phase": TEXT,
    "role": TEXT,
    "index": WHOLE,
    "tensor": TEXT,
    "dtype": TEXT,
    "shape": SIZES,
    "min": REAL,
    "max": REAL,
    "mean": REAL,
    "l2norm": REAL,
    "nan": MAYBE_WHOLE,
    "inf": MAYBE_WHOLE,
    "path": TEXT,
    "problem": TEXT,
}
_NUMBERS = ("min", "max", "mean", "l2norm", "nan", "inf")


def frame_of(dump: Dump, *, statistics: bool) -> pandas.DataFrame:
    """One row for each tensor; see ``Dump.to_pandas``.

    Raises:
        MissingDependencyError: pandas is not installed.
    """
    return frames.to_pandas(_rows(dump, statistics=statistics), _COLUMNS, "a dump")


def arrow_of(dump: Dump, *, statistics: bool) -> pyarrow.Table:
    """The same as a table of Arrow.

    Raises:
        MissingDependencyError: pyarrow is not installed.
    """
    return frames.to_arrow(_rows(dump, statistics=statistics), _COLUMNS, "a dump")


def _rows(dump: Dump, *, statistics: bool) -> Iterator[dict[str, Any]]:
    for operation in dump.operations():
        for tensor in operation.tensors:
            yield _row(operation, tensor, statistics=statistics)


def _row(operation: Operation, tensor: Tensor, *, statistics: bool) -> dict[str, Any]:
    row: dict[str, Any] = {
        "device": operation.device if operation.device >= 0 else None,
        "pid": operation.pid,
        "rank": operation.rank if operation.rank >= 0 else None,
        "step": operation.step,
        "op": operation.name,
        "op_id": str(operation.op_id),
        "op_type": operation.type,
        "call": operation.call,
        "phase": tensor.phase,
        "role": tensor.role,
        "index": tensor.index,
        "tensor": tensor.name,
        "path": tensor.file,
        "dtype": "",
        "shape": None,
        "problem": "",
    }
    try:
        row["dtype"] = tensor.type_names[0]
        row["shape"] = list(tensor.shape)
        known = tensor.statistics if statistics else tensor.recorded_statistics
        row["problem"] = tensor.problem or ""
    except FormatError as error:
        return {**dict.fromkeys(_NUMBERS), **row, "problem": error.reason}
    return {name: getattr(known, name, None) for name in _NUMBERS} | row


def line_of(dump: Dump) -> str:
    """``<Dump of torch in /data/out/ait_dump: 1 process, steps 0 to 5>``."""
    return f"<Dump of {dump.kind} in {dump.root}: {', '.join(_facts(dump).values())}>"


def html_of(dump: Dump) -> str:
    """The same as a table."""
    return frames.html_table({"dump": dump.kind, "folder": str(dump.root)} | _facts(dump))


def _facts(dump: Dump) -> dict[str, str]:
    count, steps = len(dump.processes), dump.steps
    found = {"processes": f"{count} process{'' if count == 1 else 'es'}"}
    if len(steps) == 1:
        found["steps"] = f"step {steps[0]}"
    elif steps:
        found["steps"] = f"{len(steps)} steps, {steps[0]} to {steps[-1]}"
    unfinished = [each for each in dump.processes if each.state == "unfinished"]
    if unfinished:
        found["unfinished"] = f"{len(unfinished)} not finished"
    losses = sum(len(each.losses) for each in dump.processes)
    if losses:
        found["lost"] = f"{losses} losses"
    return found
