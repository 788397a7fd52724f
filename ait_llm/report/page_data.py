"""What the HTML page knows: a report as compact JSON, each text stored once.

``page/data.js`` reads it back; the order of the arrays is the contract between the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ait_llm import __version__
from ait_llm.core.closeup import Closeup
from ait_llm.core.comparison import (
    HISTOGRAM_EDGES,
    Comparison,
    Report,
    SideSummary,
    TensorRecord,
    Verdict,
)
from ait_llm.core.dataflow import Dataflow
from ait_llm.core.error_ledger import ranked
from ait_llm.language import translate
from ait_llm.report.jsonl_records import number, plain
from ait_llm.report.ledger_table import layer_of_row, ledger_layers
from ait_llm.report.operations import (
    WORST_FIRST,
    CalledOperation,
    called_operations,
    not_compared,
)
from ait_llm.report.page_compact import Differences, Texts, rounded
from ait_llm.report.page_words import page_words
from ait_llm.report.relation import SAME, relation_of
from ait_llm.report.wording import dtype_text, headline, path_text, shape_text, why_not

VERDICTS = (Verdict.PASS, Verdict.FAIL, Verdict.SKIPPED, Verdict.ERROR)
MAX_LEDGER = 50_000
MAX_ROWS = 200_000  # a browser holds about this many; more are left out, PASS first

Json = Any  # one JSON value


def page_data(report: Report, *, max_rows: int = MAX_ROWS) -> Json:
    """The report in JSON types.

    Args:
        report: what to show.
        max_rows: comparisons to keep; where there are more, those that pass are left out first,
            then those that were not compared.
    """
    texts = Texts()
    kept = _kept(report, max_rows)
    operations = [
        (operation, [index for index in operation.indices if index in kept])
        for operation in called_operations(report)
    ]
    operations = [(operation, indices) for operation, indices in operations if indices]
    rows: list[Json] = []
    places: dict[int, int] = {}  # of comparisons among the rows
    ranks_of_golden, ranks_of_mine = Differences(), Differences()
    golden = (each.golden for each in report.comparisons if each.golden is not None)
    processes = {each: place for place, each in enumerate(dict.fromkeys(map(_process, golden)))}
    for number_, (_, indices) in enumerate(operations):
        for index in indices:
            places[index] = len(rows)
            item = report.comparisons[index]
            order = ranks_of_golden.of(item.golden)
            rows.append([number_, index, *_row(report, texts, processes, item, order)])
    data = {
        "meta": {
            "tool": f"ait-llm {__version__}",
            "scenario": report.scenario,
            "golden": plain_side(report.golden.path, report.golden.kind),
            "mine": plain_side(report.mine.path, report.mine.kind),
            "verdict": report.verdict.value,
            "partial": report.partial,
            "left_out": len(report.comparisons) - len(rows),
            "options": plain(report.options),
        },
        "words": page_words(),
        "same": translate(SAME),
        "verdicts": [verdict.value for verdict in VERDICTS],
        "metrics": list(report.metrics),
        "headline": headline(report.metrics),
        "edges": list(HISTOGRAM_EDGES),
        "operations": [
            [*_operation(texts, operation), ranks_of_mine.of(operation.record)]
            for operation, _ in operations
        ],
        "rows": rows,
        "golden_processes": list(processes),
        "origins": [
            {
                "row": places.get(item.index) if item.index is not None else None,
                "op": item.op,
                "op_id": item.op_id,
                "step": item.step,
                "device": item.device,
                "pid": item.pid,
                "golden_op": item.golden_op,
                "evidence": translate(item.evidence),
                "certain": item.certain,
                "candidates": list(item.candidates),
                "kind": translate(item.kind),
                "kind_evidence": translate(item.kind_evidence),
            }
            for item in report.origins
        ],
        "flows": [_flow(texts, item) for item in report.flows],
        "ledger": _ledger(report, texts, places),
        "closeups": [
            _closeup(item, places[item.index]) for item in report.closeups if item.index in places
        ],
        "not_compared": [
            [translate(reason), count, example.verdict.value, example.record.title]
            for reason, count, example in not_compared(report)
        ],
        "problems": [[item.side, translate(item.text), item.decides] for item in report.problems],
    }
    data["texts"] = texts.values
    return data


def _ledger(report: Report, texts: Texts, places: Mapping[int, int]) -> list[Json]:
    """The error ledger, the worst first, as far as there is room."""
    if not report.ledger:
        return []
    layers = ledger_layers(report)
    return [
        [
            texts.text(row.op),
            texts.text(row.op_id),
            row.step,
            texts.text(row.output),
            texts.text(layer_of_row(row, layers)),
            rounded(row.introduced),
            rounded(row.inherited),
            rounded(row.total),
            rounded(row.excess),
            None if row.index is None else places.get(row.index),
            texts.message(row.reason),
            row.order,
        ]
        for row in ranked(report.ledger)[:MAX_LEDGER]
    ]


def _flow(texts: Texts, item: Dataflow) -> Json:
    """The edges of a pass; those of all its steps are mostly the same, and stored once.

    Places are told by how far back they are: 0 is nowhere.
    """
    parents = [0 if parent < 0 else place - parent for place, parent in enumerate(item.parents)]
    reads = [[place - each for each in places] for place, places in enumerate(item.reads)]
    unwritten = [place for place, is_so in enumerate(item.unwritten) if is_so]
    edges = texts.value((item.parents, item.reads, item.unwritten), [parents, reads, unwritten])
    return [int(item.side == "mine"), item.device, item.pid, item.first_order, edges]


def _translated(mapping: Mapping[str, str]) -> Mapping[str, str]:
    return {key: translate(text) for key, text in mapping.items()}


def _closeup(item: Closeup, row: int) -> Json:
    """A closeup, with the numbers of its windows as they are printed."""
    windows = ([_short(value) for value in side] for side in (item.golden_windows, item.my_windows))
    return [
        row,
        list(item.shape),
        list(item.cells),
        item.errors,
        rounded(item.low),
        rounded(item.high),
        list(item.golden_counts),
        list(item.my_counts),
        list(item.worst),
        *windows,
    ]


def _short(value: float) -> Json:
    return number(float(f"{value:.5g}"))


def plain_side(path: str, kind: str) -> Json:
    """One side of the comparison."""
    return {"path": path, "kind": kind}


def _kept(report: Report, max_rows: int) -> set[int]:
    """The comparisons with room on the page: what did not pass comes first."""
    count = len(report.comparisons)
    if count <= max_rows:
        return set(range(count))
    order = sorted(
        range(count), key=lambda index: WORST_FIRST.index(report.comparisons[index].verdict)
    )  # stable: execution order among equals
    return set(order[:max_rows])


def _operation(texts: Texts, operation: CalledOperation) -> Json:
    record = operation.record
    return [
        texts.text(record.op),
        texts.text(record.op_id),
        texts.text(record.op_type),
        record.step,
        record.call,
        record.device,
        record.pid,
        texts.text(operation.layer),
        VERDICTS.index(operation.verdict),
        int(operation.mine),
    ]


def _row(
    report: Report,
    texts: Texts,
    processes: Mapping[tuple[int, int], int],
    item: Comparison,
    order: int | None,
) -> list[Json]:
    record = item.record
    golden = item.golden
    return [
        texts.text(record.name),
        texts.text(record.label),
        texts.text(record.role),
        VERDICTS.index(item.verdict),
        texts.message(why_not(item)),
        texts.text(golden.title if golden else ""),
        texts.text(item.rule),
        rounded(item.confidence),
        texts.message(item.why),
        _side(texts, golden, item.golden_view, item.golden_summary),
        _side(texts, item.mine, item.my_view, item.my_summary),
        [rounded(item.values.get(name)) for name in report.metrics],
        texts.mapping(_translated(item.missing)) if item.missing else 0,
        texts.mapping(item.tolerance) if item.tolerance else 0,
        {name: rounded(value) for name, value in item.needed.items()} or 0,
        _list(item.worst),
        [rounded(value) for value in item.worst_values] if item.worst_values else 0,
        _list(item.first_bad),
        rounded(item.inherited),
        rounded(item.introduced),
        _list(item.histogram),
        texts.text(golden.op if golden else ""),
        texts.text(_own_name(golden) if golden else ""),
        order,
        texts.message(relation_of(item)),
        # golden's process, of which there is mostly one, the first
        *([process] if (process := processes.get(_process(golden), 0)) else []),
    ]


def _process(record: TensorRecord | None) -> tuple[int, int]:
    return (-1, -1) if record is None else (record.device, record.pid)


def _own_name(record: TensorRecord) -> str:
    """The operator's own name for a tensor, if it is more than a place."""
    return record.name if not record.label or record.label.isdecimal() else record.label


def _side(
    texts: Texts, record: TensorRecord | None, view: str, summary: SideSummary | None
) -> Json:
    if record is None:
        return 0
    result: list[Json] = [
        texts.text(dtype_text(record.dtype)),
        texts.text(shape_text(record.shape)),
        texts.text(path_text(record)),
        texts.text(view),
    ]
    if summary is not None:
        values = (summary.max, summary.min, summary.mean, summary.norm)
        result += [*map(rounded, values), summary.nan, summary.inf]
    return result


def _list(values: Iterable[int] | None) -> Json:
    return 0 if values is None else list(values)
