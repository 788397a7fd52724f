"""What is inside the wheel that users install."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.packaging,
    pytest.mark.native,
    pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler"),
]


def test_wheel_contains_only_our_package(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"ait_llm"}


def test_wheel_serves_every_python_version(wheel: Path) -> None:
    assert wheel.name.split("-")[2:4] == ["py3", "none"]


def test_wheel_carries_probe_and_hostatb_for_both_abis(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for abi in (0, 1):
        assert f"ait_llm/lib/libatb_probe_abi{abi}.so" in names
        assert f"ait_llm/lib/hostatb/cxx_abi_{abi}/lib/libatb.so" in names
    assert {"ait_llm/lib/ait_probe_writer", "ait_llm/lib/libait_statistics.so"} <= names


def test_wheel_carries_commands_and_golden_operators_but_no_sources(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert "ait_llm/cli/main.py" in names
    assert "ait_llm/opcheck/golden/base.py" in names
    assert not [name for name in names if name.endswith((".cpp", ".h"))]


def test_wheel_carries_what_programs_import_at_their_start(wheel: Path) -> None:
    """The folder is put on the path of the traced program; names in .gitignore are left out."""
    assert "ait_llm/dump/inject/site/sitecustomize.py" in zipfile.ZipFile(wheel).namelist()


def test_wheel_keeps_the_writer_executable(wheel: Path) -> None:
    (entry,) = [
        entry
        for entry in zipfile.ZipFile(wheel).infolist()
        if entry.filename == "ait_llm/lib/ait_probe_writer"
    ]
    assert entry.external_attr >> 16 & 0o111 == 0o111
