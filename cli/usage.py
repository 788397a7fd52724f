"""Wrong usage in one sentence, with the word that was probably meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence

import click

_WHOLE = re.compile(r"not a valid integer(?: range)?")
_ALIKE = 0.75  # of 1: a letter or two are wrong


def usage_sentence(error: click.ClickException) -> str:
    """What is wrong with a command line, as a clause without a final stop.

    The nearest option or value is named where one is near; else where to read on.
    """
    see = ""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        see = f"; see {error.ctx.command_path} --help"
    if isinstance(error, click.NoSuchOption):
        return f"there is no option {error.option_name!r}" + _meant(
            error.option_name, _option_names(error.ctx), see
        )
    text = error.format_message().rstrip(".")
    if isinstance(error, click.MissingParameter) and error.param is not None:
        kind = "option" if isinstance(error.param, click.Option) else "argument"
        return f"the {kind} {_named(error)} is missing{see}"
    if isinstance(error, click.BadParameter) and error.param is not None:
        reason = _WHOLE.sub("no whole number", error.message.rstrip("."))
        text = f"the value of {_named(error)} is wrong: {reason}"
        if isinstance(error.param.type, click.Choice):
            given = reason.partition(" is not")[0].strip("'\"")
            return text + _meant(given, map(str, error.param.type.choices), see)
    elif text[:1].isupper() and not text[1:2].isupper():
        text = text[0].lower() + text[1:]
    return text if "did you mean" in text or "--help" in text else text + see


def refuse_misspelled(ctx: click.Context, words: Sequence[str]) -> None:
    """Refuse a long word after one dash that is nearly an option, such as ``-opnam``.

    click would take it as ``-o`` with the value ``pnam``, and write there.

    Raises:
        click.NoSuchOption: there is such a word.
    """
    options = {
        name: param
        for param in ctx.command.get_params(ctx)
        if isinstance(param, click.Option)
        for name in (*param.opts, *param.secondary_opts)
    }
    long = [name for name in options if len(name) > 2 and not name.startswith("--")]
    takes_value = False
    for word in words:
        if word == "--":
            return
        name, equals, _ = word.partition("=")
        if takes_value:
            takes_value = False
        elif name in options:
            takes_value = not equals and not options[name].is_flag and not options[name].count
        elif len(name) > 2 and name[0] == "-" and name[1].isalpha() and _near(name, long):
            raise click.NoSuchOption(name, ctx=ctx)


def _option_names(ctx: click.Context | None) -> list[str]:
    if ctx is None:
        return []
    return [name for param in ctx.command.get_params(ctx) for name in param.opts if name[0] == "-"]


def _named(error: click.BadParameter) -> str:
    param = error.param
    assert param is not None
    if isinstance(param, click.Option):
        return max(param.opts, key=lambda name: (name.startswith("--"), -param.opts.index(name)))
    return param.metavar or (param.name or "").upper()


def _near(word: str, known: Iterable[str]) -> str | None:
    found = difflib.get_close_matches(word, list(known), n=1, cutoff=_ALIKE)
    return found[0] if found else None


def _meant(word: str, known: Iterable[str], otherwise: str) -> str:
    near = _near(word, known)
    return f"; did you mean {near!r}?" if near is not None else otherwise
