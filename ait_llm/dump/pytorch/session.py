"""The capture of one process: folders, ledger, and the models that are hooked."""

from __future__ import annotations

import atexit
import dataclasses
import itertools
import multiprocessing.util
import os
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ait_llm.core.notices import notice
from ait_llm.dump.pytorch.beside import beside
from ait_llm.dump.pytorch.following import Follower
from ait_llm.dump.pytorch.following_loops import LoopFollower
from ait_llm.dump.pytorch.generating import stop_watching, watch_generate
from ait_llm.dump.pytorch.ledger import Ledger
from ait_llm.dump.pytorch.model_capture import ModelCapture
from ait_llm.dump.pytorch.model_tree import write_module_tree
from ait_llm.dump.pytorch.notes import Notes
from ait_llm.dump.pytorch.options import CaptureOptions
from ait_llm.dump.pytorch.recorder import Recorder
from ait_llm.dump.pytorch.unit import WEIGHTS
from ait_llm.errors import UsageError

# Module names in one note of the ledger.
_MAX_NAMES = 500


class CaptureSession:
    """Captures one or more models of this process into one output folder.

    A forked child goes on with the same hooks in a folder and a ledger of its own, made when it
    first calls a model.

    Args:
        options: what to record.
        device: device of the first model.
        follower: makes ``generate`` take the tokens of a golden run; None if it takes its own.
        notes: what was noted before there was a session, and more of it; None where nothing was.

    Raises:
        UsageError: the output folder cannot be written.
    """

    def __init__(
        self,
        options: CaptureOptions,
        device: torch.device,
        follower: Follower | None = None,
        notes: Notes | None = None,
    ) -> None:
        self.options = options
        self._follower = follower
        self._loops: list[LoopFollower] = []
        self.device = device_text(device)
        self.models: list[ModelCapture] = []
        self.closed = False
        self._recorder: Recorder | None = None
        self._lock = threading.RLock()
        self._open()
        self._notes = notes or (Notes() if follower is None else follower.notes)
        self._notes.attach(lambda kind, facts: self._ledger.told(kind, facts))
        watch_generate(self._notes, self.step_of, follower)

    @property
    def folder(self) -> Path:
        """Where this process's tensors go."""
        return self.options.output / "ait_dump" / "torch_tensors" / self._name

    @property
    def recorder(self) -> Recorder:
        """The recorder of this process."""
        if self._recorder is not None:
            return self._recorder
        with self._lock:
            if self._recorder is None:
                self._open_in_child()
            assert self._recorder is not None
            return self._recorder

    def capture(self, model: nn.Module) -> ModelCapture:
        """Hook ``model``; the first model is called ``root``, later ones ``root1``, ``root2``.

        A model that is captured already is not hooked twice.
        """
        for capture in self.models:
            if capture.model is model and not capture.removed:
                return capture
        root = f"root{len(self.models) or ''}"
        capture = ModelCapture(model, self, root)
        self.models.append(capture)
        if self._follower is not None:
            loop = LoopFollower(self._follower, lambda: capture.steps.step)
            loop.watch(model)
            capture.on_call = loop.before
            self._loops.append(loop)
        self._tell_model(capture)
        return capture

    def pause(self) -> None:
        """Take all hooks off and write everything up to here; :meth:`resume` goes on."""
        for capture in self.models:
            if not capture.removed:
                capture.pause()
        if self._recorder is not None and not self.closed:
            self._recorder.pause("off")

    def resume(self) -> None:
        """Put the hooks on again."""
        for capture in self.models:
            capture.resume()

    def _rest(self) -> None:
        """Seal what an engine has computed while it waits for requests: it may be killed then."""
        engines = [capture.engine for capture in self.models]
        if engines and all(engine is not None and engine.is_idle for engine in engines):
            self._ledger.rest("idle")

    def release(self, capture: ModelCapture) -> None:
        """End the capture of one model, and with the last one the session."""
        capture.remove()
        if all(each.removed for each in self.models):
            self.close("removed")

    def close(self, end: str) -> None:
        """Remove all hooks, finish writing and seal the ledger; harmless when done before."""
        if self.closed:
            return
        self.closed = True
        for capture in self.models:
            capture.remove()
        for loop, capture in zip(self._loops, self.models, strict=False):
            loop.finish(capture.steps.step > 0)
        stop_watching(self._notes)
        if self._recorder is not None:
            for capture in self.models:
                self._report_unseen(capture)
                self._report_outside(capture)
                if self._recorder.survey is not None:
                    self._recorder.survey.steps(capture.root, capture.steps.step + 1)
            self._recorder.close(end)

    def continue_in_child(self) -> None:
        """After a fork: the parent's writer thread and files are not ours."""
        self._recorder = None
        self._lock = threading.RLock()
        for capture in self.models:
            capture.continue_in_child()

    @property
    def _name(self) -> str:
        return f"{self.device}_{os.getpid()}"

    def _open(self) -> None:
        path = self.options.output / "ait_dump" / "ledger" / f"{self._name}.jsonl"
        try:
            remove_earlier(self.folder)
            self._ledger = Ledger(path, self.device, self.options.as_json())
        except OSError as error:
            raise UsageError(
                f"{error.filename or path}: the capture cannot be written here "
                f"({error.strerror}); choose another output folder"
            ) from error
        self._recorder = self._new_recorder()
        self._recorder.writer.when_idle = self._rest
        if multiprocessing.parent_process() is not None:
            # A forked worker leaves by os._exit after multiprocessing's own finalizers.
            multiprocessing.util.Finalize(None, self.close, args=("exit",), exitpriority=0)

    def _new_recorder(self) -> Recorder:
        options = self.options
        if options.patches is None:
            return Recorder(self.folder, self._ledger, options)
        from ait_llm.dump.pytorch.contributing import patching_recorder  # seldom wanted

        return patching_recorder(self.folder, self._ledger, options, options.patches)

    def _open_in_child(self) -> None:
        """Go on in a forked child; if that fails the child runs on without a capture."""
        try:
            self._open()
        except UsageError as error:
            notice(f"nothing of process {os.getpid()} is captured: {error}")
            self._ledger = Ledger(Path(os.devnull), self.device, {})
            options = dataclasses.replace(
                self.options, data=False, statistics=False, descriptions=False, weights=False
            )
            self._recorder = Recorder(self.folder, self._ledger, options)
            return
        for capture in self.models:
            if not capture.removed:
                self._tell_model(capture)

    def _tell_model(self, capture: ModelCapture) -> None:
        """Write down what the model is: its tree, its weights, and modules at several places."""
        name = "model_tree.json" if capture.root == "root" else f"model_tree_{capture.root}.json"
        recorder = self.recorder
        try:
            write_module_tree(self.folder / name, capture.model, capture.root)
        except OSError as error:
            self._ledger.note(f"{name} could not be written: {error.strerror}")
            notice(f"{self.folder / name} could not be written: {error}")
        if capture.aliases:
            self._ledger.note(
                "modules at several places are recorded under the first that is selected",
                places=_at_most(capture.aliases, _MAX_NAMES),
            )
        parameters = capture.model.named_parameters()
        recorder.know_weights({f"{capture.root}.{name}": tensor for name, tensor in parameters})
        if self.options.weights:
            self._save_weights(capture)

    def _save_weights(self, capture: ModelCapture) -> None:
        unit = self.recorder.unit(f"{capture.root}.weights", WEIGHTS, 0)
        unit.folder = str(self.folder / "weights")
        tied = _tied(capture.model)
        own = None if not self.options.own_code else _own_names(capture, tied)
        for name, tensor in _weights(capture.model):
            if own is None or name in own:
                self.recorder.values(unit, tensor, f"{capture.root}.{name}")
        for owner, name, tensor in beside(capture.model):
            if own is None or owner in own:
                self.recorder.values(unit, tensor, f"{capture.root}.{name}")
        for name, other in tied.items():
            unit.values[f"{capture.root}.{name}"] = f"{capture.root}.{other}"
        self.recorder.finish(unit)

    def _report_unseen(self, capture: ModelCapture) -> None:
        unseen = capture.unseen()
        compiled = [
            path
            for path, module in capture.selected.items()
            if _is_compiled(module) and not _is_seen_inside(path, capture, unseen)
        ]
        hidden = [
            path
            for path in unseen
            if path in capture.hidden or any(_below(path, outer) for outer in compiled)
        ]
        reached = any(first <= capture.steps.step for first, _ in self.options.steps.intervals)
        if hidden and reached:
            text = (
                f"{len(hidden)} of {len(capture.selected)} modules run inside torch.compile, where "
                "hooks do not see them; set TORCHDYNAMO_DISABLE=1 for the captured run to see "
                "them all"
            )
            self._ledger.note(text, unseen=len(hidden), modules=hidden[:_MAX_NAMES])
            notice(f"{text} (first: {hidden[0]})")

    def step_of(self, model: nn.Module) -> int:
        """The step that the capture of a model, or of what wraps it, is at; -1 without one."""
        for capture in self.models:
            if any(each is model for each in capture.model.modules()):
                return capture.steps.step
        return -1

    def _report_outside(self, capture: ModelCapture) -> None:
        """Name calls of modules while the model itself was not running."""
        if not capture.outside:
            return
        text = (
            f"{sum(capture.outside.values())} calls of modules of {capture.root} were not "
            "captured: they belong to no forward call of the model itself"
        )
        self._ledger.note(
            text,
            outside=sum(capture.outside.values()),
            modules=_at_most(capture.outside, _MAX_NAMES),
        )
        if capture.steps.step < 0:
            notice(
                f"{text}; register the hook on the module that is called "
                f"(called: {next(iter(capture.outside))})"
            )


