"""The files of one folder: records, call stacks, modules, data and complaints."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import threading
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from torch import Tensor

from ait_llm.dump.api.account import Account
from ait_llm.dump.api.call_stacks import CallStacks, call_stack
from ait_llm.dump.api.calls import Call
from ait_llm.dump.api.complaints import Complaints, reason_of
from ait_llm.dump.api.growing_json import GrowingJson, encode
from ait_llm.dump.api.selection import Selection
from ait_llm.dump.api.settings import ApiSettings
from ait_llm.dump.api.tensor_files import FOLDER, TensorFiles
from ait_llm.dump.api.tensors import TensorEntries, unseen
from ait_llm.dump.api.values import Describer
from ait_llm.dump.folders import make_folder
from ait_llm.dump.pytorch.ledger import Ledger
from ait_llm.dump.pytorch.statistics import (
    KnownStatistics,
    NotKept,
    Reduced,
    share_model_threads,
)
from ait_llm.dump.pytorch.writer import BackgroundWriter

_MOMENT = 2.0
"""Seconds that the end of a step waits for calls on other threads."""


class Encoded(str):
    """A record that is JSON text already."""


class RecordFolder:
    """Writes ``dump.json``, ``stack.json``, ``construct.json`` and the data of one folder.

    Args:
        folder: ``{dump_path}/step{N}/{rank}``.
        settings: of the capture.
        ledger: of the process.
        holds: the ledger hears of the records when the folder is closed, unless it is discarded.

    Raises:
        OSError: the folder cannot be written.
    """

    def __init__(
        self, folder: Path, settings: ApiSettings, ledger: Ledger, *, holds: bool = False
    ) -> None:
        self.folder = folder
        self.settings = settings
        self.selection = Selection(settings)
        self.active = True
        self.closing = False
        self.paused = False
        self.process = os.getpid()
        self._counts: defaultdict[str, Iterator[int]] = defaultdict(itertools.count)
        self._last: dict[str, int] = {}
        self._order = itertools.count()
        self._lock = threading.RLock()
        self._ended = threading.Condition(self._lock)
        self._running: dict[str, int] = {}  # threads of calls that have begun, by record
        self._complaints = Complaints(folder)
        self._account = Account(ledger, folder, written_later=settings.asynchronous, holds=holds)
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

        def tensor(value: Tensor | Reduced | NotKept, name: str) -> dict[str, Any] | None:
            if isinstance(value, NotKept):
                self.lose(call, name, RuntimeError(value.reason))
                return None
            if isinstance(value, Reduced):
                return entries.reduced(value, call)
            try:
                call.identify(value, name)
                return entries.tensor(value, name, call)
            except Exception as error:  # noqa: BLE001 - exotic tensors; the others must not suffer
                self.lose(call, name, error)
                return unseen(value)

        def array(value: Any, name: str) -> dict[str, Any]:
            return entries.array(value, name, call)

        return Describer(tensor, array)

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

    def has_begun(self, call: Call) -> None:
        """A call runs on this thread, and its record is to be completed."""
        self._running[call.name] = threading.get_ident()

    def has_ended(self, call: Call) -> None:
        """It has its record, or needs none."""
        with self._lock:
            self._running.pop(call.name, None)
            self._ended.notify_all()

    def _wait_for_others(self) -> None:
        """Give calls of other threads a moment to end; a new one does not begin."""
        here = threading.get_ident()
        self._ended.wait_for(lambda: {here}.issuperset(self._running.values()), _MOMENT)

    def put(self, call: Call, record: Any) -> None:
        """Write a complete record, at once or as soon as a device has its numbers."""
        if not self.active:  # on another thread the step has ended meanwhile
            self.lose(call, call.name, RuntimeError("ended after its step, on another thread"))
            self._account.record(call, "")
        elif call.deferred or (self._writer is not None and self.settings.asynchronous):
            self._background().call(self._put_later, call, record)
        else:
            self._put_now(call, record)

    def _put_later(self, call: Call, record: Any) -> None:
        """Write a record behind the data of its tensors, on the writer's thread."""
        if call.outcome.lost and self.settings.asynchronous:
            self.complain(f"{call.name}: {call.outcome.reason}")
        try:
            for fill in call.deferred:
                fill()
        except RuntimeError as error:  # the device failed
            self.lose(call, call.name, error)
        with self._lock:
            self._put_now(call, record)

    def _put_now(self, call: Call, record: Any) -> None:
        text = ""
        try:
            with self._lock:
                text = record if isinstance(record, Encoded) else encode(record)
                self._dump.end(call.name, text, call.order)
        except (OSError, TypeError, ValueError) as error:
            self.lose(call, call.name, error)
        self._account.record(call, text)

    def lose(self, call: Call, name: str, error: Exception) -> None:
        """Note that a part of a record could not be had; the program goes on without it."""
        call.outcome.fail(error)
        self.complain(f"{name}: {reason_of(error)}")

    def next_order(self) -> int:
        """The place of a record that begins now."""
        return next(self._order)

    def count(self, key: str) -> int:
        """How often this was asked for the same key before, in this step."""
        return next(self._counts[key])

    def complain(self, text: str) -> None:
        """Note in ``dump_error_info.log`` what could not be recorded, each kind once."""
        self._complaints.add(text)

    def flush(self) -> None:
        """Wait until everything recorded so far is in the files."""
        if self._writer is not None:
            self._writer.drain()
        with self._lock:
            try:
                if self._stacks is not None:
                    self._stacks.write()
            except OSError as error:
                self._lose_file("stack.json", error)

    def _lose_file(self, name: str, error: OSError) -> None:
        self.complain(f"{name}: {reason_of(error)}")
        self._account.not_written(name, reason_of(error))

    def close(self) -> None:
        """Finish all files; what comes later is not recorded."""
        if not self.active:
            return
        self._finish_files()
        self._account.release()

    def discard(self) -> None:
        """Remove all files: what was recorded is nothing of the program's."""
        if self.active:
            self._finish_files()
        shutil.rmtree(self.folder, ignore_errors=True)
        with contextlib.suppress(OSError):  # another rank has its folder there
            self.folder.parent.rmdir()

    def _finish_files(self) -> None:
        with self._lock:
            self.closing = True
            self._wait_for_others()
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
                    self._lose_file(file.path.name, error)

    def move_to(self, folder: Path) -> None:
        """Give the closed folder the name of the rank, which was unknown when it was made."""
        if folder.exists():
            return
        self.folder.rename(folder)
        self.folder = folder
        self._account.move_to(folder)
        dump_file = folder / self._name
        text = dump_file.read_text(encoding="utf-8")
        _, brace, rest = text.partition('"data": {')
        dump_file.write_text(encode(self._head())[:-1] + f", {brace}{rest}", encoding="utf-8")
