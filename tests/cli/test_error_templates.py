"""Texts of errors, read from source: from small packages, and what our own really says."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from pathlib import Path

import pytest
from error_catalogue import CODES, PAGE, USAGE, CatalogueError, catalogue, page
from error_codes import Codes
from error_templates import ErrorTemplate, error_classes, error_templates
from source_index import Index

from ait_llm import errors
from ait_llm.cli.console import EXITS
from ait_llm.cli.llm import own_commands
from ait_llm.cli.params import comma_list, parse_size
from ait_llm.core import StepRange
from ait_llm.core.optional import import_optional
from ait_llm.formats import load

BASE = """
class AitError(Exception):
    exit_code = 2
    def __init__(self, *args):
        super().__init__(*args)
class UsageError(AitError):
    pass
class IncompleteError(AitError):
    exit_code = 3
class FormatError(AitError):
    def __init__(self, path, reason: str, advice: str = ""):
        super().__init__(f"{path}: {reason}" + (f". {advice}" if advice else ""))
"""


def templates_of(folder: Path, source: str) -> list[ErrorTemplate]:
    """Templates of a package of one module beside the errors."""
    package = folder / "ait_llm"
    (package / "formats").mkdir(parents=True)
    (package / "errors.py").write_text(BASE)
    head = "from ait_llm.errors import AitError, FormatError, IncompleteError, UsageError\n"
    (package / "formats" / "one.py").write_text(head + source)
    return error_templates(Index(folder))


def told(folder: Path, source: str) -> set[tuple[str, str]]:
    return {(each.kind, each.text) for each in templates_of(folder, source)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("raise UsageError('no name')", {("UsageError", "no name")}),
        ("raise UsageError(f'{name!r} is {len(items)} long')",
         {("UsageError", "{name} is {number of items} long")}),
        ("raise UsageError('a' if x else 'b')", {("UsageError", "a"), ("UsageError", "b")}),
        ("raise FormatError(self.path, 'is short')", {("FormatError", "{path}: is short")}),
        ("raise FormatError(path, 'is short', 'Dump it again')",
         {("FormatError", "{path}: is short. Dump it again")}),
        ("_CUT = 'Dump it again'\ndef f(path):\n raise FormatError(path, 'is cut', _CUT)",
         {("FormatError", "{path}: is cut. Dump it again")}),
        ("def f(x):\n hint = 'near' if x else 'far'\n raise UsageError(f'it is {hint}')",
         {("UsageError", "it is near"), ("UsageError", "it is far")}),
        ("_WORDS = {1: 'one', 2: 'two'}\nraise UsageError(f'is {_WORDS[x]} long')",
         {("UsageError", "is one long"), ("UsageError", "is two long")}),
        ("def _what(x):\n return f'{x} is odd'\ndef f(n):\n raise UsageError(_what(n))",
         {("UsageError", "{n} is odd")}),
        ("def no(op: str, reason: str):\n return UsageError(f'{op}: {reason}')\n"
         "def f(op):\n raise no(op, 'takes one')", {("UsageError", "{op}: takes one")}),
        ("def no(reason: str):\n raise UsageError(f'never: {reason}')\n"
         "def f():\n no('takes one')", {("UsageError", "never: takes one")}),
        ("class Reader:\n def _no(self, reason: str):\n  return FormatError(self.path, reason)\n"
         " def f(self):\n  raise self._no('is odd')", {("FormatError", "{path}: is odd")}),
        ("class OddError(FormatError):\n pass\nraise OddError(p, 'x y')",
         {("OddError", "{p}: x y")}),
        ("import click\nraise click.UsageError('give one')", {("click.UsageError", "give one")}),
        ("raise UsageError('write {\"a\": 1}')", {("UsageError", 'write {{"a": 1}}')}),
        ("raise TypeError('not ours')", set()),
    ],
)  # fmt: skip
def test_each_text_of_an_error_is_found(
    tmp_path: Path, source: str, expected: set[tuple[str, str]]
) -> None:
    assert told(tmp_path, source) == expected


def test_exit_codes_are_those_of_the_class_or_its_base(tmp_path: Path) -> None:
    source = "class LostError(IncompleteError):\n pass\nraise LostError('lost it')"
    (each,) = templates_of(tmp_path, source)
    assert (each.exit_code, each.area, each.line) == (3, "Tensor files", 4)


def test_clauses_that_errors_quote_have_no_exit_code(tmp_path: Path) -> None:
    source = "class Odd(ValueError):\n pass\nraise ValueError('is odd')\nraise Odd('is even')"
    assert {(each.text, each.exit_code) for each in templates_of(tmp_path, source)} == {
        ("is odd", None),
        ("is even", None),
    }


def test_literal_pieces_and_placeholders_are_kept_apart(tmp_path: Path) -> None:
    (each,) = templates_of(tmp_path, "raise UsageError(f'{a} and {a} or {b.a}, {{}}')")
    assert each.literals == [" and ", " or "]
    assert each.text.format(**{"a": 1, "a 2": 2}) == "1 and 1 or 2, {}"
    assert each.pattern.fullmatch("1 and 1 or 2, {}")
    assert not each.pattern.fullmatch("1 and 1, {}")


@pytest.fixture(scope="module")
def index() -> Index:
    return Index()


@pytest.fixture(scope="module")
def ours(index: Index) -> list[ErrorTemplate]:
    return error_templates(index)


def test_every_class_of_error_has_a_text(index: Index, ours: list[ErrorTemplate]) -> None:
    assert set(error_classes(index)) == {
        each.kind for each in ours if each.exit_code is not None and "." not in each.kind
    }


def test_exit_codes_are_those_that_the_classes_have_in_the_program(index: Index) -> None:
    codes = error_classes(index)
    every = [each for each in vars(errors).values() if isinstance(each, type)]
    classes = [each for each in every if issubclass(each, errors.AitError)]
    assert len(classes) > 5
    for each in classes:
        assert codes[each.__name__] == each.exit_code


@pytest.mark.parametrize(
    "fail",
    [
        lambda folder: parse_size(None, _Param(), "x"),  # type: ignore[arg-type]
        lambda folder: StepRange.parse(",".join(comma_list("3,x"))),
        lambda folder: import_optional("no_such_package", "reading .xyz files"),
        lambda folder: load(folder / "a.npy"),
        lambda folder: load(folder / "a.bin"),
        lambda folder: load(folder / "absent.pt"),
    ],
)
def test_what_the_program_says_is_in_the_catalogue(
    tmp_path: Path, ours: list[ErrorTemplate], fail: object
) -> None:
    assert callable(fail)
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x01\x00")
    (tmp_path / "a.bin").write_bytes(b"no=header")
    with pytest.raises(errors.AitError) as caught:
        fail(tmp_path)
    said = str(caught.value)
    matching = [
        each for each in ours if each.kind == type(caught.value).__name__ and each.fits(said)
    ]
    best = max(matching, key=lambda each: len("".join(each.literals)))
    assert len("".join(best.literals)) > 10
    assert best.pattern.fullmatch(said)


def test_the_page_has_every_error_of_the_source(index: Index, ours: list[ErrorTemplate]) -> None:
    current = PAGE.read_text(encoding="utf-8")
    codes = Codes.of(ours, Codes.read(CODES), USAGE)
    wanted = page(current, catalogue(ours, error_classes(index), codes))
    assert current.splitlines() == wanted.splitlines(), "run scripts/error_catalogue.py"


def test_a_class_without_a_message_is_refused(index: Index, ours: list[ErrorTemplate]) -> None:
    codes = error_classes(index)
    without = [each for each in ours if each.kind != "ProbeError"]
    with pytest.raises(CatalogueError, match="no message is found of ProbeError"):
        catalogue(without, codes)
    with pytest.raises(CatalogueError, match="give NewError a line"):
        catalogue([*ours, replace(ours[0], kind="NewError")], {**codes, "NewError": 2})


def test_the_page_of_the_command_line_names_every_variable_of_ours(index: Index) -> None:
    named = re.compile(r"AIT_[A-Z_]+")
    used = {
        node.value
        for module in index.modules.values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and named.fullmatch(node.value)
    }
    text = (PAGE.parent / "cli.md").read_text(encoding="utf-8")
    assert len(used) > 8
    assert used <= set(named.findall(text))


def test_the_page_of_the_command_line_has_the_exit_codes_of_every_command() -> None:
    text = (PAGE.parent / "cli.md").read_text(encoding="utf-8")
    table = text.partition("By command:")[2].partition("## ")[0]
    assert re.findall(r"^\| `([\w-]+)`", table, re.MULTILINE) == list(own_commands())
    for code in EXITS:
        assert f"\n| {code} | {EXITS[code].split(' by ')[0]}" in text


class _Param:
    opts = ("--size",)
