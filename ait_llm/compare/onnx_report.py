"""The report as ONNX: the topology of my side with the results as metadata, for Netron."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ait_llm.core.comparison import Comparison, Origin, Report, Verdict
from ait_llm.core.optional import import_optional
from ait_llm.dumps import open_dump
from ait_llm.dumps.fx_place import find_fx_place
from ait_llm.errors import UsageError
from ait_llm.report.files import replacing
from ait_llm.report.operations import severity, verdict_of
from ait_llm.report.wording import headline, short, why_not
from ait_llm.report.writing import writers
from ait_llm.topology import topology_to_onnx
from ait_llm.topology.fx_graph import FILE_NAME as GRAPH

FORMAT = "onnx"
_FX = "fx"
MAX_STEPS = 100  # told one by one; Netron shows each as text


@dataclass(slots=True)
class _Findings:
    """What was found about one operation, over all steps."""

    items: list[Comparison] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Topology:
    """A graph file, and which records of a report speak of its nodes.

    Attributes:
        path: the file.
        name: what tells it from the others.
        owner: what the records say of the graph, see :func:`_findings`.
        key: which of its notes holds what a record calls a node by; empty for its name.
    """

    path: Path
    name: str
    owner: tuple[int, str]
    key: str = ""


@writers.register(FORMAT)
def write_onnx(report: Report, path: Path) -> Sequence[Path]:
    """Write each topology that my side reported, with the results at its nodes.

    Nodes get ``ait.verdict``, ``ait.error`` and more as metadata, and the verdict as their
    documentation. One file per model, or per top-level operation where no model was captured, or
    per compiled graph; the name of the topology is appended to ``path`` where there are several.

    Raises:
        UsageError: my side has no topology.
        MissingDependencyError: onnx is not installed.
    """
    onnx = import_optional("onnx", "writing onnx reports")
    files = _topologies(report)
    by_owner = _findings(report)
    written = []
    for file in files:
        target = path
        if len(files) > 1:
            target = path.with_name(f"{path.stem}_{file.name}{path.suffix}")
        topology_to_onnx(file.path, output=target)
        model = onnx.load(str(target))
        findings = by_owner.get(file.owner, {})
        for node in _nodes(model):
            ids = _note_of(node, file.key) if file.key else node.name
            if ids in findings:
                _annotate(node, report, findings[ids])
        model.metadata_props.add(key="ait.verdict", value=report.verdict.value)
        model.metadata_props.add(key="ait.golden", value=_utf8(report.golden.path))
        model.metadata_props.add(key="ait.mine", value=_utf8(report.mine.path))
        onnx.checker.check_model(model)
        with replacing(target, binary=True) as output:
            output.write(model.SerializeToString(deterministic=True))
        written.append(target)
    return written


def _topologies(report: Report) -> list[_Topology]:
    """Models of the processes that were compared, else their layers; or graphs of a capture."""
    if report.mine.kind == _FX:
        return _graphs(report)
    if report.mine.kind != "atb":
        raise UsageError(
            f"--format onnx shows a topology of ATB operations or of a compiled graph, and "
            f"{report.mine.path} is of kind {report.mine.kind}; leave onnx out of --format"
        )
    dump = open_dump(report.mine.path, "atb")
    pids = {item.mine.pid for item in report.comparisons if item.mine is not None}
    for files in (dump.models, dump.layers):
        if found := [file for file in files if file.pid in pids]:
            return [
                _Topology(file.path, f"{file.pid}_{file.name[:80]}", (file.pid, ""), "atb.ids")
                for file in found
            ]
    raise UsageError(
        f"{report.mine.path}: the dump holds no topology; capture my side with --type tensor layer "
        "model, or leave onnx out of --format"
    )


def _graphs(report: Report) -> list[_Topology]:
    """The graphs of an FX dump of which something was compared."""
    wanted = _findings(report).keys()
    place = find_fx_place(Path(report.mine.path))
    found: dict[tuple[int, str], _Topology] = {}
    for unit in place.units if place is not None else ():
        owner = unit.rank, f"graph_{unit.graph}"
        path = unit.folder.parent / GRAPH
        if owner in wanted and path.is_file():
            found[owner] = _Topology(path, f"rank{unit.rank}_graph_{unit.graph}", owner)
    if not found:
        raise UsageError(
            f"{report.mine.path}: the dump holds no {GRAPH} of a graph that was compared; leave "
            "onnx out of --format"
        )
    return list(found.values())


def _findings(report: Report) -> Mapping[tuple[int, str], Mapping[str, _Findings]]:
    """By process and operation id; of compiled graphs by rank and graph, and node."""
    result: dict[tuple[int, str], dict[str, _Findings]] = {}
    is_graph = report.mine.kind == _FX

    def at(owner: tuple[int, str], node: str) -> _Findings:
        return result.setdefault(owner, {}).setdefault(node, _Findings())

    for item in report.comparisons:
        mine = item.mine
        if mine is not None and is_graph:
            at((mine.device, mine.graph), mine.op).items.append(item)
        elif mine is not None and mine.op_id:
            at((mine.pid, ""), mine.op_id).items.append(item)
    for origin in report.origins:
        if is_graph:  # the id is the graph's number, and the place of the node in a run
            number = origin.op_id.partition("_")[0]
            at((origin.device, f"graph_{number}"), origin.op).origins.append(origin)
        elif origin.op_id:
            at((origin.pid, ""), origin.op_id).origins.append(origin)
    return result


def _nodes(model: Any) -> Iterator[Any]:  # NodeProto of onnx
    yield from model.graph.node
    for function in model.functions:
        yield from function.node


def _annotate(node: Any, report: Report, found: _Findings) -> None:
    """Write what was found into a node's metadata and documentation."""
    metric = headline(report.metrics)
    outputs = [item for item in found.items if item.record.role != "in"] or found.items
    lines = []
    if found.items:
        verdict = verdict_of(found.items)
        worst = max(
            (item for item in outputs if item.verdict is verdict),
            key=lambda item: severity(item, metric),
            default=outputs[0],
        )
        lines.append(verdict.value)
        _note(node, "ait.verdict", verdict.value)
        _note(node, "ait.reason", why_not(worst))
        if metric in worst.values:
            _note(node, f"ait.{metric}", short(worst.values[metric]))
        _note(node, "ait.golden", worst.golden.title if worst.golden else "")
        for limit, value in worst.tolerance.items():
            _note(node, f"ait.limit.{limit}", short(value))
        steps = [_step(item, metric) for item in outputs[:MAX_STEPS]]
        _note(node, "ait.tensors", "; ".join(steps))
        lines += [why_not(worst)] if verdict is not Verdict.PASS else []
    for origin in found.origins:
        lines.insert(0, f"the error starts here at token {origin.step}")
        _note(node, "ait.origin", f"token {origin.step}: {origin.evidence}")
    node.doc_string = _utf8(": ".join(filter(None, lines)))


def _step(item: Comparison, metric: str) -> str:
    """``token 0 outtensor0 PASS 0.0002``."""
    number = f" {short(item.values[metric])}" if metric in item.values else ""
    return f"token {item.record.step} {item.record.name} {item.verdict.value}{number}"


def _note(node: Any, key: str, value: str) -> None:
    if value:
        for prop in node.metadata_props:
            if prop.key == key:  # keys are unique: the later origin adds to the first
                prop.value += "; " + _utf8(value)
                return
        node.metadata_props.add(key=key, value=_utf8(value))


def _note_of(node: Any, key: str) -> str:
    return next((str(prop.value) for prop in node.metadata_props if prop.key == key), "")


def _utf8(text: str) -> str:
    """Text that protobuf takes: names of files may hold half characters."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
