"""docs/migrating.md answers every question that has no test, and its examples run."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from pathlib import Path

import click
import pytest

from ait_llm import ptdbg
from ait_llm.cli.llm import llm
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


def options_of(name: str) -> set[str]:
    command = llm.get_command(click.Context(llm), name)
    assert command is not None
    return {option for param in command.params for option in (*param.opts, *param.secondary_opts)}


def cells(table: str) -> list[list[str]]:
    """The rows of a table whose first cell is an option."""
    rows = [line for line in table.splitlines() if line.startswith("| `-")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def spellings(cell: str) -> set[str]:
    return set(re.findall(r"`(-[\w-]+)`", cell))


# What a row says of an option that is not here.
_ELSEWHERE = ("not ", "set ", "give ", "`-", "a standard", "leave ")


@pytest.mark.parametrize("name", ["dump", "compare", "opcheck", "errcheck"])
def test_an_option_of_ait_or_msit_is_here_where_the_table_says_so(name: str) -> None:
    rows = cells(_PAGE.partition(f"\n### {name}\n")[2].partition("\n### ")[0])
    assert len(rows) >= 4
    for option, _, _, here in rows:
        if here.startswith(_ELSEWHERE):
            assert not spellings(option) & options_of(name), option
            assert spellings(here) <= options_of(name), here
        else:
            assert spellings(option) <= options_of(name), option


@pytest.mark.parametrize("name", ["compare", "merge-result"])
def test_an_option_of_msprobe_is_here_where_the_table_says_so(name: str) -> None:
    title = f"| option of `{name.replace('-', '_')}` | here |\n"
    rows = cells(_PAGE.partition(title)[2].partition("\n\n")[0])
    assert rows
    for option, here in rows:
        if here.startswith("`-"):
            assert spellings(here) <= options_of(name)
        elif not here.startswith(_ELSEWHERE):
            assert spellings(option) <= options_of(name), option


def test_every_option_of_the_manual_is_in_its_table() -> None:
    """The manual of ait 1.x, table by table."""
    manual = {
        "dump": "--exec --type -sd -ids -er -child -time -opname -tiling -stp -o -device -l",
        "compare": "-gp -mp -mf -l -o",
        "opcheck": "-i -c -o -ids -opname -metric -device -rerun",
        "errcheck": "--exec --type --exit -o",
    }
    for name, options in manual.items():
        section = _PAGE.partition(f"\n### {name}\n")[2].partition("\n### ")[0]
        assert set(options.split()) <= set(re.findall(r"^\| `(-[\w-]+)`", section, re.MULTILINE))


def test_functions_of_ptdbg_take_the_arguments_of_the_table() -> None:
    table = _PAGE.partition("| function | arguments |\n")[2].partition("\n\n")[0]
    rows = [re.findall(r"`(\w+)`", line) for line in table.splitlines()[1:]]
    assert len(rows) == 9
    for name, *arguments in rows:
        taken = inspect.signature(getattr(ptdbg, name)).parameters
        assert set(arguments) - {"compare"} <= set(taken), name
