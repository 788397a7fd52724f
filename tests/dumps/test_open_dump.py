"""Which dump, and which part of it, a path means."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from dump_builder import DumpBuilder

from ait_llm import open_dump
from ait_llm.dumps import kinds
from ait_llm.errors import FormatError, UnknownNameError


def ids(path: Path) -> list[tuple[int, int, str]]:
    return [(each.pid, each.step, str(each.op_id)) for each in open_dump(path).operations()]


@pytest.fixture
def filled(builder: DumpBuilder) -> DumpBuilder:
    for process in ("0_4242", "1_4243"):
        for step in (0, 1):
            builder.operation("0_Layer", process=process, step=step)
            builder.operation("0_Layer/1_LinearOperation", process=process, step=step)
    return builder


ALL = [(pid, step, op) for pid in (4242, 4243) for step in (0, 1) for op in ("0", "0_1")]


@pytest.mark.parametrize("folder", ["..", ".", "tensors"])
def test_whole_dump_from_any_of_its_folders(filled: DumpBuilder, folder: str) -> None:
    assert ids(filled.root / folder) == ALL
    assert open_dump(filled.root / folder).root == filled.root


@pytest.mark.parametrize(
    ("folder", "expected"),
    [
        ("1_4243", [each for each in ALL if each[0] == 4243]),
        ("0_4242/1", [(4242, 1, "0"), (4242, 1, "0_1")]),
        ("0_4242/1/0_Layer", [(4242, 1, "0"), (4242, 1, "0_1")]),
        ("0_4242/1/0_Layer/1_LinearOperation", [(4242, 1, "0_1")]),
        ("0_4242/1/0_Layer/1_LinearOperation/after", [(4242, 1, "0_1")]),
    ],
)
def test_part_of_a_dump(
    filled: DumpBuilder, folder: str, expected: list[tuple[int, int, str]]
) -> None:
    assert ids(filled.root / "tensors" / folder) == expected


def test_relative_path(filled: DumpBuilder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(filled.root / "tensors" / "0_4242")
    assert ids(Path()) == ALL[:4]
    assert ids(Path("../../..")) == ALL


def test_part_of_a_dump_lists_the_processes_of_that_part(filled: DumpBuilder) -> None:
    dump = open_dump(filled.root / "tensors" / "1_4243" / "1")
    (process,) = dump.processes
    assert (process.device, process.pid, process.steps) == (1, 4243, (1,))


def test_filters_of_operations(filled: DumpBuilder) -> None:
    dump = open_dump(filled.root)
    assert len(list(dump.operations(pid=4243))) == 4
    assert len(list(dump.operations(device=0, step=1))) == 2
    assert list(dump.operations(step=7)) == []
    assert dump.steps == (0, 1)


@pytest.mark.parametrize("name", ["msit_dump_20250101_120000", "msit_dump", "ait_dump_17"])
def test_folder_names_of_other_generations(filled: DumpBuilder, name: str) -> None:
    renamed = filled.root.rename(filled.root.parent / name)
    assert ids(renamed) == ALL
    assert ids(renamed.parent) == ALL


def test_several_dumps_in_one_folder_are_named(filled: DumpBuilder) -> None:
    shutil.copytree(filled.root, filled.root.parent / "msit_dump_1")
    with pytest.raises(FormatError, match=r"holds 2 dumps \(ait_dump, msit_dump_1\)"):
        open_dump(filled.root.parent)


def test_dump_under_another_name(filled: DumpBuilder) -> None:
    renamed = filled.root.rename(filled.root.parent / "before_fix")
    assert ids(renamed) == ALL
    assert ids(renamed / "tensors" / "0_4242") == ALL[:4]


@pytest.mark.parametrize("folder", [".", "0_4242", "0_4242/1"])
def test_process_folders_copied_out_of_a_dump(filled: DumpBuilder, folder: str) -> None:
    tensors = (filled.root / "tensors").rename(filled.root.parents[1] / "copied")
    expected = [each for each in ALL if each[0] == 4242 or folder == "."]
    assert ids(tensors / folder) == [
        each for each in expected if each[1] == 1 or folder != "0_4242/1"
    ]


def test_capture_that_recorded_nothing_is_a_dump(tmp_path: Path) -> None:
    (tmp_path / "ait_dump").mkdir()
    dump = open_dump(tmp_path)
    assert list(dump.operations()) == []
    assert dump.processes == ()


@pytest.mark.parametrize("name", ["models", "model", "tensors", "ait_dumper", "0_1"])
def test_other_folders_are_not_dumps(tmp_path: Path, name: str) -> None:
    (tmp_path / "x" / name).mkdir(parents=True)
    with pytest.raises(FormatError, match="is not a dump; expected the output directory"):
        open_dump(tmp_path / "x" / name)


def test_capture_of_torch_modules_is_not_an_atb_dump(tmp_path: Path) -> None:
    (tmp_path / "ait_dump" / "torch_tensors" / "0_1" / "0").mkdir(parents=True)
    assert open_dump(tmp_path).kind == "torch"
    with pytest.raises(FormatError, match="is not a dump"):
        open_dump(tmp_path, kind="atb")


def test_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(FormatError, match="no such file or directory"):
        open_dump(tmp_path / "absent")


def test_file_instead_of_a_folder(filled: DumpBuilder) -> None:
    path = next(filled.root.rglob("*.bin"))
    with pytest.raises(FormatError, match="is a file, a dump is a folder"):
        open_dump(path)


def test_kind_by_name(filled: DumpBuilder) -> None:
    assert open_dump(filled.root, kind="atb").kind == "atb"
    with pytest.raises(UnknownNameError, match="unknown kind of dump 'atp'; did you mean 'atb'"):
        open_dump(filled.root, kind="atp")


def test_folder_of_several_kinds_needs_the_kind(
    filled: DumpBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = {"atb": kinds.get("atb"), "second": kinds.get("atb")}
    monkeypatch.setattr(kinds, "_entries", entries)
    with pytest.raises(FormatError, match=r"holds several kinds of dump \(atb, atb\)"):
        open_dump(filled.root)
    assert open_dump(filled.root, kind="second").root == filled.root


def test_link_to_a_dump_is_opened(filled: DumpBuilder, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(filled.root)
    assert ids(tmp_path / "latest") == ALL
    tensor = next(iter(open_dump(tmp_path / "latest").operations())).tensors[0]
    assert tensor.numpy().shape == (2, 3)


@pytest.mark.parametrize("part", ["0_4242/1/0_Layer/notes", "0_4242/x", "x"])
def test_folder_in_a_dump_that_is_no_part_of_it(filled: DumpBuilder, part: str) -> None:
    (filled.root / "tensors" / part).mkdir(parents=True)
    with pytest.raises(FormatError, match="is not"):
        open_dump(filled.root / "tensors" / part)


def test_listing_imports_no_torch(filled: DumpBuilder) -> None:
    program = (
        "import sys; from ait_llm import open_dump; "
        f"print([t.shape for o in open_dump({str(filled.root)!r}).operations() for t in o.tensors]"
        ".count((2, 3)), 'torch' in sys.modules)"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert answer.stdout == "16 False\n"
