"""Entry points of other packages: loaded once, and a broken one is named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ait_llm.core.plugins import load_plugins
from ait_llm.errors import UsageError


def installed(folder: Path, module: str, code: str, group: str) -> None:
    """A package as pip leaves it."""
    (folder / f"{module}.py").write_text(code, encoding="utf-8")
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{group}]\n{module} = {module}\n")


def test_modules_of_a_group_are_imported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = "import builtins\nbuiltins.ait_test_imports.append(__name__)\n"
    installed(tmp_path, "ait_test_reader", code, "ait_llm.test_once")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[str] = []
    monkeypatch.setattr("builtins.ait_test_imports", seen, raising=False)
    for _ in range(2):
        load_plugins("ait_llm.test_once")
    assert seen == ["ait_test_reader"]
    monkeypatch.delitem(sys.modules, "ait_test_reader")


def test_a_module_that_fails_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "ait_test_broken", "1 / 0\n", "ait_llm.test_broken")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(UsageError, match=r"'ait_test_broken' .*division by zero.*uninstall"):
        load_plugins("ait_llm.test_broken")


def test_a_group_without_modules_loads_nothing() -> None:
    load_plugins("ait_llm.nobody")