def _weights(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Parameters, then buffers, each tensor once."""
    return [*model.named_parameters(), *model.named_buffers()]


def _own_names(capture: ModelCapture, tied: Mapping[str, str]) -> set[str]:
    """Names under which parameters and buffers of the recorded modules themselves are saved."""
    every = (name for name, _ in _weights(capture.model))
    return {
        tied.get(name, name)
        for name in (*every, *tied)
        if f"{capture.root}.{name}".rpartition(".")[0] in capture.selected
    }


def _tied(model: nn.Module) -> dict[str, str]:
    """Names of parameters and buffers that are saved by another name, with that name."""
    names = {id(tensor): name for name, tensor in _weights(model)}
    every = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    return {name: names[id(tensor)] for name, tensor in every if names[id(tensor)] != name}


def _is_seen_inside(outer: str, capture: ModelCapture, unseen: list[str]) -> bool:
    """True if a graph reported a member: those that it did not are not called."""
    inside = [path for path in capture.selected if path != outer and _below(path, outer)]
    return len(inside) > sum(path in inside for path in unseen)


def _is_compiled(module: nn.Module) -> bool:
    """True for a module that is compiled, with its members: by torch, or as vLLM does it."""
    return (
        hasattr(module, "_orig_mod")
        or getattr(module, "_compiled_call_impl", None) is not None
        or getattr(module, "_compiled_callable", None) is not None
    )


def _below(path: str, outer: str) -> bool:
    return path == outer or path.startswith(outer + ".")


def device_text(device: torch.device) -> str:
    """``cpu``, ``cuda0``, ``npu1``: the device in folder names."""
    if device.type == "cpu":
        return "cpu"
    return f"{device.type}{device.index or 0}"


def _at_most(entries: Mapping[str, Any], limit: int) -> dict[str, Any]:
    return dict(itertools.islice(entries.items(), limit))


def remove_earlier(folder: Path) -> None:
    """Remove what an earlier capture left in the folder of this process: a dump is one capture."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for entry in folder.iterdir():
        if entry.is_symlink():
            continue
        if entry.is_dir() and (entry.name.isdecimal() or entry.name == "weights"):
            shutil.rmtree(entry)
        elif entry.name.startswith("model_tree") and entry.suffix == ".json":
            entry.unlink()


class _Sessions:
    """The sessions of this process, closed in order when the interpreter exits."""

    def __init__(self) -> None:
        self._open: list[CaptureSession] = []
        self._lock = threading.Lock()
        atexit.register(self.close_all)
        os.register_at_fork(after_in_child=self._continue)

    def find(self, options: CaptureOptions) -> CaptureSession | None:
        """A running session with the same settings, for several models of one process.

        Raises:
            UsageError: a running session with other settings has the same output folder.
        """
        with self._lock:
            self._open = [session for session in self._open if not session.closed]
            for session in self._open:
                if session.options == options:
                    return session
                if session.options.output == options.output:
                    raise UsageError(
                        f"{options.output}: a capture of this process with other settings writes "
                        "here; remove() it first, or choose another output folder"
                    )
        return None

    def add(self, session: CaptureSession) -> None:
        """Remember to close ``session``."""
        with self._lock:
            if session not in self._open:
                self._open.append(session)

    def close_all(self) -> None:
        """Seal all ledgers."""
        for session in self._open:
            session.close("exit")
        self._open.clear()

    def _continue(self) -> None:
        self._lock = threading.Lock()
        for session in self._open:
            session.continue_in_child()


sessions = _Sessions()
