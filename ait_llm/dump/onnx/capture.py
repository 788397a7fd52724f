"""One session of ONNX Runtime: a second one beside it shows every value of the same graph.

The program's session stays as it is, and so do its answers. It writes the graph that it runs, after
its optimisations; that graph, with every value as an output and no further optimisation, is run
again on what the program gives. Both must give the same results to the last bit.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ait_llm.dump.folders import make_folder
from ait_llm.dump.fx.graph_json import FILE, described, write_graph
from ait_llm.dump.fx.npy_files import NodeFiles, link_file, write_array
from ait_llm.dump.fx.session import FxSession
from ait_llm.dump.onnx.describing import describe
from ait_llm.dump.onnx.graph import Placed, lay_out
from ait_llm.dump.onnx.node import Array, Named

if TYPE_CHECKING:
    import onnx

_DIFFERS = (
    "results of the graph that was captured differ from those of the program's session ({name} by "
    "{off:.2g} of its size), which may run it on another device, in other precision or order "
    "({providers}); what was captured is the former"
)
_MOST = 0.05  # of the size of a result: more than an order of sums or 16 bits make of it


@dataclass
class _Step:
    """The values of one run."""

    values: dict[str, Array]
    files: dict[str, str] = field(default_factory=dict)


class SessionCapture:
    """Captures the runs of one session.

    Args:
        model: the graph that the session runs; changed in place.
        folder: where it lies, with the files of its weights. What is made of it goes there.
        open_session: makes a session of a file, with the program's settings and no optimisation.
        session: where the files go.
    """

    def __init__(
        self, model: onnx.ModelProto, folder: Path, open_session: Any, session: FxSession
    ) -> None:
        import onnx

        self._laid = lay_out(model)
        self._base = folder
        path = folder / "every_value.onnx"
        onnx.save(model, path)
        self._session = session
        self._own = open_session(str(path))
        self._steps = itertools.count()
        self._storages = itertools.count(1)
        self._weights: dict[str, Array] = {}
        self._rounded: dict[str, float] = {}  # what it cost the weights of a few bits
        self._weight_files: dict[str, str] = {}
        self._weight_storages: dict[str, int] = {}
        self._number, self._folder = session.claim_graph()
        self._is_described = False
        self._lock = threading.Lock()  # threads of a program may run one session at once
        if self._laid.hidden:
            session.note(
                f"graph_{self._number}: values of {self._laid.hidden} nodes within branches and "
                "loops are not captured; the results of these nodes are",
                remark=1,
            )

    @property
    def nodes(self) -> int:
        """How many nodes are captured in each run."""
        return len(self._laid.nodes)

    def after_run(self, given: Mapping[str, Any], results: Mapping[str, Any]) -> None:
        """The program's session has run; run the graph again, and save its values.

        Args:
            given: inputs by name, arrays or ``OrtValue``.
            results: what the program got, arrays or ``OrtValue`` by name.
        """
        with self._lock:
            self._run_again(given, results)

    def _run_again(self, given: Mapping[str, Any], results: Mapping[str, Any]) -> None:
        step = next(self._steps)
        self._session.executed(self._folder.name)
        if step not in self._session.options.steps:
            return
        names = list(self._laid.shown.values())
        ran = self._own.run_with_ort_values(names, _as_ort_values(given))
        values = dict(zip(self._laid.shown, (each.numpy() for each in ran), strict=True))
        values |= {name: _as_array(value) for name, value in given.items()}
        values |= {name: self._sum(values, *parts) for name, parts in self._laid.sums.items()}
        other = [name for name, value in results.items() if not self._is_equal(name, values, value)]
        if other:
            self._say_differs(step, {name: (values[name], results[name]) for name in other})
        if not self._is_described:
            self._describe(values)
        self._save(step, _Step(values))

    def _sum(self, values: Mapping[str, Array], one: str, other: str) -> Array:
        """What a fused node adds up, rounded as if a node of its own gave it."""
        x, bias = (values[name] if name in values else self._weight(name) for name in (one, other))
        wide = np.promote_types(x.dtype, np.float32)
        return np.asarray((x.astype(wide) + bias.astype(wide)).astype(x.dtype))

    def _say_differs(self, step: int, pairs: Mapping[str, tuple[Array, Any]]) -> None:
        """Say by how much; what is far off was not computed by what was captured."""
        found = {name: _distance(mine, _as_array(theirs)) for name, (mine, theirs) in pairs.items()}
        name = max(found, key=found.__getitem__)
        providers = ", ".join(self._own.get_providers())
        text = _DIFFERS.format(name=name, off=found[name], providers=providers)
        kind = "remark" if found[name] <= _MOST else "differs"  # which makes the dump incomplete
        self._session.note(f"graph_{self._number}, run {step}: {text}", **{kind: 1})

    def _is_equal(self, name: str, values: Mapping[str, Array], result: Any) -> bool:
        """True if a result of the program is what was captured, to the last bit.

        What is no tensor, or of a type that NumPy does not have, is not looked at.
        """
        captured = values.get(name)
        if captured is None or name in self._laid.narrow or not _is_tensor(result):
            return True
        array = np.asarray(result.numpy() if hasattr(result, "numpy") else result)
        same = (array.dtype, array.shape) == (captured.dtype, captured.shape)
        return same and array.tobytes() == captured.tobytes()

    def _describe(self, values: Mapping[str, Array]) -> None:
        """Write ``graph.json``, now that the shapes are known."""
        weights = (*self._laid.weights, *self._laid.quantised)
        known = {**{name: self._weight(name) for name in weights}, **values}
        shapes = {name: value.shape for name, value in known.items()}
        types = {name: str(value.dtype) for name, value in known.items()} | dict(self._laid.narrow)
        nodes = describe(self._laid, shapes, types, self._rounded)
        facts = {"graph": self._number, "pid": os.getpid(), "phase": "inference"}
        version = str(sys.modules["onnxruntime"].__version__)
        write_graph(self._folder / FILE, described(nodes, onnxruntime=version, **facts))
        self._is_described = True

    def _weight(self, name: str) -> Array:
        import onnx

        if name not in self._weights and name in self._laid.quantised:
            real, cost = self._laid.quantised[name].real(self._weight)
            self._weights[name], self._rounded[name] = real, cost
        if name not in self._weights:
            found = onnx.numpy_helper.to_array(self._laid.weights[name], str(self._base))
            if found.dtype.kind == "V" or found.dtype.name not in np.sctypeDict:
                found = found.astype(np.float32)  # bfloat16 and fp8: NumPy files cannot name them
            self._weights[name] = np.asarray(found)
        return self._weights[name]

    def _save(self, step: int, values: _Step) -> None:
        folder = self._folder / str(step)
        storages: dict[str, int] = {}
        with contextlib.suppress(OSError):  # each file says that it could not be made
            make_folder(folder)
        for placed in self._laid.nodes:
            if self._session.options.selects(placed.name, placed.operator.target):
                self._save_node(placed, step, folder, values, storages)

    def _save_node(
        self, placed: Placed, step: int, folder: Path, values: _Step, storages: dict[str, int]
    ) -> None:
        options, time = self._session.options, self._session.timestamp()
        pieces: list[tuple[str, Any]] = []
        if options.inputs:
            pieces += [(f"INPUT.{place}", value) for place, value in _arguments(placed)]
        if options.outputs:
            named = enumerate(placed.outputs)
            pieces += [(f"OUTPUT.{place}", Named(name)) for place, name in named if name]
        files = NodeFiles()
        for stem, value in pieces:
            try:
                files.bytes += self._write(
                    f"{folder}/{placed.stem}.{stem}.{time}.npy", value, values
                )
                files.tensors += 1
            except OSError as error:
                files.failed(error)
                continue
            if isinstance(value, Named):
                files.identities[stem] = self._identity(value.name, values, storages)
        place = f"{folder.relative_to(folder.parents[2])}/{placed.stem}"
        self._session.record(files.line(placed.name, placed.operator.target, place, step))

    def _value(self, name: str, values: _Step) -> Array:
        found = values.values.get(name)
        return self._weight(name) if found is None else found

    def _identity(self, name: str, values: _Step, storages: dict[str, int]) -> list[Any]:
        """A value of a graph is written once, so each has a storage of its own."""
        known = storages if name in values.values else self._weight_storages
        if name not in known:
            known[name] = next(self._storages)
        shape = self._value(name, values).shape
        strides = [math.prod(shape[place + 1 :]) for place in range(len(shape))]
        return [known[name], 0, 0, strides]

    def _write(self, path: str, value: Any, values: _Step) -> int:
        """Write a file, or give one that has the same value a second name; bytes of new data."""
        if not isinstance(value, Named):
            return write_array(path, np.asarray(value), hollow=self._session.options.survey)
        name = value.name
        files = values.files if name in values.values else self._weight_files
        if name in files and link_file(files[name], path):
            return 0
        hollow = self._session.options.survey
        written = write_array(path, self._value(name, values), hollow=hollow)
        files[name] = path
        return written


def _arguments(placed: Placed) -> list[tuple[str, Any]]:
    """The values and numbers among the arguments, with their places."""
    found: list[tuple[str, Any]] = []
    for place, value in enumerate(placed.operator.args):
        if isinstance(value, list) and any(isinstance(each, Named) for each in value):
            found += [(f"{place}.{number}", each) for number, each in enumerate(value)]
        elif isinstance(value, (Named, int, float, list)):
            found.append((str(place), value))
    return found


def _distance(captured: Array, result: Array) -> float:
    """By how much a result of the program is off, of its size; infinite for another shape.

    Where elements of only one of them are finite they are far off.
    """
    if captured.shape != result.shape:
        return math.inf
    mine, theirs = captured.astype(np.float64), result.astype(np.float64)
    same = (mine == theirs) | (np.isnan(mine) & np.isnan(theirs))
    if not np.isfinite(np.where(same, 0.0, mine - theirs)).all():
        return math.inf
    size = float(np.linalg.norm(np.where(np.isfinite(theirs), theirs, 0.0)))
    off = float(np.linalg.norm(np.where(same, 0.0, mine - theirs)))
    return off / size if size else math.inf


def _as_ort_values(given: Mapping[str, Any]) -> dict[str, Any]:
    import onnxruntime

    return {
        name: value
        if isinstance(value, onnxruntime.OrtValue)
        else onnxruntime.OrtValue.ortvalue_from_numpy(np.asarray(value))
        for name, value in given.items()
    }


def _as_array(value: Any) -> Array:
    return np.array(value.numpy() if hasattr(value, "numpy") else value)


def _is_tensor(value: Any) -> bool:
    """False for sequences and maps."""
    return isinstance(value, np.ndarray) or (hasattr(value, "is_tensor") and value.is_tensor())
