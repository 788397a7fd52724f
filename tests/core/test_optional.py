"""Optional packages."""

import json.decoder
import sys
from pathlib import Path

import pytest

from ait_llm.core.optional import import_optional
from ait_llm.errors import MissingDependencyError


def test_installed_module_is_returned() -> None:
    assert import_optional("json.decoder", "a test") is json.decoder


def test_missing_package_is_told_with_the_extra_that_installs_it() -> None:
    message = r"reading x needs the Python package 'absent_pkg', .* pip install 'ait-llm\[extra\]'"
    with pytest.raises(MissingDependencyError, match=message):
        import_optional("absent_pkg.part", "reading x", "extra")


def test_broken_package_is_not_taken_for_a_missing_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_pkg.py").write_text("import absent_pkg\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(ModuleNotFoundError, match="absent_pkg"):
        import_optional("broken_pkg", "reading x")
