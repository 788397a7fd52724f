"""Which build of a native library lies there, read from real libraries and from bad ones."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from elf_builder import shared_library

from ait_llm.errors import FormatError
from ait_llm.probe.builds import LIBRARIES, NativeBuild, native_builds
from ait_llm.probe.elf import read_build


@pytest.mark.native
@pytest.mark.parametrize("build", native_builds(os.environ), ids=lambda each: each.name)
def test_our_libraries_tell_their_build_as_readelf_does(build: NativeBuild) -> None:
    path = build.path
    if path is None:
        pytest.skip("it is not built")
    if shutil.which("readelf") is None:
        pytest.skip("readelf is not installed")
    build_id, comment = read_build(path)
    notes = subprocess.run(["readelf", "-n", path], capture_output=True, text=True, check=True)
    strings = ["readelf", "-p", ".comment", path]
    comments = subprocess.run(strings, capture_output=True, text=True, check=True)
    assert re.findall(r"Build ID: (\w+)", notes.stdout) == [build_id]
    assert comment in comments.stdout
    assert comment


def test_a_library_without_notes_has_no_build(tmp_path: Path) -> None:
    path = tmp_path / "plain.so"
    path.write_bytes(shared_library(["name"]))
    assert read_build(path) == ("", "")


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"text" * 100])
def test_what_is_no_library_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "odd.so"
    path.write_bytes(content)
    with pytest.raises(FormatError, match="is not an ELF file"):
        read_build(path)


def test_missing_and_damaged_libraries_are_told(tmp_path: Path) -> None:
    (tmp_path / LIBRARIES["metrics"]).write_bytes(b"text")
    found = {each.name: each for each in native_builds({"AIT_LLM_LIB_DIR": str(tmp_path)})}
    assert list(found) == list(LIBRARIES)
    assert found["metrics"].text == "is not an ELF file"


def test_a_library_that_is_not_there_is_not_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ait_llm.__path__", [str(tmp_path)])
    assert {each.text for each in native_builds({})} == {"not built"}
