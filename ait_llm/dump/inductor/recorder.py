"""What the generated program calls around each launch: files of what kernels read and store."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from ait_llm.core.notices import notice
from ait_llm.dump.folders import make_folder
from ait_llm.dump.fx.arrays import as_array
from ait_llm.dump.fx.model_calls import model_call
from ait_llm.dump.fx.npy_files import write_array
from ait_llm.dump.fx.options import FxOptions
from ait_llm.dump.fx.session import FxSession
from ait_llm.dump.inductor.kernels import KernelTable, Launch, Stored

_Method = TypeVar("_Method", bound=Callable[..., None])


@dataclass(slots=True)
class _Files:
    """What became of the tensors of one launch."""

    stem: str
    time: str
    tensors: int = 0
    bytes: int = 0
    lost: int = 0
    reason: str = ""
    missed: list[dict[str, str]] = field(default_factory=list)


def lost_graph(folder: Path, step: int, reason: str) -> dict[str, Any]:
    """The ledger's line of an execution of a graph that was not captured, or not to its end."""
    return {
        "op": folder.name,
        "type": "graph",
        "path": f"{folder.relative_to(folder.parents[1])}/{step}",
        "step": step,
        "state": "failed",
        "lost": 1,
        "reason": reason,
    }


def _guarded(method: _Method) -> _Method:
    """A method that the program can call without fear."""

    @functools.wraps(method)
    def call(recorder: GraphRecorder, *args: Any) -> None:
        try:
            method(recorder, *args)
        except Exception as error:  # noqa: BLE001  the program must run as without us
            recorder.give_up(error)

    return cast(_Method, call)


