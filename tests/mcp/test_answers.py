"""Answers of bounded length, and what a tool may touch."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ait_llm.errors import MissingDependencyError, UsageError
from ait_llm.mcp.answers import bounded
from ait_llm.mcp.limits import Limits, limits_of
from ait_llm.mcp.server import serve

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=900),
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=60,
)


@settings(max_examples=15, deadline=None)
@given(st.dictionaries(st.text(max_size=5), VALUES))
def test_any_answer_is_json_of_at_most_so_many_characters(value: dict[str, Any]) -> None:
    text = bounded(json.loads(json.dumps(value)), 1000)
    assert len(text) <= 1000
    assert isinstance(json.loads(text), dict)


def test_a_long_list_loses_its_end_and_the_answer_says_how_many_there_were() -> None:
    found = json.loads(bounded({"exit_code": 3, "rows": [{"n": n} for n in range(5000)]}, 2000))
    assert found["exit_code"] == 3
    assert found["rows"] == [{"n": n} for n in range(len(found["rows"]))]
    assert found["shortened"] == {"rows": 5000}


def test_an_answer_that_fits_is_as_it_is() -> None:
    assert json.loads(bounded({"rows": [1, 2, 3, 4]}, 1000)) == {"rows": [1, 2, 3, 4]}


@pytest.fixture
def limits(tmp_path: Path) -> Limits:
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "secret").mkdir()
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "secret")
    programs = ["python generate.py --n 3"]
    return limits_of([tmp_path / "runs"], programs, any_program=False, most=1000, seconds=1.0)


@pytest.mark.parametrize("text", ["a", "a/../a", "new/folder", "./"])
def test_paths_below_a_permitted_folder_are_taken(limits: Limits, text: str) -> None:
    assert Path(limits.path(text)).is_relative_to(limits.folders[0])


@pytest.mark.parametrize(
    "text", ["../secret", "link/x", "/etc/passwd", "~", "s3://bucket/dump", "a\0b", "../runs2"]
)
def test_paths_elsewhere_are_refused_with_what_is_permitted(limits: Limits, text: str) -> None:
    with pytest.raises(UsageError, match=f"permitted: {limits.folders[0]}"):
        limits.path(text)


def test_a_program_is_permitted_word_by_word(limits: Limits) -> None:
    assert limits.program("python  generate.py --n '3'")
    for command in ("python generate.py", "python generate.py --n 3 --x", "rm -rf /", "'"):
        with pytest.raises(UsageError, match=r"may not be run; permitted: 'python generate\.py"):
            limits.program(command)


def test_a_package_that_is_too_old_is_told(limits: Limits, monkeypatch: pytest.MonkeyPatch) -> None:
    old = types.ModuleType("mcp")
    old.__path__ = []  # type: ignore[attr-defined]  # a package without the module
    for name in [name for name in sys.modules if name.partition(".")[0] == "mcp"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcp", old)
    with pytest.raises(MissingDependencyError, match="needs version 2 or newer"):
        serve(limits)


def test_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no folder"):
        limits_of([tmp_path / "no"], [], any_program=False, most=1000, seconds=1.0)
