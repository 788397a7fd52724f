"""The capture of one step of one process: counters, records, and the files they go to."""

from __future__ import annotations

import contextlib
import datetime
import itertools
import os
import threading
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from torch import Tensor, nn

from ait_llm.dump.api.call_stacks import CallStacks, call_stack
from ait_llm.dump.api.growing_json import GrowingJson, encode
from ait_llm.dump.api.interception import Api
from ait_llm.dump.api.selection import Selection
from ait_llm.dump.api.settings import ApiSettings
from ait_llm.dump.api.tensor_files import FOLDER, TensorFiles
from ait_llm.dump.api.tensors import TensorEntries, unseen
from ait_llm.dump.api.values import Describer
from ait_llm.dump.pytorch.statistics import KnownStatistics, share_model_threads
from ait_llm.dump.pytorch.writer import BackgroundWriter, make_folder

# Inputs that a collective only receives into, and outputs that say nothing: written as null.
_MASKED_INPUTS: Mapping[str, tuple[int | str, ...]] = {
    "recv": (0,),
    "irecv": (0, "tensor"),
    "gather": (1,),
    **dict.fromkeys(
        (
            "all_gather",
            "scatter",
            "reduce_scatter",
            "_reduce_scatter_base",
            "_all_gather_base",
            "all_to_all_single",
            "all_to_all",
            "all_gather_into_tensor",
            "reduce_scatter_tensor",
        ),
        (0,),
    ),
}
_MASKED_OUTPUTS: Mapping[str, tuple[int, ...]] = {
    "Distributed.isend": (0,),
    "NPU.npu_fusion_attention": (4, 5),
}


@dataclass(slots=True)
class Call:
    """A call that is being recorded.

    Attributes:
        name: of the record, ``Torch.relu.0.forward``.
        order: place among the records.
        parent: the record of the module it runs in.
        inputs: JSON of what it got.
        save: whether its tensors get files.
        deferred: what to call before the JSON is complete.
        shown: the inputs as they are in the file already.
    """

    name: str
    order: float
    parent: str | None
    save: bool
    inputs: dict[str, Any] = field(default_factory=dict)
    deferred: list[Callable[[], None]] = field(default_factory=list)
    shown: str = ""


class Encoded(str):
    """A record that is JSON text already."""


