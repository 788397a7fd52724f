"""Definitions cut out of the package."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import Any

import pytest

from ait_llm.capsule.source import Extraction
from ait_llm.errors import UsageError
from ait_llm.opcheck.golden import golden_ops
from ait_llm.opcheck.golden.modules import definition_of
from ait_llm.opcheck.golden.modules.table import class_names

MODULES = list(dict.fromkeys(definition_of(name) for name in class_names()))

MODULE = '''
"""A module."""
import json
import math as m
from typing import TYPE_CHECKING

from ait_llm.core import FORMAT_ND
from ait_llm.opcheck.golden import Result, golden_op

if TYPE_CHECKING:
    from pathlib import Path

# Why it is two.
FACTOR = 2 * UNIT if (UNIT := 1) else 0
TABLE = {}
TABLE["a"] = lambda: second()
OTHER = json.dumps({})


def second():
    from ait_llm.core.ids import OpId
    return m.sqrt(FACTOR), OpId


# Registered.
@golden_op("MineOperation", infer_shape=None)
def compute(inputs, params, arithmetic):
    """What it does."""  # and why
    return Result((TABLE["a"](), FORMAT_ND))


golden_op("a", infer_shape=None)(compute)
'''


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    (tmp_path / "mine_to_cut.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    extraction = Extraction()
    assert extraction.add("mine_to_cut", "compute") == "source.mine_to_cut"
    return extraction.files()


def test_only_what_the_function_needs_is_taken_with_its_comments(files: dict[str, str]) -> None:
    text = files["source/mine_to_cut.py"]
    assert '"""A module."""' in text
    assert "# Why it is two.\nFACTOR = " in text
    assert 'TABLE["a"] = lambda: second()' in text
    assert '"""What it does."""  # and why' in text
    for left_out in ("OTHER", "json", "golden_op", "TYPE_CHECKING", "# Registered"):
        assert left_out not in text


def test_imports_name_the_modules_that_define(files: dict[str, str]) -> None:
    text = files["source/mine_to_cut.py"]
    assert "from source.tensor_desc import FORMAT_ND\n" in text
    assert "from source.base import Result\n" in text
    assert "    from source.ids import OpId\n" in text
    assert "import math as m\n" in text
    assert not any("ait_llm" in line for line in text.splitlines() if "import" in line)
    assert "source/ids.py" in files


def test_an_unknown_name_and_a_module_without_source_are_told() -> None:
    with pytest.raises(UsageError, match="has no 'nothing' that could be copied"):
        Extraction().add("ait_llm.core.ids", "nothing")
    with pytest.raises(UsageError, match="the source of _struct is not there"):
        Extraction().add("_struct", "pack")


@pytest.mark.parametrize("name", golden_ops.names())
def test_no_definition_of_an_operator_imports_this_package_or_another_one(name: str) -> None:
    golden = golden_ops.get(name)
    stands_alone(golden.compute_ranks or golden.compute)


@pytest.mark.parametrize(
    "definition", MODULES, ids=lambda each: f"{each.__module__}:{each.__name__}"
)
def test_no_definition_of_a_module_imports_this_package_or_another_one(definition: Any) -> None:
    stands_alone(definition)


def stands_alone(definition: Any) -> None:
    """Check that what is cut out of the package needs nothing else of it."""
    extraction = Extraction()
    extraction.add(definition.__module__, definition.__name__)
    files = extraction.files()
    allowed = {*sys.stdlib_module_names, "torch", "numpy", "source"}
    for path, text in files.items():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom):
                modules = [str(node.module)]
            elif isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            else:
                continue
            assert {module.partition(".")[0] for module in modules} <= allowed, path
            for module in modules:
                first, _, rest = module.partition(".")
                if first == "source" and rest:
                    assert f"source/{rest}.py" in files
