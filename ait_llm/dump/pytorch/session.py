"""The capture of one process: folders, ledger, and the models that are hooked."""

from __future__ import annotations

import atexit
import multiprocessing.util
import os
import sys
import threading
from pathlib import Path

import torch
from torch import nn

from ait_llm.dump.pytorch.ledger import Ledger
from ait_llm.dump.pytorch.model_capture import ModelCapture
from ait_llm.dump.pytorch.model_tree import write_module_tree
from ait_llm.dump.pytorch.options import CaptureOptions
from ait_llm.dump.pytorch.recorder import WEIGHTS, Recorder


class CaptureSession:
    """Captures one or more models of this process into one output folder.

    A forked child goes on with the same hooks in a folder and a ledger of its own, made when it
    first calls a model.

    Args:
        options: what to record.
        device: device of the first model.
    """

    def __init__(self, options: CaptureOptions, device: torch.device) -> None:
        self.options = options
        self.device = device_text(device)
        self.models: list[ModelCapture] = []
        self.closed = False
        self._recorder: Recorder | None = None
        self._lock = threading.Lock()
        self._open()

    @property
    def folder(self) -> Path:
        """Where this process's tensors go."""
        return self.options.output / "ait_dump" / "torch_tensors" / self._name

    @property
    def recorder(self) -> Recorder:
        """The recorder of this process."""
        with self._lock:
            if self._recorder is None:
                self._open()
            assert self._recorder is not None
            return self._recorder

    def capture(self, model: nn.Module) -> ModelCapture:
        """Hook ``model``; the first model is called ``root``, later ones ``root1``, ``root2``."""
        root = f"root{len(self.models) or ''}"
        capture = ModelCapture(model, self, root)
        self.models.append(capture)
        self._write_tree(capture)
        self._know_weights(capture)
        if self.options.weights:
            self._save_weights(capture)
        return capture

    def close(self, end: str) -> None:
        """Remove all hooks, finish writing and seal the ledger; harmless when done before."""
        if self.closed:
            return
        self.closed = True
        for capture in self.models:
            capture.remove()
        if self._recorder is not None:
            for capture in self.models:
                self._report_unseen(capture)
            self._recorder.close(end)

    def continue_in_child(self) -> None:
        """After a fork: the parent's writer thread and files are not ours."""
        self._recorder = None
        self._lock = threading.Lock()

    @property
    def _name(self) -> str:
        return f"{self.device}_{os.getpid()}"

    def _open(self) -> None:
        path = self.options.output / "ait_dump" / "ledger" / f"{self._name}.jsonl"
        self._ledger = Ledger(path, self.device, self.options.as_json())
        self._recorder = Recorder(self.folder, self._ledger, self.options)
        for capture in self.models:
            self._write_tree(capture)
            self._know_weights(capture)
        if multiprocessing.parent_process() is not None:
            # A forked worker leaves by os._exit after multiprocessing's own finalizers.
            multiprocessing.util.Finalize(None, self.close, args=("exit",), exitpriority=0)

    def _write_tree(self, capture: ModelCapture) -> None:
        name = "model_tree.json" if capture.root == "root" else f"model_tree_{capture.root}.json"
        write_module_tree(self.folder / name, capture.model, capture.root)

    def _know_weights(self, capture: ModelCapture) -> None:
        assert self._recorder is not None
        names = {
            tensor.untyped_storage().data_ptr(): f"{capture.root}.{name}"
            for name, tensor in _weights(capture.model)
            if type(tensor.data) is torch.Tensor and tensor.device.type != "meta"
        }
        names.pop(0, None)
        self._recorder.know_weights(names)

    def _save_weights(self, capture: ModelCapture) -> None:
        unit = self.recorder.unit(f"{capture.root}.weights", WEIGHTS, 0)
        unit.folder = self.folder / "weights"
        for name, tensor in _weights(capture.model):
            self.recorder.values(unit, tensor, f"{capture.root}.{name}")
        self.recorder.finish(unit)

    def _report_unseen(self, capture: ModelCapture) -> None:
        compiled = [
            path
            for path, module in capture.selected.items()
            if hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None)
        ]
        unseen = capture.unseen()
        hidden = [path for path in unseen if any(_below(path, outer) for outer in compiled)]
        if hidden and capture.steps.step >= 0:
            text = (
                f"{len(hidden)} of {len(capture.selected)} modules run inside torch.compile, where "
                "hooks do not see them; set TORCH_COMPILE_DISABLE=1 for the captured run to see "
                "them all"
            )
            self._ledger.note(text, modules=hidden)
            sys.stderr.write(f"ait: {text} (first: {hidden[0]})\n")


def _weights(model: nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Parameters, then buffers, each tensor once."""
    return [*model.named_parameters(), *model.named_buffers()]


def _below(path: str, outer: str) -> bool:
    return path == outer or path.startswith(outer + ".")


def device_text(device: torch.device) -> str:
    """``cpu``, ``cuda0``, ``npu1``: the device in folder names."""
    if device.type == "cpu":
        return "cpu"
    return f"{device.type}{device.index or 0}"


def model_device(model: nn.Module) -> torch.device:
    """The device of the first parameter or buffer; the CPU for a model without any."""
    for tensors in (model.parameters(), model.buffers()):
        for tensor in tensors:
            return tensor.device
    return torch.device("cpu")


class _Sessions:
    """The sessions of this process, closed in order when the interpreter exits."""

    def __init__(self) -> None:
        self._open: list[CaptureSession] = []
        self._lock = threading.Lock()
        atexit.register(self.close_all)
        os.register_at_fork(after_in_child=self._continue)

    def find(self, options: CaptureOptions) -> CaptureSession | None:
        """A running session with the same settings, for several models of one process."""
        with self._lock:
            for session in self._open:
                if session.options == options and not session.closed:
                    return session
        return None

    def add(self, session: CaptureSession) -> None:
        with self._lock:
            if session not in self._open:
                self._open.append(session)

    def close_all(self) -> None:
        for session in self._open:
            session.close("exit")
        self._open.clear()

    def _continue(self) -> None:
        self._lock = threading.Lock()
        for session in self._open:
            session.continue_in_child()


sessions = _Sessions()
