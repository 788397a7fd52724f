"""docs/migrating.md answers every question that has no test, and its examples run."""

from __future__ import annotations

import ast
import re
import textwrap
from pathlib import Path

import pytest

from ait_llm import ptdbg
from ait_llm.formats.api_list import combined_apis

_TESTS = Path(__file__).resolve().parents[1]
_PAGE = (_TESTS.parent / "docs" / "migrating.md").read_text("utf-8")

# As the FAQs number their questions.
MSPROBE = (
    *(f"1.{n}" for n in range(1, 7)),
    *(f"2.{n}" for n in range(1, 7)),
    "3.1.1",
    *(f"3.2.{n}" for n in range(1, 4)),
    *(f"3.3.{n}" for n in range(1, 12)),
)
PTDBG = (*(str(n) for n in range(1, 5)), *(f"error {n}" for n in range(1, 20)))


def rows(title: str) -> list[str]:
    section = _PAGE.split(f"## {title}\n", 1)[1].split("\n## ", 1)[0]
    return re.findall(r"^\| ((?:error )?[\d.]+) ", section, re.MULTILINE)


@pytest.mark.parametrize(
    ("title", "questions"),
    [("Questions of msprobe's FAQ", MSPROBE), ("Questions of ptdbg's FAQ", PTDBG)],
)
def test_every_question_has_its_answer(title: str, questions: tuple[str, ...]) -> None:
    assert rows(title) == list(questions)


def test_what_is_said_to_behave_so_has_a_test() -> None:
    """Answers without a test are about other tools, or about the accuracy check."""
    folder = _TESTS / "dump" / "api_faq"
    named = {
        node.name
        for path in folder.glob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef)
    }
    untested = {"1.6", "2.1", "2.2", "2.3", "2.4", "2.5", "3.2.3", "3.3.1", "3.3.2"}
    for question in set(MSPROBE) - untested:
        assert any(name.startswith(f"test_{question.replace('.', '_')}_") for name in named)
    for question in set(PTDBG) - {"4", "error 1", "error 3", "error 15"}:
        assert any(name.startswith(f"test_{question.replace(' ', '_')}_") for name in named)


def test_the_imports_that_it_shows_work() -> None:
    for line in re.findall(r"^from ait_llm.*$", _PAGE, re.MULTILINE):
        exec(line, {})


def test_the_functions_that_it_names_are_there() -> None:
    text = _PAGE.split("import *  # was", 1)[1].split(" take the same arguments", 1)[0]
    named = set(re.findall(r"`(\w+)`", text))
    assert named | {"acc_cmp_dump", "overflow_check", "unregister_hook"} == set(ptdbg.__all__)


def test_the_list_of_functions_that_it_shows_is_read(tmp_path: Path) -> None:
    (shown,) = re.findall(r"```yaml\n(.*?)```", _PAGE, re.DOTALL)
    path = tmp_path / "ops.yaml"
    path.write_text(textwrap.dedent(shown))
    apis, modules = combined_apis(path)
    assert "npu_scaled_masked_softmax" in apis["torch_npu"]
    assert not {"t", "transpose"} & set(apis["tensor"])
    assert modules == {"my_package.kernels": ["fused_rope"]}
