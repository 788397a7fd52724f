"""The FX capture of one process: its folders, its ledger and the numbers of its graphs."""

from __future__ import annotations

import atexit
import datetime
import multiprocessing.util
import os
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import Any

from ait_llm.core.notices import notice
from ait_llm.dump.folders import make_folder
from ait_llm.dump.fx.options import FxOptions
from ait_llm.dump.pytorch.ledger import Ledger
from ait_llm.dumps.fx_place import FOLDER
from ait_llm.errors import UsageError

_MICROSECOND = datetime.timedelta(microseconds=1)
_MAX_GRAPHS = 1_000_000


class FxSession:
    """Captures the graphs of this process into one output folder.

    Args:
        options: what to record.

    Raises:
        UsageError: the output cannot be written.
    """

    def __init__(self, options: FxOptions, producer: str = "fx") -> None:
        self.options = options
        self._producer = producer
        self._graphs = 0
        self._executions: Counter[str] = Counter()
        self._last = datetime.datetime.min.replace(tzinfo=datetime.timezone.utc)
        self._lock = threading.Lock()
        self._ledger: Ledger | None = None
        self._closed = False
        folder = options.output / "ait_dump" / FOLDER
        try:
            make_folder(folder)
        except OSError as error:
            raise UsageError(
                f"{error.filename or folder}: the capture cannot be written here "
                f"({error.strerror}); choose another output folder"
            ) from error

    @property
    def folder(self) -> Path:
        """Where the graphs of this process go; named as torchair names it."""
        size, rank = world()
        return self.options.output / "ait_dump" / FOLDER / f"worldsize{size}_global_rank{rank}"

    def claim_graph(self) -> tuple[int, Path]:
        """A number for a new graph and its folder, which no other process has.

        Raises:
            OSError: the folder cannot be made.
        """
        folder = self.folder
        make_folder(folder)
        with self._lock:
            while self._graphs < _MAX_GRAPHS:
                self._graphs += 1
                place = folder / f"graph_{self._graphs}"
                try:
                    place.mkdir(mode=0o750)
                except FileExistsError:
                    continue  # of another process, or of an earlier run
                return self._graphs, place
        raise OSError(f"{folder} holds {_MAX_GRAPHS} graphs")

    def timestamp(self) -> str:
        """The time in 20 digits (UTC), different and later with each call."""
        with self._lock:
            now = datetime.datetime.now(datetime.timezone.utc)
            self._last = max(now, self._last + _MICROSECOND)
            return self._last.strftime("%Y%m%d%H%M%S%f")

    def record(self, line: dict[str, Any]) -> None:
        """Append the line of an executed node to the ledger."""
        with self._lock:
            ledger = self._open_ledger()
        if ledger is not None:
            ledger.operations([line])

    def executed(self, graph: str) -> None:
        """Count an execution of a graph, captured or not."""
        self._executions[graph] += 1

    def note(self, text: str, **facts: Any) -> None:
        """Append a remark to the ledger."""
        with self._lock:
            ledger = self._open_ledger()
        if ledger is not None:
            ledger.note(text, **facts)

    def not_written(self, path: str, reason: str) -> None:
        """Append to the ledger that a file could not be written, and so a graph is missing."""
        with self._lock:
            ledger = self._open_ledger()
        if ledger is not None:
            ledger.not_written(path, reason)

    def close(self, end: str) -> None:
        """Seal the ledger; harmless when done before."""
        if self.options.survey:
            self.note("executions", executions=dict(self._executions))
        self._closed = True
        if self._ledger is not None:
            self._ledger.seal(end)

    def rest(self) -> None:
        """Seal the ledger for now: what is captured up to here is whole; more may follow."""
        with self._lock:
            ledger = self._ledger
        if ledger is not None and not self._closed:
            ledger.rest("idle")

    def continue_in_child(self) -> None:
        """After a fork: the parent's ledger is not ours."""
        self._lock = threading.Lock()
        self._ledger = None

    def _open_ledger(self) -> Ledger | None:
        """The ledger of this process, made with its first line."""
        if self._ledger is None and not self._closed:
            path = self.options.output / "ait_dump" / "ledger" / f"fx_{os.getpid()}.jsonl"
            size, rank = world()
            options = {**self.options.as_json(), "worldsize": size, "rank": rank}
            try:
                self._ledger = Ledger(path, f"rank{rank}", options, producer="fx")
            except OSError as error:
                self._closed = True
                notice(f"the ledger {path} cannot be written: {error.strerror}")
                return None
            if multiprocessing.parent_process() is not None:
                # A forked worker leaves by os._exit after multiprocessing's own finalizers.
                multiprocessing.util.Finalize(None, self.close, args=("exit",), exitpriority=0)
        return self._ledger


def world() -> tuple[int, int]:
    """World size and rank; 1 and 0 where torch.distributed is not used, as torchair has it."""
    torch = sys.modules.get("torch")  # programs of ONNX Runtime need none
    if torch is None or not torch.distributed.is_available():
        return 1, 0
    distributed = torch.distributed
    if distributed.is_initialized():
        return distributed.get_world_size(), distributed.get_rank()
    return 1, 0


class _Sessions:
    """The sessions of this process, sealed when the interpreter exits.

    In a notebook the end of each cell seals them for now: its interpreter goes on while what it
    captured is looked at.
    """

    def __init__(self) -> None:
        self._open: dict[Path, FxSession] = {}
        self._notebook: Any = None
        atexit.register(self._close_all)
        os.register_at_fork(after_in_child=self._continue)

    def get(self, options: FxOptions) -> FxSession:
        """The session that writes into an output; several graphs of a process share it.

        Raises:
            UsageError: it runs with other settings, or the output cannot be written.
        """
        self._watch_notebook()
        session = self._open.get(options.output)
        if session is None:
            session = self._open[options.output] = FxSession(options)
        elif session.options != options:
            raise UsageError(
                f"{options.output}: a capture of this process with other settings writes here; "
                "choose another output folder"
            )
        return session

    def rest(self) -> None:
        """Seal all for now."""
        for session in self._open.values():
            session.rest()

    def _watch_notebook(self) -> None:
        find = getattr(sys.modules.get("IPython"), "get_ipython", None)
        shell = find() if find is not None else None
        if shell is not None and shell is not self._notebook:
            self._notebook = shell
            shell.events.register("post_run_cell", lambda *_result: self.rest())

    def _close_all(self) -> None:
        for session in self._open.values():
            session.close("exit")

    def _continue(self) -> None:
        for session in self._open.values():
            session.continue_in_child()


sessions = _Sessions()
