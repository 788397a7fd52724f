"""Which path stands for which URL, in this process and in others."""

from __future__ import annotations

import multiprocessing
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from graph_dumps import GraphDump
from object_store import Store

from ait_llm import compare, compare_data, open_dump, storage
from ait_llm.core.comparison import Verdict
from ait_llm.errors import FormatError
from ait_llm.storage import StorageError, address, forget, local_path, places, staged


def test_a_path_is_itself(tmp_path: Path) -> None:
    assert local_path(tmp_path) == tmp_path
    assert local_path("out/ait_dump") == Path("out/ait_dump")
    assert address(tmp_path) == str(tmp_path)


def test_a_file_url_is_the_local_path(tmp_path: Path) -> None:
    assert local_path(f"file://{tmp_path}") == tmp_path
    assert not places.staged_files


def test_a_url_stays_the_same_path_and_leads_back(memory: Store) -> None:
    memory.write("run/a/x.json", b"{}")
    folder = local_path(f"{memory.url}/run")
    assert local_path(f"{memory.url}/run/") == folder
    assert local_path(f"{memory.url}/run/a") == folder / "a"
    assert local_path(f"{memory.url}/run/a/x.json") == folder / "a" / "x.json"
    assert address(folder) == f"{memory.url}/run"
    assert address(folder / "a/x.json") == f"{memory.url}/run/a/x.json"
    assert folder.name == "run"


def test_secrets_are_in_addresses_and_in_no_message(odd: Store) -> None:
    odd.write("run/x.bin", b"x" * 500)
    url = odd.url.replace("odd://", "odd://me:hidden@")
    odd.filesystem.pipe_file(odd.filesystem._strip_protocol(f"{url}/run/x.bin"), b"x" * 500)
    folder = local_path(f"{url}/run")
    assert address(folder / "x.bin") == f"{url}/run/x.bin"
    with pytest.raises(FormatError, match=r"odd://me:\*\*\*@.*/run: is not a dump"):
        open_dump(folder)
    assert "hidden" not in str(folder)


def test_a_folder_of_a_dump_comes_with_the_whole(memory: Store, tmp_path: Path) -> None:
    GraphDump(tmp_path / "ait_dump").write()
    url = memory.put(tmp_path / "ait_dump", "run/ait_dump")
    dump = open_dump(f"{url}/tensors/0_4242/0/1_Layer")
    assert [str(each.op_id) for each in dump.operations()] == ["1", "1_0", "1_1"]
    assert [graph.name for graph in dump.models] == ["Tiny"]
    assert address(dump.root) == url


def test_a_record_comes_with_what_lies_beside_it(memory: Store) -> None:
    for name in ("dump.json", "stack.json", "dump_tensor_data/x.pt"):
        memory.write(f"run/rank0/{name}", b"x" * 500)
    path = local_path(f"{memory.url}/run/rank0/dump.json")
    assert sorted(each.name for each in path.parent.iterdir()) == [
        "dump.json",
        "dump_tensor_data",
        "stack.json",
    ]


def test_a_tensor_file_comes_alone_and_one_that_may_refer_to_others_with_these(
    memory: Store,
) -> None:
    for name in ("a.npy", "b.npy", "c.bin", "d.bin", "sub/e.bin"):
        memory.write(f"run/{name}", b"x" * 500)
    path = local_path(f"{memory.url}/run/a.npy")
    assert [each.name for each in path.parent.iterdir()] == ["a.npy"]
    path = local_path(f"{memory.url}/run/c.bin")
    assert sorted(each.name for each in path.parent.iterdir()) == [
        "a.npy",
        "b.npy",
        "c.bin",
        "d.bin",
    ]
    assert local_path(f"{memory.url}/run/d.bin") == path.with_name("d.bin")


