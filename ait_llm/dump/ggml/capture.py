"""The evaluations of one context of llama.cpp, written as executions of graphs of nodes.

Each value is written when the callback hands it over, into a folder of the evaluation; which graph
it is an execution of is known at its end, when the folder gets its place. What is read is linked to
what was written, so nothing is read from memory or written twice.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ait_llm.dump.folders import make_folder
from ait_llm.dump.fx.graph_json import FILE, described, write_graph
from ait_llm.dump.fx.npy_files import NodeFiles, link_file, remove_file, write_array
from ait_llm.dump.fx.session import FxSession
from ait_llm.dump.ggml.layout import Evaluated, Layout
from ait_llm.dump.ggml.library import Library, Tensor
from ait_llm.dump.ggml.operators import Value
from ait_llm.dump.ggml.packed import PackedWeights
from ait_llm.dump.onnx.describing import describe
from ait_llm.dump.onnx.graph import Laid, Placed
from ait_llm.dump.onnx.node import Array, Named

_HALF = ("f16", "bf16")
_TYPES = {"f16": "float16", "bf16": "bfloat16"}


@dataclass
class _Graph:
    """A graph that has run."""

    number: int
    folder: Path
    executions: int = 0


@dataclass
class _Run:
    """One evaluation that is going on.

    Attributes:
        folder: of its files; None while it is not recorded.
        first: name and operator of its first tensor, by which the next one is told.
        nodes: as they are laid out.
        known: each value that has been written, by name.
    """

    layout: Layout
    folder: Path | None
    first: tuple[str, str]
    nodes: list[Placed] = field(default_factory=list)
    lines: list[tuple[NodeFiles, Placed]] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    values: dict[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    weights: dict[str, Any] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    storages: dict[str, int] = field(default_factory=dict)


class ContextCapture:
    """Captures what a context evaluates.

    Args:
        library: reads tensors.
        session: where the files go.
        weights: of the file of the model, for those that lie in memory in another form.
        version: of llama-cpp-python.
    """

    def __init__(
        self, library: Library, session: FxSession, weights: PackedWeights, version: str
    ) -> None:
        self._library, self._session = library, session
        self._packed, self._version = weights, version
        self._graphs: dict[str, _Graph] = {}
        self._last: _Graph | None = None
        self._run: _Run | None = None
        self._weights: dict[str, str] = {}
        self._storages = itertools.count(1)
        self._weight_storages: dict[str, int] = {}
        self._parts = itertools.count()
        self._whole: set[str] = set()

    def wants(self, address: int) -> bool:
        """Whether the tensor that is about to be computed is to be handed over."""
        tensor = self._library.tensor(address)
        first = tensor.name, tensor.op
        if self._run is None or first == self._run.first:
            self.finish()
            self._run = self._begin(first)
        return self._run.folder is not None

    def take(self, address: int) -> None:
        """A tensor has been computed."""
        run = self._run
        if run is None or run.folder is None:
            return
        tensor = self._library.tensor(address)
        for source in filter(None, tensor.sources):
            self._leaf(run, self._library.tensor(source))
        rows: list[int] = []
        if tensor.op == "GET_ROWS":
            rows = self._library.read(self._library.tensor(tensor.sources[1])).reshape(-1).tolist()
        array = self._library.read(tensor)
        complete = run.layout.add(tensor, rows)
        self._keep(run, run.layout.newest, tensor, array)
        for done in complete:
            self._save(run, done)

    def finish(self) -> None:
        """The evaluation has ended."""
        run, self._run = self._run, None
        if run is None or run.folder is None:
            return
        for done in run.layout.finish():
            self._save(run, done)
        key = repr([(each.name, each.operator) for each in run.nodes])
        graph = self._graphs.get(key)
        if graph is None:
            number, folder = self._session.claim_graph()
            graph = self._graphs[key] = _Graph(number, folder)
            self._describe(run, graph)
        self._last = graph
        step, graph.executions = graph.executions, graph.executions + 1
        self._session.executed(graph.folder.name)
        if step not in self._session.options.steps:
            shutil.rmtree(run.folder, ignore_errors=True)
            return
        for file in run.files.values():  # of values that no node has
            if Path(file).parent == run.folder and Path(file).name.startswith("."):
                remove_file(file)
        place = graph.folder / str(step)
        run.folder.rename(place)
        for name, file in run.files.items():
            if name in run.weights and Path(file).parent == run.folder:
                self._weights[name] = str(place / Path(file).name)
        for files, placed in run.lines:
            path = f"{place.relative_to(place.parents[2])}/{placed.stem}"
            self._session.record(files.line(placed.name, placed.operator.target, path, step))

    def _begin(self, first: tuple[str, str]) -> _Run:
        """An evaluation; not recorded if it is one more of a graph of which no more is wanted."""
        if self._last is not None and self._last.executions not in self._session.options.steps:
            self._last.executions += 1
            self._session.executed(self._last.folder.name)
            return _Run(Layout(self._whole), None, first)
        folder = self._session.folder / f".part_{os.getpid()}_{next(self._parts)}"
        make_folder(folder)
        return _Run(Layout(self._whole), folder, first)

    def _leaf(self, run: _Run, tensor: Tensor) -> None:
        """A weight or an input, when it is first read."""
        value = run.layout.leaf(tensor)
        if value is None:
            return
        run.values[value.name] = value.shape, _torch_type(tensor.dtype)
        if value.is_weight:
            run.weights[value.name] = None
            if value.name in self._weights:
                run.files[value.name] = self._weights[value.name]
                return
        else:
            run.inputs.append(value.name)
        array = self._packed.read(tensor, self._library)
        self._write(run, value.name, array.reshape(value.shape))

    def _keep(self, run: _Run, value: Value, tensor: Tensor, array: Array) -> None:
        """Have the file of a value that was computed, for those that read it."""
        run.values[value.name] = value.shape, _torch_type(tensor.dtype)
        self._write(run, value.name, array.reshape(value.shape))

    def _write(self, run: _Run, name: str, array: Array) -> None:
        assert run.folder is not None
        path = f"{run.folder}/.{len(run.files)}.npy"
        try:
            write_array(path, array, hollow=self._session.options.survey)
        except OSError:
            return
        run.files[name] = path

    def _save(self, run: _Run, done: Evaluated) -> None:
        """The files of a node: names for what lies there already."""
        placed, options = done.placed, self._session.options
        run.nodes.append(placed)
        if not options.selects(placed.name, placed.operator.target):
            return
        time = self._session.timestamp()
        pieces: list[tuple[str, Any]] = list(_arguments(placed)) if options.inputs else []
        if options.outputs:
            pieces.append(("OUTPUT.0", Named(placed.name)))
        files = NodeFiles()
        for stem, value in pieces:
            path = f"{run.folder}/{placed.stem}.{stem}.{time}.npy"
            try:
                files.bytes += self._place(run, path, value)
                files.tensors += 1
            except OSError as error:
                files.failed(error)
                continue
            if isinstance(value, Named):
                files.identities[stem] = self._identity(run, value.name)
        run.lines.append((files, placed))

    def _place(self, run: _Run, path: str, value: Any) -> int:
        if not isinstance(value, Named):
            return write_array(path, np.asarray(value), hollow=self._session.options.survey)
        source = run.files.get(value.name)
        if source is None:
            raise OSError(None, "the value could not be written")
        if not link_file(source, path):
            shutil.copyfile(source, path)
        if Path(source).name.startswith("."):
            run.files[value.name] = path
            remove_file(source)
        shape, _ = run.values[value.name]
        return math.prod(shape) * 4

    def _identity(self, run: _Run, name: str) -> list[Any]:
        """A value of a graph is written once, so each has a storage of its own."""
        known = self._weight_storages if name in run.weights else run.storages
        if name not in known:
            known[name] = next(self._storages)
        shape, _ = run.values[name]
        strides = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
        return [known[name], 0, 0, strides]

    def _describe(self, run: _Run, graph: _Graph) -> None:
        laid = Laid(tuple(run.nodes), run.weights, tuple(run.inputs), {}, {}, 0)
        shapes = {name: shape for name, (shape, _) in run.values.items()}
        types = {name: dtype for name, (_, dtype) in run.values.items()}
        nodes = describe(laid, shapes, types)
        facts = {"graph": graph.number, "pid": os.getpid(), "phase": "inference"}
        with contextlib.suppress(OSError):
            write_graph(graph.folder / FILE, described(nodes, llama_cpp=self._version, **facts))


def _torch_type(dtype: str) -> str:
    """How torch calls the numbers that the file of a value holds."""
    plain = {"f32": "float32", "f64": "float64", "i8": "int8", "i16": "int16", "i32": "int32",
             "i64": "int64", **_TYPES}  # fmt: skip
    return plain.get(dtype, "float32")


def _arguments(placed: Placed) -> Iterator[tuple[str, Any]]:
    """The values and numbers among the arguments, with their places."""
    for place, value in enumerate(placed.operator.args):
        if isinstance(value, (Named, int, float, list)) and not isinstance(value, bool):
            yield f"INPUT.{place}", value
