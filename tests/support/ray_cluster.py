"""A real Ray cluster of several nodes on this machine, for tests."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray.cluster_utils import Cluster

_STORE_BYTES = 80 << 20
# So that a node that is killed is missed within a second.
_HEALTH = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 300,
    "health_check_failure_threshold": 2,
    "health_check_timeout_ms": 2000,
}
_SECONDS = 60


@dataclass
class NodesHere:
    """A cluster that this process is connected to.

    Attributes:
        address: ``HOST:PORT``.
    """

    cluster: Any
    address: str

    def add_node(self, folder: Path) -> Any:
        """A node with one processor whose processes work in a folder."""
        before = Path.cwd()
        os.chdir(folder)
        try:
            return self.cluster.add_node(num_cpus=1, object_store_memory=_STORE_BYTES)
        finally:
            os.chdir(before)

    def remove(self, node: Any) -> None:
        """End a node, also one whose processes are dead already, and wait until it is missed."""
        with contextlib.suppress(Exception):
            self.cluster.remove_node(node, allow_graceful=False)
        wait_until(lambda: alive() == len(self.cluster.list_all_nodes()))


def alive() -> int:
    """How many nodes are alive."""
    return sum(node["Alive"] for node in ray.nodes())


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait until something is so.

    Raises:
        TimeoutError: it does not become so.
    """
    end = time.monotonic() + _SECONDS
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"{condition} is not so after {_SECONDS} s")
        time.sleep(0.02)


@contextlib.contextmanager
def nodes_here() -> Iterator[NodesHere]:
    """Two nodes with a processor each."""
    folder = Path(tempfile.mkdtemp(prefix="ait-", dir="/tmp"))  # paths of sockets are short
    (folder / "ray").mkdir()
    settings = {"RAY_TMPDIR": str(folder), "RAY_USAGE_STATS_ENABLED": "0"}
    settings["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    before = {name: os.environ.get(name) for name in settings}
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    os.environ.update(settings)
    node = {"num_cpus": 1, "object_store_memory": _STORE_BYTES, "include_dashboard": False}
    cluster = Cluster(
        initialize_head=True,
        head_node_args={**node, "_system_config": _HEALTH},
    )
    try:
        cluster.add_node(num_cpus=1, object_store_memory=_STORE_BYTES)
        ray.init(address=cluster.address, log_to_driver=False, logging_level=logging.CRITICAL)
        yield NodesHere(cluster, cluster.address)
    finally:
        ray.shutdown()
        cluster.shutdown()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        for number, handler in handlers.items():
            signal.signal(number, handler)
        shutil.rmtree(folder, ignore_errors=True)