class Recording:
    """Writes ``dump.json``, ``stack.json``, ``construct.json`` and the data of one folder.

    Args:
        folder: ``{dump_path}/step{N}/{rank}``.
        settings: of the capture.

    Raises:
        OSError: the folder cannot be written.
    """

    def __init__(self, folder: Path, settings: ApiSettings) -> None:
        self.folder = folder
        self.settings = settings
        self.selection = Selection(settings)
        self.active = True
        self.paused = False
        self.process = os.getpid()
        self._counts: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
        self._last: dict[str, int] = {}
        self._order = itertools.count()
        self._lock = threading.RLock()
        self._complaints: set[str] = set()
        self._writer: BackgroundWriter | None = None
        make_folder(folder)
        writer = self._background() if settings.asynchronous else None
        self._files = TensorFiles(folder, writer)
        self._known = KnownStatistics()
        share_model_threads()
        self.entries = TensorEntries(
            self._files,
            settings.summary,
            settings.slices,
            self._known,
            exact=settings.exact,
            complain=self.complain,
        )
        self._values = settings.task != "structure"
        debug = settings.level == "debug"
        self._name = "debug.json" if debug else "dump.json"
        self._dump = GrowingJson(folder / self._name, self._head())
        self._stacks: CallStacks | None = None
        self._construct: GrowingJson | None = None
        self._parents: set[str] = set()
        if settings.extra_info and not debug:
            self._stacks = CallStacks(folder / "stack.json")
            self._construct = GrowingJson(folder / "construct.json")

    def _head(self) -> dict[str, Any]:
        task = self.settings.task
        data = task in ("tensor", "overflow_check") or self.settings.tensor_names
        return {
            "task": task,
            "level": self.settings.level,
            "framework": "pytorch",
            "dump_data_dir": str(self.folder / FOLDER) if data else None,
        }

    def _background(self) -> BackgroundWriter:
        if self._writer is None:
            self._writer = BackgroundWriter()
        return self._writer

    def describer(self, call: Call) -> Describer:
        """What makes the JSON of this call's values."""
        entries = self.entries

        def tensor(value: Tensor, name: str) -> dict[str, Any]:
            try:
                return entries.tensor(value, name, call.save, call.deferred)
            except Exception as error:  # noqa: BLE001 - exotic tensors; the others must not suffer
                self.complain(f"{name}: {_reason(error)}")
                return unseen(value)

        def array(value: Any, name: str) -> dict[str, Any]:
            return entries.array(value, name, call.save)

        return Describer(tensor, array)

    # Calls of functions

    def begin(
        self,
        found: Api,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        frame: FrameType | None,
        modules: list[str],
    ) -> Call | None:
        """Begin the record of a call of a function; None if it is not wanted.

        Args:
            found: the function.
            args: positional arguments.
            kwargs: keyword arguments.
            frame: of the caller.
            modules: records of the modules that are running, outermost first.
        """
        with self._lock:
            number = self._last[found.full] = next(self._counts[found.full])
            name = f"{found.full}.{number}.forward"
            if self.paused or not self.selection.begins(name, modules):
                return None
            call = Call(name, next(self._order), modules[-1] if modules else None, self.saves(name))
            try:
                if self.settings.forward and self.settings.inputs:
                    masked = _MASKED_INPUTS.get(found.name) if found.prefix == "Distributed" else ()
                    self._inputs(call, *_masked(args, kwargs, masked or ()))
                self._place(call, frame)
                if self.settings.forward:
                    self._show(call)
            except Exception as error:  # noqa: BLE001 - foreign values; the program must go on
                self.complain(f"{name}: {_reason(error)}")
            return call

    def unwanted(self, found: Api) -> Call:
        """A call that was just found not to be wanted, for the name of its gradients."""
        return Call(f"{found.full}.{self._last[found.full]}.forward", 0, None, save=False)

    def end(self, call: Call, output: Any, found: Api | None = None) -> None:
        """Complete the record of a call with what it returned."""
        with self._lock:
            record: Any = call.inputs
            try:
                if self.settings.outputs and self._values:
                    record["output"] = self.describer(call).outputs(output, f"{call.name}.output")
                    for index in _MASKED_OUTPUTS.get(found.full, ()) if found is not None else ():
                        if index < len(record["output"]):
                            record["output"][index] = None
            except Exception as error:  # noqa: BLE001 - foreign values; the program must go on
                record["output"] = [None]
                self.complain(f"{call.name}.output: {_reason(error)}")
            if self.settings.forward:
                if len(call.shown) > 2 and "output" in record:
                    with contextlib.suppress(TypeError, ValueError):  # told when it is written
                        output = encode(record["output"])
                        record = Encoded(f'{call.shown[:-1]}, "output": {output}}}')
                self.put(call.name, record, call.order, call.deferred)
            self.selection.ended(call.name)

    def drop(self, call: Call) -> None:
        """Forget a call that turned out to be none: an operator that left it to the other side."""
        with self._lock:
            self._dump.end(call.name, None, call.order)

    def gradients(self, name: str, parent: str | None, arriving: Any, leaving: Any) -> None:
        """Write the record of a backward call.

        Args:
            name: of the record.
            parent: the record of the module whose backward pass it belongs to.
            arriving: gradients with respect to what the call returned.
            leaving: gradients with respect to what the call got.
        """
        with self._lock:
            if self.selection.has_scope and not self.selection.begins(name):
                return
            call = Call(name, next(self._order), parent, self.saves(name))
            try:
                describer = self.describer(call)
                if self._values:
                    if self.settings.inputs:
                        call.inputs["input"] = describer.outputs(arriving, f"{name}.input")
                    if self.settings.outputs:
                        call.inputs["output"] = describer.outputs(leaving, f"{name}.output")
                if self.settings.modules:
                    self.belongs(name, parent)
            except Exception as error:  # noqa: BLE001 - foreign values; the program must go on
                self.complain(f"{name}: {_reason(error)}")
            self.put(name, call.inputs, call.order, call.deferred)
            self.selection.ended(name)

    def raised(self, call: Call, error: BaseException) -> None:
        """Complete the record of a call that raised: what it got is kept."""
        with self._lock:
            if self.settings.outputs:
                call.inputs["output"] = [None]
            if self.settings.forward:
                self.put(call.name, call.inputs, call.order, call.deferred)
            self.complain(f"{call.name} raised {type(error).__name__}: {_reason(error)}")

    # Calls of modules

    def begin_module(
        self,
        name: str,
        args: tuple[Any, ...],
        kwargs: Mapping[str, Any],
        frame: FrameType | None,
        modules: list[str],
    ) -> Call | None:
        """Begin the record of a call of a module; None if it is not wanted."""
        with self._lock:
            if self.paused or not self.selection.begins(name, modules):
                return None
            call = Call(name, 0, modules[-1] if modules else None, self.saves(name))
            try:
                if self.settings.forward and self.settings.inputs:
                    self._inputs(call, args, kwargs)
                self._place(call, frame)
                if self.settings.forward:
                    self._show(call)
            except Exception as error:  # noqa: BLE001 - foreign values; the program must go on
                self.complain(f"{name}: {_reason(error)}")
            return call

    def end_module(self, call: Call, module: nn.Module, output: Any) -> None:
        """Complete the record of a call of a module: it stands where the call ended."""
        with self._lock:
            call.order = next(self._order)
            try:
                if self._values and self.settings.forward:
                    describer = self.describer(call)
                    if self.settings.outputs:
                        call.inputs["output"] = describer.outputs(output, f"{call.name}.output")
                    if self.settings.inputs:
                        call.inputs["parameters"] = describer.keywords(
                            _parameters(module), f"{call.name}.parameters"
                        )
            except Exception as error:  # noqa: BLE001 - foreign values; the program must go on
                call.inputs.setdefault("output", [None])
                self.complain(f"{call.name}.output: {_reason(error)}")
            if self.settings.forward:
                self.put(call.name, call.inputs, call.order, call.deferred)
            self.selection.ended(call.name)

    def raised_module(self, call: Call, module: nn.Module, error: BaseException) -> None:
        """Complete the record of a module that raised, or that recomputation stopped early."""
        if "StopRecomputation" not in type(error).__name__:
            self.complain(f"{call.name} raised {type(error).__name__}: {_reason(error)}")
        self.end_module(call, module, None)

    def _inputs(self, call: Call, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        if not self._values:
            return
        describer = self.describer(call)
        call.inputs["input_args"] = describer.arguments(args, f"{call.name}.input")
        call.inputs["input_kwargs"] = (
            describer.keywords(kwargs, f"{call.name}.kwargs") if kwargs else {}
        )

    def _show(self, call: Call) -> None:
        """Have the inputs on disk while the call runs: it may be the one that ends the process."""
        if not call.deferred:
            call.shown = encode(call.inputs)
            self._dump.begin(call.name, call.shown)

    def saves(self, name: str) -> bool:
        """Whether the tensors of a record get files."""
        return self.settings.data or self.selection.saves(name)

    def _place(self, call: Call, frame: FrameType | None) -> None:
        """Note where a call came from, and which module it runs in."""
        if self._stacks is not None:
            self._stacks.add(call.name, call_stack(frame))
        if self.settings.modules:
            self.belongs(call.name, call.parent)

    def belongs(self, name: str, parent: str | None) -> None:
        """Note which module a call runs in."""
        if self._construct is None or name in self._parents:
            return
        if parent is not None and "." not in parent:
            self.belongs(parent, None)  # a phase of the training step
        self._parents.add(name)
        self._construct.end(name, encode(parent), len(self._construct))

    # Records of any kind

    def put(
        self,
        name: str,
        record: Any,
        order: float,
        deferred: list[Callable[[], None]],
    ) -> None:
        """Write a complete record, at once or as soon as a device has its numbers."""
        if deferred or (self._writer is not None and self.settings.asynchronous):
            self._background().call(self._put_later, name, record, order, deferred)
        else:
            self._put_now(name, record, order)

    def _put_later(
        self,
        name: str,
        record: Any,
        order: float,
        deferred: list[Callable[[], None]],
    ) -> None:
        try:
            for fill in deferred:
                fill()
        except RuntimeError as error:  # the device failed
            self.complain(f"{name}: {_reason(error)}")
        with self._lock:
            self._put_now(name, record, order)

    def _put_now(self, name: str, record: Any, order: float) -> None:
        try:
            with self._lock:
                text = record if isinstance(record, Encoded) else encode(record)
                self._dump.end(name, text, order)
        except (OSError, TypeError, ValueError) as error:
            self.complain(f"{name}: {_reason(error)}")

    def next_order(self) -> int:
        """The place of a record that begins now."""
        return next(self._order)

    def count(self, key: str) -> int:
        """How often this was asked for the same key before, in this step."""
        return next(self._counts[key])

    def complain(self, text: str) -> None:
        """Note in ``dump_error_info.log`` what could not be recorded, each kind once."""
        kind = text.partition(": ")[2] or text
        if kind in self._complaints:
            return
        first = not self._complaints
        self._complaints.add(kind)
        now = datetime.datetime.now(datetime.timezone.utc).astimezone()
        stack = "".join(traceback.format_stack(limit=12)[:-1])
        line = f"[{now:%Y-%m-%d %H:%M:%S %z}] {text}\nCall stack (most recent call last):\n{stack}"
        path = self.folder / "dump_error_info.log"
        flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        flags |= os.O_TRUNC if first else os.O_APPEND
        try:
            with os.fdopen(os.open(path, flags, 0o640), "w", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError:
            return  # nothing can be written here, and nothing may disturb the program

    def flush(self) -> None:
        """Wait until everything recorded so far is in the files."""
        if self._writer is not None:
            self._writer.drain()
        with self._lock:
            try:
                if self._stacks is not None:
                    self._stacks.write()
            except OSError as error:
                self.complain(f"stack.json: {_reason(error)}")

    def close(self) -> None:
        """Finish all files; what comes later is not recorded."""
        if not self.active:
            return
        self.flush()
        with self._lock:
            self.active = False
            if self._writer is not None:
                self._writer.close()
            for file in (self._dump, self._construct):
                if file is None:
                    continue
                try:
                    file.finish()
                except OSError as error:
                    self.complain(f"{file.path.name}: {_reason(error)}")

    def move_to(self, folder: Path) -> None:
        """Give the closed folder the name of the rank, which was unknown when it was made."""
        if folder.exists():
            return
        self.folder.rename(folder)
        self.folder = folder
        dump_file = folder / self._name
        text = dump_file.read_text(encoding="utf-8")
        _, brace, rest = text.partition('"data": {')
        dump_file.write_text(encode(self._head())[:-1] + f", {brace}{rest}", encoding="utf-8")


def _masked(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], masked: tuple[int | str, ...]
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """The arguments without those that a collective only receives into."""
    if not masked:
        return args, kwargs
    return (
        tuple(None if index in masked else value for index, value in enumerate(args)),
        {key: None if key in masked else value for key, value in kwargs.items()},
    )


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:300] if lines else type(error).__name__


def _parameters(module: nn.Module) -> dict[str, Tensor]:
    """The parameters of a module itself, not of those inside it."""
    return {name: value for name, value in module._parameters.items() if value is not None}


class ParameterRecord:
    """The gradients of a module's parameters in one backward pass, as they come.

    Args:
        recording: where the record goes.
        module: name of the module.
    """

    def __init__(self, recording: Recording, module: str) -> None:
        self.recording = recording
        key = f"{module}.parameters_grad"
        self.name = f"{key}.{recording.count(key)}"
        self._call = Call(self.name, recording.next_order(), None, recording.saves(self.name))

    def __contains__(self, key: str) -> bool:
        return key in self._call.inputs

    def __len__(self) -> int:
        return len(self._call.inputs)

    def add(self, key: str, grad: Tensor) -> None:
        """Add the gradient of one parameter."""
        describer = self.recording.describer(self._call)
        try:
            self._call.inputs[key] = [describer.value(grad, f"{self.name}.{key}")]
        except Exception as error:  # noqa: BLE001 - exotic tensors; the program must go on
            self._call.inputs[key] = [None]
            self.recording.complain(f"{self.name}.{key}: {_reason(error)}")

    def write(self) -> None:
        """Write the record."""
        call = self._call
        self.recording.put(call.name, call.inputs, call.order, call.deferred)


def first_tensor(value: Any) -> Tensor | None:
    """The first tensor in what a call returned."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return None
    for item in value:
        found = first_tensor(item)
        if found is not None:
            return found
    return None
