"""Commands that messages advise are commands, with options and types that they take."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from ait_llm.cli.main import ait

_MESSAGES = (Path(__file__).parents[2] / "docs" / "errors.md").read_text(encoding="utf-8")
_LLM = ait.get_command(click.Context(ait), "llm")
_ADVICE = sorted(set(re.findall(r"ait llm ([a-z][a-z-]*)([^`;,.()|]*)", _MESSAGES)))


def _command(name: str) -> click.Command | None:
    assert isinstance(_LLM, click.Group)
    return _LLM.get_command(click.Context(_LLM), name)


@pytest.mark.parametrize("name", sorted({name for name, _ in _ADVICE}))
def test_a_command_that_messages_advise_is_there(name: str) -> None:
    assert _command(name) is not None


@pytest.mark.parametrize(("name", "words"), _ADVICE)
def test_options_that_messages_advise_are_options_of_the_command(name: str, words: str) -> None:
    command = _command(name)
    assert command is not None
    known = {option for each in command.params for option in each.opts} | {"--help"}
    assert not set(re.findall(r"(?<!\S)--[a-z][a-z-]+", words)) - known


@pytest.mark.parametrize("kind", sorted(set(re.findall(r"--type ([a-z][a-z-]*)", _MESSAGES))))
def test_a_type_that_messages_advise_is_a_type_of_dump(kind: str) -> None:
    command = _command("dump")
    assert command is not None
    (option,) = (each for each in command.params if each.name == "types")
    assert isinstance(option.type, click.Choice)
    assert kind in option.type.choices
