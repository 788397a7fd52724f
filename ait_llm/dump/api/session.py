"""The capture of this process from one step to the next."""

from __future__ import annotations

import dataclasses
import logging
import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from ait_llm.dump.api import folders
from ait_llm.dump.api.account import open_ledger
from ait_llm.dump.api.capture import Capture
from ait_llm.dump.api.interception import Fingerprint, Interception
from ait_llm.dump.api.modules import ModuleWatch
from ait_llm.dump.api.names import Receiver
from ait_llm.dump.api.overflow import OverflowRecording
from ait_llm.dump.api.phases import PhaseWatch
from ait_llm.dump.api.recorder import Recorder
from ait_llm.dump.api.recording import Recording
from ait_llm.dump.api.scheduled import rows_of
from ait_llm.dump.api.settings import ApiSettings
from ait_llm.dump.api.tokens import TokenWatch, token_window
from ait_llm.dump.api.variables import save_variable
from ait_llm.dump.inject.channel import report
from ait_llm.dump.pytorch.ledger import Ledger
from ait_llm.errors import UsageError
from ait_llm.formats.api_list import ApiList, combined_apis

_log = logging.getLogger(__name__)
# Modules of quantised models call nothing else: without these their products are not seen.
_NAMESPACES = ("quantized",)
Models = nn.Module | Sequence[nn.Module] | None


