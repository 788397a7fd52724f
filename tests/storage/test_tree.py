"""Placeholders, what takes their place, and what is dropped again."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from ge_dump_files import of, write_file
from object_store import Store
from odd_store import OddFileSystem

from ait_llm.core import TensorDesc
from ait_llm.errors import FormatError, UsageError
from ait_llm.formats import dtype_of, load, write_tensor
from ait_llm.formats.locate import locate
from ait_llm.formats.save import save
from ait_llm.storage import StorageError, local_path, placeholders, prefetch, staged
from ait_llm.storage.cache import Cache, cache_limit
from ait_llm.storage.placeholders import MARKER, make_placeholder, take_place
from ait_llm.storage.places import cache
from ait_llm.storage.tree import RemoteTensorFile

LARGE = np.arange(120_000, dtype=np.float32).reshape(300, 400)  # 480 kB: not a small file


def _npy(path: Path) -> None:
    np.save(path, LARGE)


def _atb(path: Path) -> None:
    write_tensor(path, LARGE, TensorDesc(dtype_of(LARGE), LARGE.shape))


def _torch(path: Path) -> None:
    torch.save(torch.from_numpy(LARGE), path)


def _old_torch(path: Path) -> None:
    torch.save(torch.from_numpy(LARGE), path, _use_new_zipfile_serialization=False)


def _safetensors(path: Path) -> None:
    from ait_llm.formats.loaded import LoadedTensor

    save(path, {"x": LoadedTensor(LARGE, dtype_of(LARGE))}, "safetensors")


def _ge(path: Path) -> None:
    write_file(path, [of(LARGE, 1)], [])


WRITERS: dict[str, Callable[[Path], None]] = {
    "x.npy": _npy,
    "x.bin": _atb,
    "x.pth": _torch,
    "x.pt": _old_torch,
    "x.safetensors": _safetensors,
    "Add.Add_1.2.3.1732533825146000": _ge,
}


def _there(store: Store, name: str, folder: Path) -> Path:
    """A file in the store, as a local path."""
    folder.mkdir()
    WRITERS[name](folder / name)
    return local_path(store.put(folder, "data")) / name


def copy_of(path: Path) -> RemoteTensorFile:
    found = staged(path)
    assert found is not None
    return found


@pytest.mark.parametrize("name", WRITERS)
def test_a_placeholder_has_the_size_and_is_never_taken_for_data(
    memory: Store, name: str, tmp_path: Path
) -> None:
    path = _there(memory, name, tmp_path / "data")
    original = tmp_path / "data" / name
    assert path.stat().st_size == original.stat().st_size
    assert not path.stat().st_mode & 0o777  # nobody may read it; root still can
    stand_in = tmp_path / name
    stand_in.write_bytes(path.read_bytes())
    with pytest.raises(FormatError):
        load(stand_in)
    with pytest.raises(FormatError):
        _ = locate(stand_in) or load(stand_in)


@pytest.mark.parametrize("name", WRITERS)
def test_placeholders_fail_in_other_libraries(memory: Store, name: str, tmp_path: Path) -> None:
    path = _there(memory, name, tmp_path / "data")
    readers: dict[str, Callable[[Path], Any]] = {
        ".npy": np.load,
        ".pth": torch.load,
        ".pt": torch.load,
        ".bin": lambda path: path.read_text(encoding="utf-8"),
        ".safetensors": lambda path: path.read_text(encoding="utf-8"),
    }
    read = readers.get(path.suffix, lambda path: path.read_text(encoding="utf-8"))
    with pytest.raises(Exception) as caught:  # noqa: PT011  each its own
        read(path)
    assert not isinstance(caught.value, AssertionError)


@pytest.mark.parametrize("name", WRITERS)
def test_headers_are_read_without_the_file_and_values_with_it(
    odd: Store, name: str, tmp_path: Path
) -> None:
    path = _there(odd, name, tmp_path / "data")
    payloads = locate(path)
    if name == "x.pt":
        assert payloads is None  # only torch reads the old kind
    else:
        assert payloads is not None
        [payload] = payloads.values()
        assert payload.elements == LARGE.size
        assert not copy_of(path).here
    np.testing.assert_array_equal(load(path).array.reshape(LARGE.shape), LARGE)
    assert copy_of(path).here
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", ["x.npy", "x.bin", "x.pth", "x.safetensors"])
def test_a_download_that_breaks_off_is_an_error_and_leaves_no_data(
    odd: Store, name: str, tmp_path: Path
) -> None:
    path = _there(odd, name, tmp_path / "data")
    OddFileSystem.lost = 1
    with pytest.raises(StorageError, match=r"bytes arrived of [\d,]+ that the listing promises"):
        load(path)
    assert not copy_of(path).here
    assert not list(cache().folder.glob("incoming-*/*"))
    OddFileSystem.lost = 0
    np.testing.assert_array_equal(load(path).array, LARGE)


def test_a_header_that_breaks_off_is_an_error(odd: Store, tmp_path: Path) -> None:
    path = _there(odd, "x.npy", tmp_path / "data")
    OddFileSystem.lost = 1
    with pytest.raises(StorageError, match="bytes arrived"):
        locate(path)


def test_a_table_that_breaks_off_stops_the_reading_of_the_folder(odd: Store) -> None:
    odd.write("run/a.json", b"{}" * 100)
    OddFileSystem.lost = 1
    with pytest.raises(StorageError, match=r"run/a\.json: 199 bytes arrived of 200"):
        local_path(f"{odd.url}/run")
    OddFileSystem.lost = 0
    assert (local_path(f"{odd.url}/run") / "a.json").stat().st_size == 200


def test_tables_and_tiny_files_are_here_at_once(odd: Store) -> None:
    contents = {f"run/{name}": name.encode() * 40 for name in ("a.json", "b.csv", "c.jsonl")}
    for name, content in {**contents, "run/tiny.bin": b"12", "run/empty.bin": b""}.items():
        odd.write(name, content)
    folder = local_path(f"{odd.url}/run")
    assert (folder / "b.csv").read_bytes() == contents["run/b.csv"]
    assert (folder / "tiny.bin").read_bytes() == b"12"
    assert (folder / "empty.bin").read_bytes() == b""


def test_small_files_come_with_those_that_follow_them(odd: Store) -> None:
    for number in (1, 2, 10, 3):
        odd.write(f"run/{number}_x.npy", bytes([number]) * 1000)
    odd.write("run/5_x.npy", b"\5" * 300_000)
    folder = local_path(f"{odd.url}/run")
    copy_of(folder / "2_x.npy").bring()
    here = {path.name for path in folder.iterdir() if copy_of(path).here}
    assert here == {"2_x.npy", "3_x.npy", "10_x.npy"}


def test_a_file_is_fetched_once_by_many_threads(odd: Store) -> None:
    odd.write("run/x.npy", b"x" * 300_000)
    path = local_path(f"{odd.url}/run") / "x.npy"
    threads = [threading.Thread(target=copy_of(path).bring) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(OddFileSystem.calls) == 1


def test_what_is_fetched_ahead_is_fetched_once(odd: Store) -> None:
    for number in range(4):
        odd.write(f"run/{number}.npy", b"x" * 300_000)
    folder = local_path(f"{odd.url}/run")
    prefetch(folder / f"{number}.npy" for number in range(4))
    for number in range(4):
        os.close(copy_of(folder / f"{number}.npy").open()[0])  # waits for it, or fetches it
    assert len(OddFileSystem.calls) == 4


def test_an_error_ahead_is_told_when_the_file_is_opened(odd: Store) -> None:
    odd.write("run/x.npy", b"x" * 300_000)
    path = local_path(f"{odd.url}/run") / "x.npy"
    OddFileSystem.fault = ConnectionError("broken")
    prefetch([path])
    with pytest.raises(StorageError, match="connection failed: broken"):
        copy_of(path).open()


def test_local_files_are_not_prefetched(tmp_path: Path) -> None:
    prefetch([tmp_path / "a.npy"])  # nothing to do, nothing to say
    assert staged(tmp_path / "a.npy") is None


def test_the_cache_drops_what_was_used_least_recently(
    odd: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIT_CACHE_BYTES", "1000000")
    for number in range(5):
        odd.write(f"run/{number}.npy", bytes([number]) * 300_000)
    folder = local_path(f"{odd.url}/run")
    files = [copy_of(folder / f"{number}.npy") for number in range(5)]
    for number in (0, 1, 2, 0, 3):
        os.close(files[number].open()[0])
    assert [file.here for file in files] == [True, False, True, True, False]
    assert cache().used == 900_000
    placeholder = (folder / "1.npy").stat()
    assert placeholder.st_size == 300_000
    assert (folder / "1.npy").read_bytes().startswith(MARKER)
    descriptor, _ = files[1].open()
    assert os.pread(descriptor, 3, 299_990) == b"\1\1\1"
    os.close(descriptor)


def test_a_mapped_file_keeps_its_values_when_it_is_dropped(memory: Store, tmp_path: Path) -> None:
    path = _there(memory, "x.bin", tmp_path / "data")
    from ait_llm.formats import read_tensor

    values = read_tensor(path, mmap=True)
    assert copy_of(path).drop()
    assert path.read_bytes().startswith(MARKER)
    np.testing.assert_array_equal(values, LARGE)


def test_a_file_that_is_just_being_opened_is_not_dropped(odd: Store) -> None:
    odd.write("run/x.npy", b"x" * 300_000)
    file = copy_of(local_path(f"{odd.url}/run") / "x.npy")
    file.bring()
    with file.lock:
        assert not file.drop()
    assert file.here


def test_a_full_disk_is_an_error_before_anything_is_fetched(
    odd: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd.write("run/x.npy", b"x" * 300_000)
    file = copy_of(local_path(f"{odd.url}/run") / "x.npy")

    class Usage:
        free = (64 << 20) + 100

    monkeypatch.setattr("ait_llm.storage.cache.shutil.disk_usage", lambda _: Usage)
    with pytest.raises(StorageError, match=r"300,000 bytes do not fit .* 100 free. Set TMPDIR"):
        file.bring()
    assert not OddFileSystem.calls
    assert cache().used == 0


@pytest.mark.parametrize(
    ("text", "limit"), [("", 10 << 30), ("512M", 512 << 20), ("1.5g", 3 << 29)]
)
def test_the_limit_is_read_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, text: str, limit: int
) -> None:
    monkeypatch.setenv("AIT_CACHE_BYTES", text)
    assert cache_limit() == limit


def test_a_limit_that_is_no_size_is_wrong_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIT_CACHE_BYTES", "much")
    with pytest.raises(UsageError, match="AIT_CACHE_BYTES='much' is not a size"):
        Cache()


def test_a_placeholder_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"data")
    with pytest.raises(FileExistsError):
        make_placeholder(tmp_path / "x", 100, 0)


@pytest.mark.parametrize("exchanges", [True, False])
def test_a_file_takes_the_place_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exchanges: bool
) -> None:
    if not exchanges:
        monkeypatch.setattr(placeholders, "_renameat2", lambda: lambda *_: -1)
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(b"old")
    new.write_bytes(b"new")
    take_place(str(new), str(old))
    assert old.read_bytes() == b"new"
    assert not new.exists()
