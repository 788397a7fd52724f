"""What docs/security.md promises of the source: nothing unpickles, evaluates or calls home."""

from __future__ import annotations

import ast
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
