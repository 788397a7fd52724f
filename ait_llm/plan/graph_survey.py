"""What compiled graphs would leave: files of the right length without data, and their sizes."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ait_llm.core import StepRange
from ait_llm.dump.inject.settings import TorchSettings
from ait_llm.errors import FormatError
from ait_llm.plan.amounts import DEFAULT_BLOCK, Estimate
from ait_llm.plan.steps import count_of, weights_of

_FILE = re.compile(r"(?P<stem>.+)\.(?P<side>INPUT|OUTPUT)\.[0-9.]+\.[0-9]{20}\.npy", re.DOTALL)


@dataclass(frozen=True, slots=True)
class GraphFile:
    """A tensor file, which may have several names.

    Attributes:
        graph: folder of the graph, below ``fx_tensors``.
        step: execution of the graph.
        stem: name and target of the node or kernel.
        is_input: it is an input.
        inode: the same for all names of one file.
        bytes: length of the file.
    """

    graph: str
    step: int
    stem: str
    is_input: bool
    inode: int
    bytes: int


@dataclass(slots=True)
class GraphSurvey:
    """What is known of the compiled graphs of a program.

    Attributes:
        files: of the executions that were looked at, in the order of their times.
        executions: how often each graph ran, by folder.
        described: sizes of the files that describe the graphs.
        lines: bytes of lines of ledgers by graph, execution and node.
        frame: bytes of the other lines, by ledger.
        sources: what each kernel of Inductor fused, by graph and stem: nodes and their targets.
    """

    files: list[GraphFile] = field(default_factory=list)
    executions: dict[str, int] = field(default_factory=dict)
    described: list[int] = field(default_factory=list)
    lines: dict[tuple[str, int, str], int] = field(default_factory=dict)
    frame: list[int] = field(default_factory=list)
    sources: dict[tuple[str, str], list[tuple[str, str]]] = field(default_factory=dict)


def read_graph_survey(folder: Path) -> GraphSurvey:
    """Read what a run left below ``folder/ait_dump``.

    Raises:
        FormatError: nothing was captured, or it is damaged.
    """
    root = folder / "ait_dump"
    tensors = root / "fx_tensors"
    survey = GraphSurvey()
    for graph in sorted(tensors.glob("*/graph_*")):
        name = str(graph.relative_to(tensors))
        for path in sorted(graph.glob("*.json")):
            survey.described.append(path.stat().st_size)
        _read_sources(survey, name, graph)
        for step in sorted(graph.iterdir()):
            if step.name.isdecimal():
                survey.files += _files(name, step)
    for path in sorted((root / "ledger").glob("*.jsonl")):
        _read_ledger(survey, path)
    if not survey.files:
        raise FormatError(folder, "nothing was captured")
    return survey


def _files(graph: str, step: Path) -> Iterator[GraphFile]:
    found = []
    for path in step.iterdir():
        match = _FILE.fullmatch(path.name)
        if match is not None:
            status = path.lstat()
            name = path.name.rsplit(".", 2)[1]
            is_input = match["side"] == "INPUT"
            file = GraphFile(
                graph, int(step.name), match["stem"], is_input, status.st_ino, status.st_size
            )
            found.append((name, not is_input, path.name, file))
    found.sort(key=lambda each: each[:3])
    return (file for *_, file in found)


def _read_sources(survey: GraphSurvey, name: str, graph: Path) -> None:
    kernels, nodes = graph / "kernels.json", graph / "graph.json"
    if not kernels.is_file():
        return
    targets = {str(node["name"]): str(node["target"]) for node in _json(nodes)["nodes"]}
    for launch in _json(kernels)["launches"]:
        survey.sources[name, f"{launch['name']}-{launch['type']}"] = [
            (source, targets.get(source, "")) for source in launch["source"]
        ]


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise FormatError(path, f"cannot be read ({error})") from None


def _read_ledger(survey: GraphSurvey, path: Path) -> None:
    frame = 0
    prefix = ""
    for text in path.read_bytes().splitlines(keepends=True):
        try:
            line = json.loads(text)
        except ValueError:
            raise FormatError(path, "a line is not JSON") from None
        if line.get("kind") == "op":
            world, graph, step, stem = str(line["path"]).split("/", 3)
            prefix = world
            survey.lines[f"{world}/{graph}", int(step), stem] = len(text)
        elif line.get("kind") == "note" and "executions" in line:
            for graph, count in line["executions"].items():
                survey.executions[f"{prefix}/{graph}"] = int(count)
        else:
            frame += len(text)
    survey.frame.append(frame)


class GraphSizes:
    """Estimates for any options that the survey covers.

    Args:
        survey: what is known of the program.
        block: bytes that the file system gives out at a time.
    """

    def __init__(self, survey: GraphSurvey, block: int = DEFAULT_BLOCK) -> None:
        self.survey = survey
        self._block = block
        self._seen: dict[str, set[int]] = defaultdict(set)
        for file in survey.files:
            self._seen[file.graph].add(file.step)

    def estimate(self, settings: TorchSettings) -> Estimate:
        """What ``ait llm dump`` would write with these options."""
        estimate = Estimate()
        weights = {
            graph: weights_of(steps, self.survey.executions.get(graph), settings.steps)
            for graph, steps in self._seen.items()
        }
        by_step: dict[int, float] = defaultdict(float)
        saved: set[int] = set()
        for file in self.survey.files:
            weight = weights[file.graph][file.step]
            wanted = settings.inputs if file.is_input else settings.outputs
            if not weight or not wanted or not self._selects(settings, file.graph, file.stem):
                continue
            estimate.tensors += weight
            if file.inode not in saved:
                saved.add(file.inode)
                estimate.part("tensors").add(file.bytes, self._block, weight)
                by_step[file.step] += file.bytes
        for (graph, step, stem), size in self.survey.lines.items():
            weight = weights.get(graph, {}).get(step, 0.0)
            if weight and self._selects(settings, graph, stem):
                estimate.part("ledger").grow(size, weight)
                estimate.operations += weight
                by_step[step] += size
        for name, sizes in (("topology", self.survey.described), ("ledger", self.survey.frame)):
            for size in sizes:
                estimate.part(name).add(size, self._block)
        folders = sum(sum(each.values()) for each in weights.values())
        estimate.part("folders").room += (folders + len(weights) + 1) * self._block
        estimate.steps = self.steps(settings.steps)
        estimate.largest = max(by_step.values(), default=0.0)
        return estimate

    def steps(self, wanted: StepRange) -> int:
        """How many of the wanted executions the graph has that runs most often."""
        counts = (
            count_of(self.survey.executions.get(graph), seen, wanted)
            for graph, seen in self._seen.items()
        )
        return max(counts, default=0)

    def _selects(self, settings: TorchSettings, graph: str, stem: str) -> bool:
        if not settings.type_prefixes:
            return True
        patterns = [
            each for prefix in settings.type_prefixes for each in (f"{prefix}*", f"aten.{prefix}*")
        ]
        if settings.is_inductor:
            targets: Sequence[str] = [
                target for _, target in self.survey.sources.get((graph, stem), ())
            ] or [""]
        else:
            targets = [stem.partition("-")[2]]
        return any(fnmatchcase(target, each) for target in targets for each in patterns)
