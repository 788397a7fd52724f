"""Writing captured tensors in the background, with a bound on what may wait.

The thread that runs the model hands over finished CPU copies; one thread writes them. When more
bytes wait than the limit allows, the model waits: memory never grows with the speed difference.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ait_llm.dump.folders import make_folder
from ait_llm.dump.pytorch.tensor_jobs import WriteJob, write_jobs

DEFAULT_QUEUE_BYTES = 256 << 20
# How long what is captured may wait; each look costs the model's thread some time.
_LOOK_SECONDS = 0.01
_GATHER_SECONDS = 0.05
_IDLE_LOOKS = 20
_REST_LOOKS = 3
_FLUSH_JOBS = 64
# One call writes no more than this: what it writes is given back when it returns.
_TOGETHER_BYTES = 1 << 20


Action = tuple[Callable[..., None], tuple[Any, ...]]
"""What to call on the writer's thread, and with what."""


class _Bell:
    """Wakes the one thread that waits for it.

    A lock does this without any Python code of its own, which ``threading.Event`` runs with the
    interpreter lock that the model's thread wants.
    """

    def __init__(self) -> None:
        self._silent = threading.Lock()
        self._silent.acquire()

    def ring(self) -> None:
        """End the present wait, or the next one."""
        with contextlib.suppress(RuntimeError):  # it rings already
            self._silent.release()

    def wait(self, seconds: float = -1) -> None:
        """Wait for the bell, or that long."""
        self._silent.acquire(timeout=seconds)


class BackgroundWriter:
    """A queue with one writer thread, started at the first job.

    Attributes:
        when_idle: called on the thread when there was nothing to do for a while.

    Args:
        queue_bytes: tensor bytes that may wait; one larger tensor may wait alone.
        flush: called on the thread whenever nothing is left to do, at least once in a while, and
            at the end.
    """

    def __init__(
        self, queue_bytes: int = DEFAULT_QUEUE_BYTES, flush: Callable[[], None] | None = None
    ) -> None:
        self._limit = queue_bytes
        self._flush = flush
        self._jobs: deque[WriteJob | Action | None] = deque()
        self._asleep = False
        self._due = False
        self._wake = _Bell()
        self._waiting = 0
        self._room = threading.Condition()
        self._starting = threading.Lock()
        self._thread: threading.Thread | None = None
        self._folders: set[str] = set()
        self.when_idle: Callable[[], None] | None = None

    def put(self, job: WriteJob) -> None:
        """Queue one file, waiting while the queue is full."""
        with self._room:
            while self._waiting and self._waiting + job.size > self._limit:
                self._wake.ring()
                self._room.wait()
            self._waiting += job.size
        self._submit(job)

    def call(self, action: Callable[..., None], *arguments: Any) -> None:
        """Run ``action(*arguments)`` on the writer thread after everything queued so far."""
        self._submit((action, arguments))

    def soon(self) -> None:
        """Flush before long, what is gathered meanwhile together: many small pieces at once.

        Each turn of this thread takes the interpreter, and its caches, from the model's.
        """
        self._due = True
        self._start()
        if self._asleep:
            self._wake.ring()

    def drain(self) -> None:
        """Wait until everything queued so far is done."""
        if self._thread is not None:
            done = threading.Event()
            if self._flush is not None:
                self.call(self._flush)
            self.call(done.set)
            self._wake.ring()
            done.wait()

    def close(self) -> None:
        """Finish the queue and end the thread."""
        with self._starting:
            thread, self._thread = self._thread, None
        if thread is not None:
            self._jobs.append(None)
            self._wake.ring()
            thread.join()

    def forget_folders(self) -> None:
        """Look anew which folders exist, when somebody may have removed some."""
        self._folders.clear()

    def _submit(self, job: WriteJob | Action) -> None:
        self._start()
        self._jobs.append(job)
        if self._asleep:
            self._wake.ring()

    def _start(self) -> None:
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    self._thread = threading.Thread(
                        target=self._run, name="ait-writer", daemon=True
                    )
                    self._thread.start()

    def _next(self) -> WriteJob | Action | None:
        """The next job; None when the thread is to end.

        Waking a thread costs the model's thread more than most of its jobs, so this one looks by
        itself every few milliseconds while a capture is going on, and sleeps only after a while.
        """
        idle = 0
        while True:
            if self._jobs:
                return self._jobs.popleft()
            if self._due:
                self._wake.wait(_GATHER_SECONDS)
                self._due = False
                if self._flush is not None:
                    self._do((self._flush, ()))
                idle = 0
                continue
            if idle == _REST_LOOKS and self.when_idle is not None:
                self._do((self.when_idle, ()))
            # Set before the last look: whoever appends later sees it.
            self._asleep = idle >= _IDLE_LOOKS
            if not self._jobs and not self._due:
                self._wake.wait(-1 if self._asleep else _LOOK_SECONDS)
            self._asleep = False
            idle += 1

    def _run(self) -> None:
        since = 0
        while (job := self._next()) is not None:
            # Nothing of a job may stay alive while the thread waits for the next one.
            if isinstance(job, WriteJob):
                jobs = self._with_more(job)
                del job
                since += len(jobs)
                self._write(jobs)
                del jobs
            else:
                self._do(job)
                del job
                since += 1
            if self._flush is not None and (not self._jobs or since >= _FLUSH_JOBS):
                self._do((self._flush, ()))
                since = 0
        if self._flush is not None:
            self._do((self._flush, ()))

    def _with_more(self, job: WriteJob) -> list[WriteJob]:
        """The job, and those behind it that are written in one call with it."""
        jobs, size = [job], job.size
        while job.is_plain_file and self._jobs and len(jobs) < _FLUSH_JOBS:
            following = self._jobs[0]
            if not isinstance(following, WriteJob) or not following.is_plain_file:
                break
            size += following.size
            if size > _TOGETHER_BYTES:
                break
            jobs.append(following)
            self._jobs.popleft()
        return jobs

    def _write(self, jobs: Sequence[WriteJob]) -> None:
        try:
            self._do((write_jobs, (jobs, self._make_folder)))
        finally:
            with self._room:
                self._waiting -= sum(job.size for job in jobs)
                self._room.notify_all()

    def _do(self, action: Action) -> None:
        function, arguments = action
        try:
            function(*arguments)
        except Exception:  # noqa: BLE001 - reported; a dead writer would block the program
            threading.excepthook(
                threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread()))
            )

    def _make_folder(self, folder: str) -> None:
        if folder not in self._folders:
            make_folder(Path(folder))
            self._folders.add(folder)