def test_forgetting_deletes_the_copies_and_lists_anew(memory: Store) -> None:
    memory.write("run/x.json", b"{}")
    folder = local_path(f"{memory.url}/run")
    memory.write("run/y.json", b"{}")
    assert not (folder / "y.json").exists()
    forget()
    assert not folder.exists()
    assert staged(folder / "x.json") is None
    assert (local_path(f"{memory.url}/run") / "y.json").exists()


def test_copies_are_private(memory: Store) -> None:
    memory.write("run/a/x.json", b"{}")
    folder = local_path(f"{memory.url}/run")
    for each in (places.cache().folder, folder, folder / "a"):
        assert each.stat().st_mode & 0o777 == 0o700
    assert (folder / "a/x.json").stat().st_mode & 0o777 == 0o640


_PROGRAM = """
import os, sys
import fsspec
from ait_llm.storage import local_path
memory = fsspec.filesystem("memory")
memory.pipe_file("/run/x.json", b"{}")
print(local_path("memory://run"), flush=True)
if len(sys.argv) > 1:
    os.kill(os.getpid(), 9)
"""


def _start(temporary: Path, *words: str) -> Path:
    environment = {**os.environ, "TMPDIR": str(temporary)}
    command = [sys.executable, "-c", _PROGRAM, *words]
    ran = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    return Path(ran.stdout.strip())


def test_copies_are_gone_after_the_process_and_those_of_a_killed_one_after_the_next(
    tmp_path: Path,
) -> None:
    killed = _start(tmp_path, "die")
    assert killed.is_dir()
    ended = _start(tmp_path)
    assert not ended.exists()
    assert not killed.exists()
    assert not list(tmp_path.iterdir())


def _read_elsewhere(url: str) -> tuple[str, float]:
    """In another process: its own copy, the same values."""
    folder = local_path(url)
    from ait_llm.formats import load

    return str(folder), float(load(folder / "x.npy").array.sum())


def test_a_worker_process_has_copies_of_its_own(s3: Store, tmp_path: Path) -> None:
    values = np.arange(100_000, dtype=np.float32)
    np.save(tmp_path / "x.npy", values)
    s3.write("run/x.npy", (tmp_path / "x.npy").read_bytes())
    folder = local_path(f"{s3.url}/run")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        there, total = pool.apply(_read_elsewhere, (address(folder),))
    assert there != str(folder)
    assert total == float(values.sum())


def test_functions_of_python_take_urls(memory: Store, tmp_path: Path) -> None:
    for side, offset in (("golden", 0), ("mine", 1)):
        np.save(tmp_path / "x.npy", np.arange(9, dtype=np.float32) * (1 + offset))
        memory.write(f"{side}.npy", (tmp_path / "x.npy").read_bytes())
    golden, mine = f"{memory.url}/golden.npy", f"{memory.url}/mine.npy"
    assert compare(golden, mine).verdict is Verdict.FAIL
    found = compare_data(golden, mine)
    assert found.verdict is Verdict.FAIL
    assert found.mine is not None
    assert found.mine.path == mine
    assert storage.is_staging()


def test_a_url_within_another_that_does_not_exist_is_an_error(memory: Store) -> None:
    memory.write("run/x.json", b"{}")
    local_path(f"{memory.url}/run")
    with pytest.raises(StorageError, match="no such file or folder"):
        local_path(f"{memory.url}/run/nothing")


def test_a_limit_of_file_sizes_is_one_sentence_and_no_fault(memory: Store) -> None:
    memory.write("run/large.npy", bytes(5000))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, limits[1]))
    try:
        with pytest.raises(StorageError, match=r"larger than files may be here.*ulimit -f"):
            local_path(f"{memory.url}/run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_zip_elsewhere_can_be_read(memory: Store, tmp_path: Path) -> None:
    import zipfile

    with zipfile.ZipFile(tmp_path / "run.zip", "w") as archive:
        archive.writestr("ait_dump/a.json", "{}")
    memory.write("run.zip", (tmp_path / "run.zip").read_bytes())
    folder = local_path(f"zip::{memory.url}/run.zip")
    assert (folder / "ait_dump/a.json").read_text() == "{}"
