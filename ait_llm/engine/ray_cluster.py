"""A Ray cluster to work on: a running one, or worker processes of our own for a while.

Ray is kept quiet: it says nothing on stderr, sends no usage statistics and starts no dashboard.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ait_llm.engine.ray_silence import asking
from ait_llm.errors import AitError, UsageError

# Results are small; what does not fit is written to disk.
_STORE_BYTES = 128 << 20
# Paths of sockets are limited to 107 bytes, and TMPDIR may be long.
_FOLDER = Path("/tmp")
_QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # else a warning about GPUs that nobody asked for
}
logger = logging.getLogger(__name__)
_REACH_SECONDS = 10.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def open_cluster(address: str | None, jobs: int | None) -> Iterator[None]:
    """Be connected to a cluster.

    Within a program that is connected already, and in a worker, that cluster is used and left as
    it is.

    Args:
        address: ``auto`` or ``HOST:PORT``; None to start worker processes here, which end with
            the context.
        jobs: worker processes to start; None for one for each processor.

    Raises:
        UsageError: there is no cluster at the address, or none can be started.
    """
    import ray

    if ray.is_initialized():
        yield
        return
    if address is not None and "://" in address:
        raise UsageError(
            f"--address {address}: give auto or HOST:PORT, on a machine that is a node of the "
            "cluster (ray start --address=HOST:PORT makes it one)"
        )
    if address is not None and address != "auto":
        _reach(address)
    folder = None
    settings: dict[str, Any] = {"address": address}
    if address is None:
        remove_abandoned()
        folder = Path(tempfile.mkdtemp(prefix=f"ait-ray-{os.getpid()}-", dir=_FOLDER))
        settings = {
            "address": "local",
            "num_cpus": jobs or len(os.sched_getaffinity(0)),
            "num_gpus": 0,
            "include_dashboard": False,
            "object_store_memory": _STORE_BYTES,
            "_temp_dir": str(folder),
            "_system_config": {"worker_niceness": 0},  # they are the command, not guests
        }
    try:
        with _silent_nodes():
            with _kept_signals(), _quiet():
                _connect(settings)
            yield
    finally:
        with _kept_signals(), asking():
            ray.shutdown()
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def remove_abandoned() -> None:
    """Delete what a command left behind that was killed: its name has the process in it."""
    for folder in _FOLDER.glob("ait-ray-*"):
        found = re.fullmatch(r"ait-ray-(\d+)-\w+", folder.name)
        try:
            ours = folder.lstat().st_uid == os.getuid()
        except OSError:
            continue
        if found is not None and ours and not Path("/proc", found[1]).exists():
            shutil.rmtree(folder, ignore_errors=True)


@asking()
def _connect(settings: dict[str, Any]) -> None:
    import ray

    given = settings["address"]
    try:
        ray.init(**settings, log_to_driver=False, logging_level=logging.CRITICAL)
    except AitError:
        raise
    except Exception as error:  # noqa: BLE001  Ray raises a bare one where its node starts too late
        reason = " ".join(str(error).split()).rstrip(".")
        if given == "local":
            raise UsageError(f"Ray cannot be started here: {reason}") from None
        if given == "auto":
            raise UsageError(
                f"--address auto: {reason}; start one with ray start --head, or leave out --address"
            ) from None
        raise UsageError(
            f"--address {given}: {reason}; this machine must be a node of that cluster, which ray "
            "status tells"
        ) from None


def _reach(address: str) -> None:
    """See that something answers, for Ray itself tries for minutes.

    Raises:
        UsageError: it is no address, or nothing does.
    """
    host, _, port = address.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536):
        raise UsageError(f"--address {address}: is neither auto nor HOST:PORT")
    try:
        socket.create_connection((host.strip("[]"), int(port)), _REACH_SECONDS).close()
    except OSError as error:
        raise UsageError(
            f"--address {address}: nothing answers there ({error.strerror or error}); give the "
            "address that ray start --head printed"
        ) from None


@contextmanager
def _kept_signals() -> Iterator[None]:
    """Ray installs handlers that exit; ours stay."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)


@contextmanager
def _silent_nodes() -> Iterator[None]:
    """Ray prints on stdout when a node dies, whatever it is told; our reports say it."""
    from ray._private import worker

    name = "print_to_stdstream"
    before = getattr(worker, name, None)
    if before is None:
        yield
        return
    setattr(worker, name, lambda data, **_: logger.debug("ray: %s", data.get("lines")))
    try:
        yield
    finally:
        setattr(worker, name, before)


@contextmanager
def _quiet() -> Iterator[None]:
    """The environment of all processes that Ray starts meanwhile; what the user set counts."""
    added = {name: value for name, value in _QUIET.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)
