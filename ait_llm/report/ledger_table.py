"""The error ledger as a table: ``ait_cmp_ledger_{time}.csv``, the worst operator first."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from ait_llm.core.comparison import Report
from ait_llm.core.error_ledger import LedgerRow, ranked
from ait_llm.report.csv_table import safe_cell
from ait_llm.report.files import make_folder, replacing
from ait_llm.report.operations import called_operations
from ait_llm.report.wording import counted, short

COLUMNS = (
    *("rank", "token_id", "data_id", "device_id", "process_id", "layer", "op", "op_id", "op_type"),
    *("output", "introduced", "inherited", "total", "excess", "verdict", "reason"),
)
_NAMED = 3  # operators in the sentence of the terminal


def ledger_path(folder: Path, stamp: str) -> Path:
    """``{folder}/ait_cmp_ledger_{stamp}.csv``."""
    return folder / f"ait_cmp_ledger_{stamp}.csv"


def write_ledger(report: Report, path: Path) -> Sequence[Path]:
    """Write the ledger of a report: ranked rows, then operators that were not computed again.

    Raises:
        UsageError: the file cannot be written.
    """
    make_folder(path.parent)
    layers = ledger_layers(report)
    with replacing(path) as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for rank, row in enumerate(ranked(report.ledger), 1):
            table.writerow(_cells(str(rank), row, layers))
        for row in report.ledger:
            if not row.is_known:
                table.writerow(_cells("", row, layers))
    return (path,)


def ledger_verdict(row: LedgerRow) -> str:
    """``PASS`` within its contract, ``FAIL`` beyond it, ``SKIPPED`` where it is not known."""
    return "FAIL" if row.is_beyond else "PASS" if row.is_known else "SKIPPED"


def ledger_layers(report: Report) -> dict[tuple[int, int, int, str], str]:
    """The layers of operators, by device, process, execution count and id."""
    return {
        (each.record.device, each.record.pid, each.record.step, each.record.op_id): each.layer
        for each in called_operations(report)
        if each.mine
    }


def layer_of_row(row: LedgerRow, layers: dict[tuple[int, int, int, str], str]) -> str:
    """The layer of a row: that of its operator, else the top-level operation of its id."""
    found = layers.get((row.device, row.pid, row.step, row.op_id))
    return found if found is not None else row.op_id.partition("_")[0]


def ledger_sentence(report: Report) -> str:
    """Who introduced more than is allowed, in one sentence; empty without a ledger."""
    if not report.ledger:
        return ""
    rows = ranked(report.ledger)
    operators = counted(len({(row.op, row.step, row.device, row.pid) for row in rows}), "operator")
    unknown = sum(not row.is_known for row in report.ledger)
    rest = f"; {unknown} could not be computed again" if unknown else ""
    beyond = [row for row in rows if row.is_beyond]
    if not beyond:
        within = "none introduces more than its contract allows"
        return f"{operators} computed again from their own inputs: {within}{rest}"
    names = ", ".join(f"{row.op} token {row.step} ({_times(row)})" for row in beyond[:_NAMED])
    more = f" and {len(beyond) - _NAMED} more" if len(beyond) > _NAMED else ""
    return f"of {operators}, beyond their contract: {names}{more}{rest}"


def _times(row: LedgerRow) -> str:
    introduced = "" if row.introduced is None else f"introduces {short(row.introduced)}"
    if row.excess is None or row.excess == float("inf"):
        return introduced or "not finite"
    return f"{introduced}, {row.excess:.3g} times what is allowed".removeprefix(", ")


def _cells(rank: str, row: LedgerRow, layers: dict[tuple[int, int, int, str], str]) -> list[str]:
    return [
        rank,
        str(row.step),
        "" if row.index is None else str(row.index),
        str(row.device),
        str(row.pid),
        safe_cell(layer_of_row(row, layers)),
        safe_cell(row.op),
        row.op_id,
        safe_cell(row.op_type),
        row.output,
        *("" if v is None else repr(v) for v in _numbers(row)),
        ledger_verdict(row),
        safe_cell(row.reason),
    ]


def _numbers(row: LedgerRow) -> tuple[float | None, ...]:
    return row.introduced, row.inherited, row.total, row.excess
