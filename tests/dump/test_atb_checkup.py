"""The doctor finds what is there, what is broken, and never breaks itself."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ait_llm.dump import checkup
from ait_llm.dump.checkup import Finding


def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> Finding:
    """What is said of a package whose import runs ``code``."""
    folder = tmp_path / "fragile_driver"
    folder.mkdir()
    (folder / "__init__.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    environ = {**os.environ, "PYTHONPATH": str(tmp_path)}
    return checkup._check_package(checkup._Package("fragile_driver", "driving"), environ)


def test_a_package_is_reported_with_version_and_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finding = package(tmp_path, monkeypatch, "print('noise')\n__version__ = '2.1'")
    assert (finding.status, finding.disables) == ("ok", "")
    assert finding.detail == f"2.1 ({tmp_path / 'fragile_driver'})"


@pytest.mark.parametrize(
    ("code", "detail"),
    [
        ("import os; os.abort()", "the interpreter crashed with signal 6"),
        ("raise ImportError('libascend.so is missing')", "libascend.so is missing"),
        ("import os; os._exit(5)", "exit code 5"),
    ],
)
def test_a_package_that_cannot_be_imported_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, detail: str
) -> None:
    finding = package(tmp_path, monkeypatch, code)
    assert (finding.status, finding.disables) == ("broken", "driving")
    assert detail in finding.detail


def test_a_package_that_hangs_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "_IMPORT_SECONDS", 0.3)
    finding = package(tmp_path, monkeypatch, "import threading; threading.Event().wait()")
    assert finding.status == "broken"
    assert "more than" in finding.detail


def test_a_package_that_is_not_installed_is_absent() -> None:
    finding = checkup._check_package(checkup._Package("no_such_driver", "driving"), os.environ)
    assert (finding.status, finding.detail, finding.disables) == (
        "absent",
        "not installed",
        "driving",
    )


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("version.info", "version=8.3.0\ntimestamp=1\n"),
        ("ascend_toolkit_install.info", "package_name=x\nversion=8.0.RC1\n"),
        ("aarch64-linux/ascend_toolkit_install.info", "version=8.1.RC1\n"),
        ("version.cfg", "# version: 1.0\nrunning_version=[x]\nVersion=8.2.0\n"),
    ],
)
def test_the_version_of_cann_is_read_from_its_files(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    finding = checkup._check_cann({"ASCEND_TOOLKIT_HOME": str(tmp_path)})
    assert finding.status == "ok"
    assert finding.detail.startswith("8.")


def test_a_cann_home_that_does_not_exist_is_broken(tmp_path: Path) -> None:
    finding = checkup._check_cann({"ASCEND_TOOLKIT_HOME": str(tmp_path / "gone")})
    assert finding.status == "broken"


@pytest.mark.parametrize(
    ("value", "status", "text"),
    [
        ("", "ok", "not set"),
        ("/x/jemalloc.so", "ok", "put before it"),
        ("/x/libatb_probe_abi1.so", "broken", "holds a probe already"),
    ],
)
def test_what_is_preloaded_already_is_said(value: str, status: str, text: str) -> None:
    finding = checkup._check_preload({"LD_PRELOAD": value})
    assert finding.status == status
    assert text in finding.detail


def test_a_home_without_atb_is_broken_and_says_what_to_do(tmp_path: Path) -> None:
    finding = checkup._check_atb({"ATB_HOME_PATH": str(tmp_path)})
    assert finding.status == "broken"
    assert "set_env.sh" in finding.detail


def test_a_disk_that_is_nearly_full_limits_large_models(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkup, "_LOW_SPACE", 2**62)
    assert "-sd" in checkup._check_space(tmp_path).disables


def test_no_capture_is_tried_when_something_it_needs_is_missing() -> None:
    finding = checkup._check_capture({}, ready=False)
    assert (finding.status, finding.essential) == ("absent", True)