class GraphRecorder:
    """Saves what the kernels of one compiled graph read and store, each time the graph runs.

    It never changes a tensor and never raises: what cannot be saved is accounted for.

    Args:
        session: where the files go.
        folder: of the graph.
        table: its launches.
    """

    def __init__(self, session: FxSession, folder: Path, table: KernelTable) -> None:
        self._session = session
        self._folder = folder
        self._launches = table.launches
        self._wanted = [_is_wanted(each, session.options) for each in table.launches]
        self._pid = os.getpid()
        self._step = -1
        self._call: int | None = None
        self._active = False
        self._step_folder = ""
        self._made = False
        self._open: dict[int, _Files] = {}
        # Buffer to the file that has its present content.
        self._files: dict[str, str] = {}
        # The same of parameters, for all runs of the graph, with what tells that one was written.
        self._weights: dict[str, tuple[str, tuple[int, int]]] = {}

    @_guarded
    def begin(self) -> None:
        """The graph starts to run."""
        self.end()  # of a run that an exception ended
        self._step += 1
        self._session.executed(self._folder.name)
        # In a forked child the folders are the parent's.
        wanted = self._pid == os.getpid() and self._step in self._session.options.steps
        self._active = wanted
        self._call = model_call() if wanted else None
        self._step_folder = f"{self._folder}/{self._step}"
        self._made = False

    @_guarded
    def read(self, launch: int, outside: Mapping[str, Any]) -> None:
        """A kernel is about to run.

        Args:
            launch: its number.
            outside: those of its inputs that come from outside of the graph, by variable.
        """
        if not self._active or not self._wanted[launch]:
            return
        facts = self._launches[launch]
        stem = f"{facts.name}-{facts.type}"
        files = self._open[launch] = _Files(stem, self._session.timestamp())
        if not self._session.options.inputs:
            return
        for place, each in enumerate(facts.inputs):
            name = f"INPUT.{place}"
            known = self._files.get(each.buffer)
            if known is not None:
                if not self._link(known, files, name):
                    files.missed.append({"name": name, "reason": "its file has gone"})
            elif isinstance(outside.get(each.variable), Tensor):
                value = outside[each.variable]
                if not isinstance(value, torch.nn.Parameter):
                    self._save(files, name, each, value)
                elif self._session.options.weights:  # else they are the program's own
                    self._save_weight(files, name, each, value)

    @_guarded
    def wrote(self, launch: int, stored: Mapping[int, Any]) -> None:
        """A kernel has run, or a result of it was picked.

        Args:
            launch: its number.
            stored: what it wrote, by place among its outputs.
        """
        if not self._active:
            return
        files = self._open.get(launch)
        if files is None:
            return
        for place, value in stored.items():
            each = self._launches[launch].outputs[place]
            self._files.pop(each.variable, None)
            if self._session.options.outputs and isinstance(value, Tensor):
                self._save(files, f"OUTPUT.{place}", each, value)

    @_guarded
    def end(self) -> None:
        """The graph has run."""
        if not self._active:
            return
        for launch, files in self._open.items():
            self._record(self._launches[launch], files)
        self._active = False
        self._files, self._open = {}, {}

    def give_up(self, error: Exception) -> None:
        """Record nothing more of this run, and say why."""
        self._active = False
        self._files, self._open = {}, {}
        text = f"step {self._step} is incomplete: {error!r}"
        notice(f"{self._folder.name} {text}")
        self._session.record(lost_graph(self._folder, self._step, text))

    def _save(self, files: _Files, name: str, each: Stored, value: Tensor) -> None:
        try:
            array = as_array(value)
            if isinstance(array, str):
                files.missed.append({"name": name, "reason": array})
                return
            if not self._made:
                make_folder(Path(self._step_folder))
                self._made = True
            path = self._path(files, name)
            hollow = self._session.options.survey
            files.bytes += write_array(path, array, hollow=hollow)
            files.tensors += 1
            self._files[each.buffer] = self._files[each.variable] = path
        except (OSError, RuntimeError, MemoryError) as error:
            files.lost += 1
            files.reason = files.reason or getattr(error, "strerror", None) or str(error)

    def _save_weight(self, files: _Files, name: str, each: Stored, value: Tensor) -> None:
        """A parameter; where it was saved before and nobody wrote to it, that file again."""
        state = value.data_ptr(), -1 if value.is_inference() else value._version
        path, known = self._weights.get(each.buffer, ("", None))
        if known != state or not self._link(path, files, name):
            self._save(files, name, each, value)
            path = self._files.pop(each.buffer, "")
            self._files.pop(each.variable, None)
        if path:
            self._weights[each.buffer] = path, state

    def _link(self, source: str, files: _Files, name: str) -> bool:
        try:
            os.link(source, self._path(files, name), follow_symlinks=False)
        except OSError:
            return False
        files.tensors += 1
        return True

    def _path(self, files: _Files, name: str) -> str:
        return f"{self._step_folder}/{files.stem}.{name}.{files.time}.npy"

    def _record(self, launch: Launch, files: _Files) -> None:
        place = Path(self._step_folder).relative_to(self._folder.parents[1])
        line: dict[str, Any] = {
            "op": launch.name,
            "type": launch.type,
            "path": f"{place}/{files.stem}",
            "step": self._step,
            "state": "failed" if files.lost else "saved" if files.tensors else "empty",
            "tensors": files.tensors,
            "bytes": files.bytes,
        }
        if self._call is not None:
            line["model_call"] = self._call
        if files.lost:
            line |= {"lost": files.lost, "reason": files.reason}
        if files.missed:
            line["not_captured"] = files.missed
        self._session.record(line)


def _is_wanted(launch: Launch, options: FxOptions) -> bool:
    """True if a filter selects one of the nodes that a kernel fused."""
    if not launch.source:
        return options.selects(launch.name, "")
    return any(map(options.selects, launch.source, launch.targets))


_numbers = itertools.count()
_recorders: dict[int, GraphRecorder] = {}


def register(recorder: GraphRecorder) -> int:
    """Keep a recorder for the program that asks for it by this number."""
    number = next(_numbers)
    _recorders[number] = recorder
    return number


def recorder_of(number: int, pid: int) -> Any:
    """The recorder of a generated program; one that does nothing in another process.

    A generated program lies in a file that another process may come to load.
    """
    recorder = _recorders.get(number) if pid == os.getpid() else None
    if recorder is None:
        notice("a compiled graph of another process is not captured")
        return _Silent()
    return recorder


class _Silent:
    """In place of a recorder."""

    def begin(self) -> None:
        """Nothing."""

    def read(self, launch: int, outside: Mapping[str, Any]) -> None:
        """Nothing."""

    def wrote(self, launch: int, stored: Mapping[int, Any]) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""
