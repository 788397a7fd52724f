"""Options and parsing rules that commands share."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from ait_llm.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def parse_size(_ctx: click.Context, param: click.Parameter, value: str) -> int:
    """Callback: bytes of ``512``, ``64K``, ``256MiB`` or ``1.5g``; units are powers of 2.

    Raises:
        UsageError: not a size.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?", value.strip().lower())
    if match is None:
        raise UsageError(f"{param.opts[-1]} {value!r} is not a size; write it like 64K or 1.5G")
    return int(float(match.group(1)) * _UNITS[match.group(2)])


class ManyOption(click.Option):
    """An option that takes every following word up to the next option: ``--type layer tensor``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "multiple": True})


class ListOption(click.Option):
    """An option with a comma list that may have blanks around its commas: ``-ids 2, 3_1``."""


class WordsCommand(click.Command):
    """A command whose :class:`ManyOption` and :class:`ListOption` take more than one word."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Rewrite the words so that click sees one value for each option."""
        return super().parse_args(ctx, join_words(self.get_params(ctx), args))


def join_words(params: Sequence[click.Parameter], words: Sequence[str]) -> list[str]:
    """Repeat or join the values of options that take several words.

    ``--type layer tensor`` becomes ``--type layer --type tensor``, and ``-ids 2, 3_1`` becomes
    ``-ids 2,3_1``. Everything else is kept.
    """
    options = {
        name: param
        for param in params
        if isinstance(param, click.Option)
        for name in (*param.opts, *param.secondary_opts)
    }
    result: list[str] = []
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return [*result, word, *rest]
        name, equals, value = word.partition("=")
        option = options.get(name)
        if option is None or option.is_flag or option.count or not (equals or rest):
            result.append(word)
            continue
        if not equals:
            value = rest.pop(0)
        result += [name, value]
        if isinstance(option, ManyOption):
            while rest and not rest[0].startswith("-"):
                result += [name, rest.pop(0)]
        elif isinstance(option, ListOption):
            while rest and (_joins(value, rest[0])):
                value += rest.pop(0).strip()
            result[-1] = value
    return result


def _joins(value: str, following: str) -> bool:
    return following.startswith(_COMMAS) or (
        value.rstrip().endswith(_COMMAS) and not following.startswith("-")
    )


# The manual itself writes the full-width comma in places, so people paste it.
_COMMAS = (",", "\uff0c")


def comma_list(text: str) -> list[str]:
    """The non-empty elements of a comma list, without the blanks around them."""
    fields = re.split("|".join(_COMMAS), text)
    return [field.strip() for field in fields if field.strip()]


def absolute_path(_ctx: click.Context, _param: click.Parameter, value: str | None) -> Path | None:
    """Callback: expand ``~`` and make the path absolute, before anything changes directory."""
    return None if value is None else Path(value).expanduser().absolute()


_LEVELS = {"fatal": logging.CRITICAL, "warn": logging.WARNING}


def set_log_level(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    """Callback: let our own messages of that level through, to stderr."""
    logger = logging.getLogger("ait_llm")
    logger.setLevel(_LEVELS.get(value, getattr(logging, value.upper(), logging.INFO)))
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("ait: %(levelname)s: %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False
    return {"warn": "warning"}.get(value, value)


def log_level_option(levels: Sequence[str]) -> Callable[[F], F]:
    """``-l/--log-level`` with the levels that the manual lists for a command."""
    return click.option(
        "-l",
        "--log-level",
        type=click.Choice(list(levels), case_sensitive=False),
        default="info",
        show_default=True,
        callback=set_log_level,
        help="How much is said; 'debug' also shows the traceback of an error.",
    )


def json_option(function: F) -> F:
    """``--json``: the result for machines, on stdout."""
    return click.option(
        "--json", "as_json", is_flag=True, help="Print the result as one line of JSON on stdout."
    )(function)


def allow_skip_option(function: F) -> F:
    """``--allow-skip``: an incomplete result is not a failure."""
    return click.option(
        "--allow-skip", is_flag=True, help="Exit with 0 even if something is missing."
    )(function)
