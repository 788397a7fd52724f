"""Running one AOT graph operator by operator, and saving what each node gets and returns."""

from __future__ import annotations

import itertools
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Interpreter, Node

from ait_llm.core.notices import notice
from ait_llm.dump.folders import make_folder
from ait_llm.dump.fx.arrays import (
    Piece,
    argument_pieces,
    as_array,
    result_pieces,
)
from ait_llm.dump.fx.graph_file import describe_graph, is_dumped, target_of
from ait_llm.dump.fx.graph_json import FILE, write_graph
from ait_llm.dump.fx.model_calls import model_call
from ait_llm.dump.fx.npy_files import NodeFiles, link_file, write_array
from ait_llm.dump.fx.options import FxOptions
from ait_llm.dump.fx.session import FxSession
from ait_llm.dump.pytorch.identity import ObservedWrites, identity_of, may_write
from ait_llm.dump.pytorch.layouts import is_plain

# Tensors from this size on are written once and linked; a smaller file costs no more than a link.
_LINKED_BYTES = 16 << 10


class GraphCapture:
    """A compiled graph that captures itself each time it is called.

    It has the calling convention of compiled AOT graphs: one list of arguments, which it empties.

    Args:
        module: the AOT graph.
        session: where its files go.
        phase: ``inference``, ``forward`` or ``backward``.
    """

    def __init__(self, module: GraphModule, session: FxSession, phase: str) -> None:
        self._boxed_call = True  # of the instance, for wrappers to copy
        self._module = module
        self._session = session
        self._phase = phase
        self._plans = {
            node: _Plan(node, session.options) for node in module.graph.nodes if is_dumped(node)
        }
        self._steps = itertools.count()
        self._pid = -1
        self._folder: Path | None = None
        self._claim()

    def __call__(self, args: list[Any]) -> Any:
        """Run the graph on its arguments."""
        if self._pid != os.getpid():
            self._claim()
        step = next(self._steps)
        if self._folder is not None:
            self._session.executed(self._folder.name)
        capture = None
        if self._folder is not None and step in self._session.options.steps:
            capture = _StepCapture(self._folder / str(step), step, self._session)
        recording = _Recording(self._module, self._plans, capture)
        if capture is None:
            return recording.boxed_run(args)
        with ObservedWrites():
            return recording.boxed_run(args)

    def _claim(self) -> None:
        """A folder of our own, in this process; without one the graph runs and is not captured."""
        self._pid, self._steps, self._folder = os.getpid(), itertools.count(), None
        try:
            number, self._folder = self._session.claim_graph()
            facts = {"graph": number, "pid": self._pid, "phase": self._phase}
            write_graph(self._folder / FILE, describe_graph(self._module, **facts))
        except OSError as error:
            path = str(error.filename or self._session.folder)
            reason = error.strerror or str(error)
            notice(f"{path} of a compiled graph cannot be written: {reason}")
            self._session.not_written(path, reason)


class _Plan:
    """What is done with a node at each execution.

    Attributes:
        name, target: of the node.
        selected: the filters want it.
        writes: it may change a tensor in place: its schema says so, or it has none.
    """

    def __init__(self, node: Node, options: FxOptions) -> None:
        self.name, self.target = node.name, target_of(node)
        self.selected = options.selects(self.name, self.target)
        if isinstance(node.target, torch._ops.OpOverload):
            self.writes = may_write(node.target)
        else:
            read = (each.meta.get("val") for each in node.all_input_nodes)
            self.writes = any(isinstance(value, Tensor) for value in read)

    @property
    def stem(self) -> str:
        """How the names of its files begin."""
        return f"{self.name}-{self.target}"


class _StepCapture:
    """The files of one execution of a graph."""

    def __init__(self, folder: Path, step: int, session: FxSession) -> None:
        self._folder = folder
        self._step = step
        self._call = model_call()
        self._session = session
        self._options = session.options
        self._made = False
        # Files by the tensor that they hold: what one node returns and another one takes is one
        # tensor, and its file gets a second name. Tensors die as they would without us.
        self._files: dict[int, tuple[weakref.ref[Tensor], str]] = {}

    def call(
        self, plan: _Plan, target: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a node, and save what it gets and returns if it is wanted."""
        files = NodeFiles()
        time = self._session.timestamp() if plan.selected else ""
        if plan.selected and self._options.inputs:
            self._save(files, f"{plan.stem}.INPUT", argument_pieces(args), time)
        if plan.writes:
            writes = ObservedWrites.begin(target, args, kwargs)
            result = target(*args, **kwargs)
            writes.done()
            self._files.clear()
        else:
            result = target(*args, **kwargs)
        if plan.selected and self._options.outputs:
            self._save(files, f"{plan.stem}.OUTPUT", result_pieces(result), time)
        if plan.selected:
            self._record(plan, files)
        return result

    def _save(self, files: NodeFiles, stem: str, pieces: Iterator[Piece], time: str) -> None:
        for piece in pieces:
            path = f"{self._folder}/{stem}.{piece.place}.{time}.npy"
            name = f"{stem.rpartition('.')[2]}.{piece.place}"
            if isinstance(piece.value, Tensor) and is_plain(piece.value):
                identity = identity_of(piece.value)
                if identity is not None:
                    files.identities[name] = identity
            try:
                reason = self._write(path, piece.value, files)
            except (OSError, RuntimeError, MemoryError) as error:
                files.failed(error)
                continue
            if reason:
                files.missed.append({"name": name, "reason": reason})

    def _write(self, path: str, value: Any, files: NodeFiles) -> str:
        """Write one file.

        Returns:
            Why there is no array to write; empty if it was written.
        """
        known = self._files.get(id(value)) if isinstance(value, Tensor) else None
        if known is not None and known[0]() is value and link_file(known[1], path):
            files.tensors += 1
            return ""
        array = as_array(value)
        if isinstance(array, str):
            return array
        if not self._made:
            make_folder(self._folder)
            self._made = True
        files.bytes += write_array(path, array, hollow=self._options.survey)
        files.tensors += 1
        if isinstance(value, Tensor) and array.nbytes >= _LINKED_BYTES:
            self._files[id(value)] = (weakref.ref(value), path)
        return ""

    def _record(self, plan: _Plan, files: NodeFiles) -> None:
        place = self._folder.relative_to(self._folder.parents[2])
        line = files.line(plan.name, plan.target, f"{place}/{plan.stem}", self._step)
        if self._call is not None:
            line["model_call"] = self._call
        self._session.record(line)


class _Recording(Interpreter):
    """Runs a graph as it is, and hands each node to a capture."""

    def __init__(
        self,
        module: GraphModule,
        plans: Mapping[Node, _Plan],
        capture: _StepCapture | None,
    ) -> None:
        super().__init__(module)
        self._plans = plans
        self.extra_traceback = False  # exceptions are the program's, word by word
        self._capture = capture
        self._plan: _Plan | None = None

    def run_node(self, n: Node) -> Any:
        self._plan = self._plans.get(n)
        return super().run_node(n)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        plan, capture = self._plan, self._capture
        if plan is None or capture is None:
            return target(*args, **kwargs)
        return capture.call(plan, target, args, kwargs)
