"""What is at a URL: names that must not leave the folder of copies, and what goes wrong."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import fsspec
import pytest
from click.testing import CliRunner
from object_store import Store, use_s3
from odd_store import OddFileSystem

from ait_llm.cli.main import ait
from ait_llm.errors import MissingDependencyError, UsageError
from ait_llm.storage import StorageError, local_path, places


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("../../etc/passwd", "leads to another folder"),
        ("a/../../b", "leads to another folder"),
        ("/etc/passwd", "leads to another folder"),
        ("a//b", "leads to another folder"),
        ("./a", "leads to another folder"),
        ("a\0b", "no file can have"),
        ("x" * 300, "too long"),
    ],
)
def test_a_name_that_would_leave_the_folder_of_copies_is_refused(
    odd: Store, name: str, said: str, tmp_path: Path
) -> None:
    odd.write("run/good.npy", b"x" * 500)
    odd.write("run/bad.npy", b"y" * 500)
    root = odd.filesystem._strip_protocol(f"{odd.url}/run")
    OddFileSystem.names = {f"{root}/bad.npy": f"{root}/{name}"}
    with pytest.raises(StorageError, match=said):
        local_path(f"{odd.url}/run")
    assert not places.staged_files
    assert not list(places.cache().folder.glob("0*/**/*.npy"))


def test_a_key_of_another_folder_is_refused(odd: Store) -> None:
    odd.write("run/a.npy", b"x" * 500)
    root = odd.filesystem._strip_protocol(f"{odd.url}/run")
    OddFileSystem.names = {f"{root}/a.npy": "/etc/passwd"}
    with pytest.raises(StorageError, match="which lies elsewhere"):
        local_path(f"{odd.url}/run")


@pytest.mark.parametrize("key", ["a", "a/b"])
def test_a_name_of_a_file_and_a_folder_is_refused(s3: Store, key: str) -> None:
    s3.write(f"run/{key}", b"1")
    s3.write(f"run/{key}/c", b"2")
    with pytest.raises(StorageError, match=f"holds '{key}' both as a file and as a folder"):
        local_path(f"{s3.url}/run")


def test_keys_with_characters_that_match_others_are_taken_as_they_are(s3: Store) -> None:
    for name in ("a[0].json", "a0.json", "b*.json", "ü ?.json"):
        s3.write(f"run/{name}", name.encode())
    folder = local_path(f"{s3.url}/run")
    assert {path.name: path.read_text() for path in folder.iterdir()} == {
        name: name for name in ("a[0].json", "a0.json", "b*.json", "ü ?.json")
    }


def test_markers_of_empty_folders_are_no_files(s3: Store) -> None:
    s3.write("run/a.json", b"1")
    bucket, _, key = s3.url.removeprefix("s3://").partition("/")
    s3.filesystem.call_s3("put_object", Bucket=bucket, Key=f"{key}/run/empty/", Body=b"")
    folder = local_path(f"{s3.url}/run")
    assert [path.name for path in folder.iterdir()] == ["a.json"]


def said(*words: str) -> str:
    """What a command that cannot work says: one line, exit code 2."""
    result = CliRunner().invoke(ait, ["llm", *words])
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    [line] = result.output.splitlines()
    assert line.startswith("ait: error: ")
    return line


def test_an_unknown_protocol_is_wrong_use() -> None:
    assert "no storage of the protocol 'nosuch' is known" in said("show", "nosuch://a/b")
    with pytest.raises(UsageError):
        local_path("nosuch://a/b")


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    for name in ("s3", "s3a"):
        monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, name, raising=False)
    with pytest.raises(MissingDependencyError, match=r"pip install 'ait-llm\[s3\]'"):
        local_path("s3://a/b")


def test_without_fsspec_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(MissingDependencyError, match=r"memory://a needs.*'ait-llm\[remote\]'"):
        local_path("memory://a")


def test_a_missing_bucket_and_a_missing_key_are_told_apart(s3: Store) -> None:
    assert "s3://nowhere/run: its bucket does not exist" in said("show", "s3://nowhere/run")
    assert f"{s3.url}/run: no such file or folder" in said("show", f"{s3.url}/run")


def test_nobody_at_the_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    with _other_s3(monkeypatch, f"http://127.0.0.1:{port}"):
        line = said("show", "s3://bucket/run")
    assert "s3://bucket/run: the connection failed" in line


def test_refused_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"<Error><Code>InvalidAccessKeyId</Code><Message>Who is that?</Message></Error>"
    with _answering(403, body) as address, _other_s3(monkeypatch, address):
        line = said("show", "s3://bucket/run")
    assert "s3://bucket/run: access is refused" in line
    assert "something" not in line


def test_no_credentials(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> None:
    with _other_s3(monkeypatch, endpoint):
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        line = said("show", "s3://bucket/run")
    assert "no credentials were found. Set AWS_ACCESS_KEY_ID" in line


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermissionError("not for you"), "access is refused: not for you"),
        (ConnectionResetError("gone"), "the connection failed: gone"),
        (TimeoutError(), "the connection failed: TimeoutError"),
        (RuntimeError("first\nsecond"), "the store says: first"),
    ],
)
def test_other_errors_are_one_sentence(odd: Store, error: Exception, reason: str) -> None:
    OddFileSystem.fault = error
    assert f"{odd.url}: {reason}" in said("show", odd.url)


def test_passwords_of_urls_are_never_printed(monkeypatch: pytest.MonkeyPatch, odd: Store) -> None:
    OddFileSystem.fault = RuntimeError("login of me:hidden@host failed")
    line = said("show", "odd://me:hidden@host/run")
    assert "hidden" not in line
    assert "odd://me:***@host/run" in line


def test_a_url_that_became_a_path_is_explained() -> None:
    with pytest.raises(UsageError, match="loses a slash; give it as text"):
        local_path(Path("s3://bucket/run"))


def test_commands_start_without_fsspec() -> None:
    code = "import sys, ait_llm.cli.compare; sys.exit('fsspec' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@contextmanager
def _other_s3(monkeypatch: pytest.MonkeyPatch, address: str) -> Iterator[None]:
    """Another endpoint than that of the other tests, whose connections are kept."""
    kind = fsspec.get_filesystem_class("s3")
    kept = dict(kind._cache)
    kind.clear_instance_cache()
    use_s3(monkeypatch, address)
    try:
        yield
    finally:
        kind.clear_instance_cache()
        kind._cache.update(kept)


@contextmanager
def _answering(status: int, body: bytes) -> Iterator[str]:
    """A server that says the same to everybody."""
    server = socket.create_server(("127.0.0.1", 0))
    answer = (
        f"HTTP/1.1 {status} X\r\nContent-Type: application/xml\r\nConnection: close\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()

    def serve() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                request = connection.recv(65536)
                head_only = request.startswith(b"HEAD")
                connection.sendall(answer if head_only else answer + body)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()
