"""Help of every command: options that are explained, examples that parse, lines that fit."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from ait_llm.cli.llm import COMMANDS as LISTED
from ait_llm.cli.llm import own_commands
from ait_llm.cli.main import ait
from ait_llm.cli.manual import examples

COMMANDS = [("completion",), *(("llm", name) for name in own_commands())]
_ENDS = re.compile(r"[.!?)]$")
_FACT = re.compile(r"\[(default: |required)")


def command_of(path: tuple[str, ...]) -> tuple[click.Command, click.Context]:
    command: click.Command = ait
    ctx = click.Context(ait, info_name="ait", **ait.context_settings)
    for name in path:
        assert isinstance(command, click.Group)
        found = command.get_command(ctx, name)
        assert found is not None
        command, ctx = found, click.Context(found, parent=ctx, info_name=name)
    return command, ctx


def options_of(path: tuple[str, ...]) -> Iterator[click.Option]:
    command, _ = command_of(path)
    return (param for param in command.params if isinstance(param, click.Option))


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_option_is_a_sentence_with_its_default(path: tuple[str, ...]) -> None:
    _, ctx = command_of(path)
    for option in options_of(path):
        record = option.get_help_record(ctx)
        assert record is not None, option.opts
        text = record[1]
        sentence = re.sub(r"\s*\[(default: |required|x?[0-9<>=x]+).*$", "", text)
        assert _ENDS.search(sentence), (option.opts, sentence)
        assert sentence[0].isupper() or sentence[0] in "0'" or "_" in sentence.split()[0], sentence
        says = option.is_flag or bool(_FACT.search(text))
        assert says, (option.opts, text)


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_has_examples_that_parse(path: tuple[str, ...]) -> None:
    command, ctx = command_of(path)
    lines = [line for line in examples(command) if line.startswith("ait ")]
    assert lines
    for line in lines:
        words = shlex.split(line.partition(" > ")[0])
        name = " ".join(words[1 : 1 + len(path)])
        if name != " ".join(path):  # the step after, with another command
            path = tuple(words[1:3])
            command, ctx = command_of(path)
        # With the parent: click keeps the names of --help that it sees first.
        with command.make_context(path[-1], words[1 + len(path) :], parent=ctx.parent):
            pass
    assert not list(Path.cwd().iterdir())


@pytest.mark.parametrize("path", [(), ("llm",), *COMMANDS], ids=" ".join)
def test_help_fits_into_80_columns_and_names_what_it_does(path: tuple[str, ...]) -> None:
    said = CliRunner().invoke(ait, [*path, "--help"], terminal_width=80)
    assert said.exit_code == 0
    assert max(map(len, said.stdout.splitlines())) <= 80
    assert "Examples:\n" in said.stdout
    assert re.search(r"\n\n  [A-Z][^\n]*", said.stdout)
    assert said.stderr == ""


@pytest.mark.parametrize("words", [["llm"], ["llm", "--help"], ["--help"]], ids=" ".join)
def test_the_list_of_commands_fits_an_80x24_screen(words: list[str]) -> None:
    said = CliRunner().invoke(ait, words, terminal_width=80)
    assert len(said.output.splitlines()) <= 23  # and the line of the next prompt


def test_without_arguments_the_three_commands_to_begin_with_are_shown() -> None:
    alone = CliRunner().invoke(ait, ["llm"], terminal_width=80).output
    _, _, first = alone.partition("Examples:\n")
    begin = [line.split()[:3] for line in first.splitlines()]
    assert begin == [["ait", "llm", name] for name in ("dump", "dump", "compare")]
    asked = CliRunner().invoke(ait, ["llm", "--help"], terminal_width=80).output
    assert asked.startswith("Usage: ")
    assert "-o golden" not in asked


def test_the_list_of_commands_has_every_command_with_one_line_each() -> None:
    said = CliRunner().invoke(ait, ["llm", "--help"], terminal_width=80).stdout
    for name in own_commands():
        if LISTED[name].hidden:  # what others start, and the schemas of what they read
            assert name in (
                "mcp",
                "explain",
                "schema",
                "api-precision-compare",
                "merge-result",
                "export",
            )
            continue
        assert re.search(rf"^ .* {name}  +[A-Z][^\n]*\.$", said, re.MULTILINE), name
