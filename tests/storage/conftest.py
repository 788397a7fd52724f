"""An object store of our own over a real socket, and a memory that forgets between tests."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from object_store import BUCKET, Store, use_s3
from odd_store import OddFileSystem

from ait_llm import storage


@pytest.fixture(autouse=True)
def _forgetting(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """Each test lists anew, and leaves nothing, results that were not sent included."""
    storage.forget()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
    yield
    storage.forget()
    fsspec.filesystem("memory").store.clear()


@pytest.fixture
def memory(tmp_path: Path) -> Store:
    return Store(f"memory://{tmp_path.name}", fsspec.filesystem("memory"))


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    """Address of a server that speaks S3."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()
    fsspec.get_filesystem_class("s3").clear_instance_cache()


@pytest.fixture
def s3(endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A folder in a bucket of that server, which the environment names."""
    use_s3(monkeypatch, endpoint)
    filesystem = fsspec.filesystem("s3")
    if not filesystem.exists(BUCKET):
        filesystem.mkdir(BUCKET)
    return Store(f"s3://{BUCKET}/{tmp_path.name}", filesystem)


@pytest.fixture(params=["memory", "s3"])
def store(request: pytest.FixtureRequest) -> Store:
    """Each kind of store in turn."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Store)
    return found


@pytest.fixture
def odd(tmp_path: Path) -> Iterator[Store]:
    """A store with faults."""
    OddFileSystem.reset()
    yield Store(f"odd://{tmp_path.name}", OddFileSystem())
    OddFileSystem.reset()
