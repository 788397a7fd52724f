"""What docs/security.md promises of the source: nothing unpickles, evaluates or calls home."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest
from doc_pages import ROOT

PACKAGE = ROOT / "ait_llm"
FILES = sorted(
    path
    for folder in (PACKAGE, ROOT / "cli", ROOT / "opcheck")
    for path in folder.rglob("*.py")
    if "native" not in path.parts
)
# The worker asks whether its own error would survive the way back.
OWN_PICKLES = {"ait_llm/engine/ray_tasks.py"}
NETWORK = {"socket", "urllib.request", "http.client", "requests", "ftplib", "smtplib", "aiohttp"}


def trees() -> Iterator[tuple[str, ast.Module]]:
    for path in FILES:
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text("utf-8"))


def calls(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Calls by their dotted names."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def keyword(call: ast.Call, name: str) -> object:
    for each in call.keywords:
        if each.arg == name and isinstance(each.value, ast.Constant):
            return each.value.value
    return None


def promises(page: str) -> list[tuple[str, list[str]]]:
    """What a page promises, and the tests that it names for it."""
    lines = (ROOT / "docs" / page).read_text("utf-8").splitlines()
    rows = [line.strip("| ").rsplit(" | ", 1) for line in lines if "`tests/" in line]
    return [(said, re.findall(r"`(tests/[^`]+)`", named)) for said, named in rows]


@pytest.mark.parametrize("page", ["security.md", "security.zh.md"])
def test_every_promise_names_tests_that_are_there(page: str) -> None:
    missing = [
        name for _, names in promises(page) for name in names if not is_there(*name.split("::"))
    ]
    assert missing == []


def is_there(file: str, test: str) -> bool:
    path = ROOT / file
    return path.is_file() and any(
        isinstance(node, ast.FunctionDef) and node.name == test
        for node in ast.parse(path.read_text("utf-8")).body
    )


def test_each_row_of_a_table_of_promises_has_a_test() -> None:
    text = (ROOT / "docs" / "security.md").read_text("utf-8")
    tables = text.split("| promise | test that holds it |\n| --- | --- |\n")[1:]
    rows = [row for table in tables for row in table.split("\n\n")[0].splitlines()]
    assert len(rows) == len(promises("security.md")) > 20
    assert all(names for _, names in promises("security.md"))


def test_both_languages_promise_the_same() -> None:
    own, chinese = promises("security.md"), promises("security.zh.md")
    assert [names for _, names in own] == [names for _, names in chinese]


def test_the_source_is_found() -> None:
    assert len(FILES) > 300


def test_nothing_is_unpickled() -> None:
    found = []
    for name, tree in trees():
        for function, call in calls(tree):
            if function in ("pickle.load", "pickle.loads", "pickle.Unpickler"):
                found += [name] if name not in OWN_PICKLES else []
            if function == "torch.load" and keyword(call, "weights_only") is not True:
                found.append(name)
            if function in ("np.load", "numpy.load", "np.lib.format.read_array"):
                found += [name] if keyword(call, "allow_pickle") is True else []
    assert found == []


def test_nothing_that_was_read_is_evaluated() -> None:
    found = [
        name
        for name, tree in trees()
        for function, call in calls(tree)
        if function in ("eval", "exec", "os.system", "yaml.load", "yaml.unsafe_load")
        or (function.startswith("subprocess.") and keyword(call, "shell") is True)
    ]
    assert found == []


def test_only_what_a_user_asks_for_speaks_to_a_network() -> None:
    """A cluster that was named, and a store behind a URL, have packages of their own."""
    found = []
    for name, tree in trees():
        if name.startswith(("ait_llm/engine/", "ait_llm/storage/")):
            continue
        for node in ast.walk(tree):
            modules = [each.name for each in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module:
                modules.append(node.module)
            found += [(name, module) for module in modules if module in NETWORK]
    assert found == []


@pytest.mark.parametrize("name", ["ray_cluster.py"])
def test_ray_sends_no_statistics(name: str) -> None:
    text = (PACKAGE / "engine" / name).read_text("utf-8")
    assert "RAY_USAGE_STATS_ENABLED" in text
    assert "include_dashboard" in text