class ApiSession:
    """Opens and closes windows of capture; between them the program runs as if there was none.

    Args:
        settings: of the capture.
        holds: a step is written down when it ends, as it may turn out to be none.
        hooks: False if whoever has the session records the modules.
    """

    def __init__(self, settings: ApiSettings, *, holds: bool = False, hooks: bool = True) -> None:
        self.settings = settings
        self._holds = holds
        self._hooks = hooks
        self.tape: Recorder[Any] | None = None
        """Gets calls of functions while a device records a graph."""
        self.step_number = 0
        self.reread: Callable[[], ApiSettings] | None = None
        """Reads the settings anew, for a capture that is switched on and off by its file."""
        self.recording: Recording | None = None
        self._process = os.getpid()
        self._rank_id: int | None = None
        self._ledger: Ledger | None = None
        self._lost = 0
        self._custom: list[tuple[Any, str, str]] = []
        self._capture: Capture | None = None
        self._listed: tuple[Path | None, ApiList, ApiList, Fingerprint] | None = None
        self._last: tuple[object, Capture] | None = None
        self._modules: ModuleWatch | None = None
        self._single: ModuleWatch | None = None
        self._phases: PhaseWatch | None = None
        self._tokens: TokenWatch | None = None
        self.on_overflow: Callable[[OverflowRecording], None] | None = None
        self._cleaned: set[str] = set()
        self._lock = threading.RLock()

        _sessions.add(self)

    @property
    def is_open(self) -> bool:
        """True from start to stop, when this step and rank are recorded."""
        return self._capture is not None or self._modules is not None

    def wants_this(self) -> bool:
        """Whether the present step and this rank are recorded."""
        settings = self.settings
        if settings.enabled is False or os.getpid() != self._process:
            return False
        if settings.steps and self.step_number not in settings.steps:
            return False
        known = folders.rank() if self._rank_id is None else self._rank_id
        return not settings.ranks or known is None or known in settings.ranks

    @property
    def is_finished(self) -> bool:
        """True when every step that was asked for has passed."""
        return bool(self.settings.steps) and self.step_number > max(self.settings.steps)

    def start(
        self,
        models: Models = None,
        rank_id: int | None = None,
        token_range: Sequence[int] | None = None,
        scheduled: Mapping[str, int] | None = None,
    ) -> bool:
        """Open a window; False if this step, rank or request is not recorded.

        Args:
            models: the model or models.
            rank_id: of this process.
            token_range: first and last forward pass to record, counted from here.
            scheduled: rows of each request in the packed tensors of an engine's step, in order.

        Raises:
            UsageError: a model is needed and missing, or the folder cannot be written.
        """
        with self._lock:
            self._rank_id = rank_id if rank_id is not None else self._rank_id
            self._reread()
            chosen = _as_list(models)
            if self.settings.modules and not chosen:
                raise UsageError(
                    f"level {self.settings.level} records modules: give the model, start(model)"
                )
            tokens = token_window(token_range, chosen)
            if self.is_open or self.settings.level == "debug" or not self.wants_this():
                return False
            rows = rows_of(self.settings.request_id, scheduled)
            if rows is None:
                return False
            recording = self._opened()
            recording.entries.look_at((*self.settings.slices, *rows))
            if scheduled:
                self.note("the rows of this step", step=self.step_number, rows=dict(scheduled))
            if tokens is not None:
                self._tokens = TokenWatch(recording, tokens)
                self._tokens.install(chosen)
            if self.settings.modules:
                self._phases = PhaseWatch()
                self._phases.install()
            if self.settings.apis:
                self._capture = self.prepared()
                self._capture.open(recording)
            if self.settings.modules:
                self._modules = ModuleWatch(recording)
                if self._hooks:
                    self._modules.install(chosen, numbered=not isinstance(models, nn.Module))
            return True

    def stop(self) -> None:
        """Close the window; the files are complete afterwards."""
        with self._lock:
            modules, self._modules = self._modules, None
            if modules is not None:
                modules.remove()
            self.end_module()
            for watch in (self._tokens, self._phases):
                if watch is not None:
                    watch.remove()
            self._tokens = self._phases = None
            capture, self._capture = self._capture, None
            if capture is not None:
                capture.close()
            if self.recording is not None and os.getpid() == self._process:
                self.recording.flush()
                self._seal("stop")

    def enter_thread(self) -> None:
        """Have calls of this thread recorded, too, while the window is open."""
        if self._capture is not None:
            self._capture.enter_thread()

    def leave_thread(self) -> None:
        """Have them recorded no more; the window stays open for other threads."""
        if self._capture is not None:
            self._capture.leave_thread()

    def note(self, text: str, **facts: Any) -> None:
        """Write a remark into the ledger, if there is one yet."""
        if self._ledger is not None and os.getpid() == self._process:
            self._ledger.note(text, **facts)

    def step(self, *, dump: bool = True) -> None:
        """End the step; an open window goes on in the next one.

        Args:
            dump: False if it was none: its records are removed and its number is given again. For
                a session that holds its steps.
        """
        with self._lock:
            self._finish(discard=not dump)
            self._seal("step")
            self.step_number += dump
            self._reread()
            if self.is_open:
                if self.wants_this():
                    recording = self._opened()
                    if self._capture is not None:
                        self._capture.recording = recording
                    for watch in (self._modules, self._single, self._tokens):
                        if watch is not None:
                            watch.recording = recording
                else:
                    self.stop()

    def close(self) -> None:
        """Close the window and finish the files of the step, and the ledger."""
        with self._lock:
            self.stop()
            self._finish()
            if os.getpid() == self._process:
                ledger, self._ledger = self._ledger, None
                if ledger is not None:
                    ledger.seal("exit")

    def save(self, variable: Any, name: str, save_backward: bool = True) -> None:
        """Record one variable; at other levels than debug nothing happens.

        Raises:
            UsageError: it is of a kind that cannot be recorded.
        """
        with self._lock:
            if self.settings.level == "debug" and self.wants_this():
                save_variable(self._opened(), variable, name, save_backward)

    def start_module(self, module: nn.Module, name: str) -> None:
        """Record the submodules of one module, under a name, until :meth:`end_module`."""
        with self._lock:
            self.end_module()
            if not self.wants_this():
                return
            self._single = ModuleWatch(self._opened())
            for path, child in module.named_modules():
                if path:
                    full = f"Module.{name}.{path}.{type(child).__name__}"
                    self._single.watch(child, full)

    def end_module(self) -> None:
        """End what :meth:`start_module` began."""
        single, self._single = self._single, None
        if single is not None:
            single.remove()
            if single.recording is not None:
                single.recording.flush()
            if not self.is_open:
                self._seal("stop")

    def add_function(self, owner: Any, name: str, prefix: str) -> None:
        """Record one more function from the next window on."""
        self._custom.append((owner, name, prefix))

    def remove_function(self, owner: Any, name: str) -> None:
        """Record it no more."""
        self._custom = [each for each in self._custom if each[:2] != (owner, name)]

    def prepared(self) -> Capture:
        """The capture of functions, made anew when some of them are others than before."""
        if self._listed is None or self._listed[0] != self.settings.wrap_ops:
            lists = combined_apis(self.settings.wrap_ops)
            self._listed = self.settings.wrap_ops, *lists, Fingerprint(*lists)
        _, apis, modules, fingerprint = self._listed
        namespaces = (*_NAMESPACES, *self.settings.custom_op_namespaces)
        custom = tuple(self._custom)
        known = namespaces, custom, fingerprint.take()
        if self._last is None or self._last[0] != known:

            def interception(receive: Receiver) -> Interception:
                return Interception(receive, apis, modules, namespaces, custom)

            self._last = known, Capture(interception)
        self._last[1].tape = self.tape
        return self._last[1]

    def _opened(self) -> Recording:
        """The recording of this step, made when it is first needed."""
        if self.recording is None:
            name = folders.rank_name(self._rank_id)
            root = self.settings.dump_path
            folder = root / f"step{self.step_number}" / name
            try:
                self._clean(name)
                self.recording = self._made(folder, self.ledger)
            except OSError as error:
                raise _not_here(error, folder) from error
        return self.recording

    @property
    def ledger(self) -> Ledger:
        """That of this process, made when it is first needed.

        Raises:
            UsageError: the folder cannot be written.
        """
        if self._ledger is None:
            name, folder = folders.rank_name(self._rank_id), self.settings.dump_path
            try:
                self._clean(name)
                self._ledger = open_ledger(folder, name, self.settings)
            except OSError as error:
                raise _not_here(error, folder) from error
            self._lost = 0
            report("ledger", path=str(self._ledger.path))
        return self._ledger

    def _clean(self, name: str) -> None:
        """Remove what an earlier run left for this rank, once."""
        if name not in self._cleaned:
            self._cleaned.add(name)
            folders.remove_earlier(self.settings.dump_path, name)

    def leave_to_parent(self) -> None:
        """After a fork: the capture is the parent's, and so are its files."""
        self._lock = threading.RLock()
        if self.recording is not None:
            self.recording.active = False
        if self._capture is not None:
            self._capture.recording = None
        self.recording = self._ledger = None

    def _reread(self) -> None:
        """Take what the file says now; a file that cannot be read switches the capture off."""
        if self.reread is None or self.recording is not None or self.is_open:
            return
        try:
            self.settings = self.reread()
            self._listed = None  # its file may be another one, too
        except UsageError as error:
            _log.warning("the capture is off: %s", error)
            self.settings = dataclasses.replace(self.settings, enabled=False)

    def _made(self, folder: Path, ledger: Ledger) -> Recording:
        if self.settings.task != "overflow_check":
            return Recording(folder, self.settings, ledger, holds=self._holds)
        recording = OverflowRecording(folder, self.settings, ledger)
        recording.on_overflow = self._overflowed
        return recording

    def _overflowed(self, recording: OverflowRecording) -> None:
        name = recording.found[-1]
        _log.warning("[overflow %d times]: %s, in %s", len(recording.found), name, recording.folder)
        if self.on_overflow is not None:
            self.on_overflow(recording)

    def _seal(self, end: str) -> None:
        """Say in the ledger that everything up to here is in the files."""
        if self._ledger is not None and os.getpid() == self._process:
            self._ledger.pause(end)
            lost, self._lost = self._ledger.losses - self._lost, self._ledger.losses
            if lost:
                _log.warning(
                    "%d of the records are not complete; dump_error_info.log beside them and %s "
                    "say which and why",
                    lost,
                    self._ledger.path,
                )

    def _finish(self, *, discard: bool = False) -> None:
        recording, self.recording = self.recording, None
        if recording is None or os.getpid() != self._process:
            return
        if discard:
            recording.discard()
            return
        recording.close()
        name = folders.rank_name(self._rank_id)
        if recording.folder.name.startswith("proc") and name.startswith("rank"):
            recording.move_to(recording.folder.with_name(name))


_sessions: weakref.WeakSet[ApiSession] = weakref.WeakSet()


def _forked() -> None:
    for session in list(_sessions):
        session.leave_to_parent()


os.register_at_fork(after_in_child=_forked)


def _not_here(error: OSError, folder: Path) -> UsageError:
    return UsageError(
        f"{error.filename or folder}: the capture cannot be written here ({error.strerror}); "
        "choose another dump_path"
    )


def _as_list(models: Models) -> list[nn.Module]:
    if models is None:
        return []
    found = [models] if isinstance(models, nn.Module) else list(models)
    for model in found:
        if not isinstance(model, nn.Module):
            raise UsageError(
                f"start: a model is a torch.nn.Module or a list of them, not {type(model).__name__}"
            )
    return found
