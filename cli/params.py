"""Options and parsing rules that commands share."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from ait_llm.cli.console import quiet_option
from ait_llm.cli.manual import ManualCommand
from ait_llm.core import StepRange
from ait_llm.errors import UsageError
from ait_llm.language import translate
from ait_llm.naming import told
from ait_llm.storage import OutputFolder, is_url, local_path, output_folder, redacted

_HERE = ("file://", "local://")
_OUTPUTS = "ait_llm.outputs"

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


class OutputCommand(ManualCommand):
    """A command that sends its results where a URL was given for them."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command, then send; what is not sent is kept and named.

        Raises:
            StorageError: the results, or some of them, could not be sent.
        """
        outputs: list[OutputFolder] = ctx.meta.get(_OUTPUTS, [])
        try:
            result = super().invoke(ctx)
        except click.exceptions.Exit:
            _send(outputs, ctx)
            raise
        except BaseException:
            for output in outputs:
                if (kept := output.keep()) is not None:
                    text = f"ait: what was written was not sent, it is in {kept}"
                    click.echo(translate(text), err=True)
            raise
        _send(outputs, ctx)
        return result


def _send(outputs: list[OutputFolder], ctx: click.Context) -> None:
    for output in outputs:
        output.send(replace=bool(ctx.params.get("overwrite")))


class WordsCommand(OutputCommand):
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


def step_range(_ctx: click.Context, _param: click.Parameter, value: str) -> StepRange:
    """Steps as closed intervals: ``0,3`` or ``all``; spaces after a comma are taken.

    Raises:
        UsageError: they are none.
    """
    return StepRange.parse(",".join(comma_list(value)))


def steps_option(
    default: str, help_text: str = "Tokens to look at, as closed intervals; 'all' is every token."
) -> Callable[[F], F]:
    """``-er/--execute-range``, as ``steps``.

    Args:
        default: steps that are meant without it.
        help_text: what is done with them.
    """
    return click.option(
        "-er",
        "--execute-range",
        "steps",
        cls=ListOption,
        default=default,
        show_default=True,
        callback=step_range,
        metavar="FIRST,LAST,...",
        help=help_text,
    )


def absolute_path(_ctx: click.Context, param: click.Parameter, value: str | None) -> Path | None:
    """Callback: expand ``~`` and make the path absolute, before anything changes directory.

    Raises:
        UsageError: it is a URL, of another place than this machine.
    """
    if value is None:
        return None
    if is_url(value) and not value.lower().startswith(_HERE):
        raise UsageError(f"{param.opts[-1]} {redacted(value)}: needs a local path, not a URL")
    return local_path(value).expanduser().absolute()


def input_path(_ctx: click.Context, _param: click.Parameter, value: str | None) -> Path | None:
    """Callback: as :func:`absolute_path`, and of a URL the local path that stands for it."""
    return None if value is None else local_path(value).expanduser().absolute()


def output_path(ctx: click.Context, param: click.Parameter, value: str | None) -> Path | None:
    """Callback: as :func:`absolute_path`, and of a URL a local folder that is sent there.

    It is sent when the command, an :class:`OutputCommand`, has ended.
    """
    if value is None or not is_url(value) or value.lower().startswith(_HERE):
        return absolute_path(ctx, param, value)
    output = output_folder(value)
    ctx.meta.setdefault(_OUTPUTS, []).append(output)
    return output.folder


_LEVELS = {"fatal": logging.CRITICAL, "warn": logging.WARNING}


class _Spoken(logging.Formatter):
    """Messages of the log in the language of the others."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        return told(translate(super().format(record)))


def set_log_level(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    """Callback: let our own messages of that level through, to stderr."""
    logger = logging.getLogger("ait_llm")
    logger.setLevel(_LEVELS.get(value, getattr(logging, value.upper(), logging.INFO)))
    if not logger.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(_Spoken("ait: %(levelname)s: %(message)s"))
        logger.addHandler(handler)
        logger.propagate = False
    return {"warn": "warning"}.get(value, value)


LEVELS = ("debug", "info", "warning", "warn", "error", "fatal", "critical")
"""What ``--log-level`` takes, in every command."""


def message_options(function: F) -> F:
    """``-l/--log-level`` and ``-q/--quiet``: how much is said besides results."""
    level = click.option(
        "-l",
        "--log-level",
        type=click.Choice(LEVELS, case_sensitive=False),
        default="info",
        show_default=True,
        callback=set_log_level,
        help="Mildest kind of message that is shown; 'debug' also shows the traceback of an error.",
    )
    return level(quiet_option(function))


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
