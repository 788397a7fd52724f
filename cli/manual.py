"""Help like a manual page: what a command does, examples, and each option with its default."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click
from click.shell_completion import CompletionItem

from ait_llm.cli.completed import complete_paths, open_option
from ait_llm.cli.usage import refuse_misspelled
from ait_llm.language import translate

_WORDS = "ait_llm.words"
EXIT_CODES = (
    "Exit codes: 0 all is well, 1 a verdict failed, 2 wrong usage or unreadable input, "
    "3 incomplete, 4 a fault of ait itself."
)
_LAST = ("--allow-skip", "--json", "--log-level", "--quiet", "--help")
HELP_NAMES = ["-h", "--help"]
_BLANK, _HYPHEN = "\u00a0", "\u2011"  # at which lines do not break
_NAMES = 4  # columns of names; what is longer stands on a line of its own
_LONGEST_CHOICE = 24
_BRACKETS = re.compile(
    r"\s*(?:\[((?:default|required|env var)[^\]]*)\])?\s*(?:\[([^\]]*x[<>]=[^\]]*)\])?\s*$"
)
_RANGES = (
    (re.compile(r"(\d+)<=x<=(\d+)"), r"\1 to \2"),
    (re.compile(r"(?:; )?x>=[01]\b"), ""),
)
_METAVARS = (
    ("DIRECTORY", "DIR"),
    ("INTEGER RANGE", "N"),
    ("INTEGER", "N"),
    ("BOOLEAN", "true|false"),
)


class ManualCommand(click.Command):
    """A command whose help shows its examples apart and keeps each option readable.

    A paragraph of its docstring that begins with ``\\b`` holds the examples, one a line.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # click keeps the names that it sees first, also those of a call without the parent.
        self.context_settings.setdefault("help_option_names", HELP_NAMES)
        complete_paths(self.params)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse; a word that is nearly an option is refused."""
        ctx.meta[_WORDS] = list(args)
        if not ctx.resilient_parsing:
            refuse_misspelled(ctx, args)
        return super().parse_args(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Further values of the option before, else the names of options."""
        option = open_option(self.params, ctx.meta.get(_WORDS, ()))
        if option is not None and not incomplete.startswith("-"):
            return option.shell_complete(ctx, incomplete)
        return super().shell_complete(ctx, incomplete)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What the command does."""
        write_prose(self, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, then the options."""
        write_examples(examples(self), formatter)
        params = sorted(self.get_params(ctx), key=_place)
        records = [(param, param.get_help_record(ctx)) for param in params]
        rows = [_readable(param, *record) for param, record in records if record and record[1]]
        with _unbroken(formatter), formatter.section("Options"):
            formatter.write_dl([(names, _fixed(text)) for names, text in rows], col_max=_NAMES)
        formatter.write_paragraph()
        formatter.write_text(translate(EXIT_CODES))


def _place(param: click.Parameter) -> int:
    """Options that all commands share stand at the end, in one order."""
    return max((_LAST.index(name) for name in param.opts if name in _LAST), default=-1)


def _fixed(text: str) -> str:
    """A text whose facts in brackets and words with hyphens stay on one line."""
    text = re.sub(r"\[[^\[\]]{1,40}\]$", lambda found: found[0].replace(" ", _BLANK), text)
    return text.replace("-", _HYPHEN)


@contextmanager
def _unbroken(formatter: click.HelpFormatter) -> Iterator[None]:
    """Write texts of :func:`_fixed`: what keeps them together is not shown."""
    start = len(formatter.buffer)
    yield
    written = "".join(formatter.buffer[start:])
    formatter.buffer[start:] = [written.replace(_BLANK, " ").replace(_HYPHEN, "-")]


def examples(command: click.Command) -> list[str]:
    """The lines of a command's examples."""
    kept = [part for part in _paragraphs(command.help) if _is_kept(part)]
    lines = [line.strip() for part in kept for line in part.split("\n")[1:]]
    return [line for line in lines if line]


def write_prose(command: click.Command, formatter: click.HelpFormatter) -> None:
    """What a command does, without its examples."""
    prose = "\n\n".join(part for part in _paragraphs(command.help) if not _is_kept(part))
    if prose:
        formatter.write_paragraph()
        with _unbroken(formatter), formatter.indentation():
            formatter.write_text(prose.replace("-", _HYPHEN))


def write_examples(lines: list[str], formatter: click.HelpFormatter, *, apart: bool = True) -> None:
    """The section with examples, one a line; a long one goes on after a backslash.

    Args:
        lines: the commands.
        formatter: gets them.
        apart: with an empty line before the section.
    """
    if not lines:
        return
    if not apart:
        formatter.write_heading("Examples")
    with formatter.section("Examples") if apart else formatter.indentation():
        for line in lines:
            for number, piece in enumerate(_broken(line, formatter.width - 4)):
                formatter.write(f"{'':{formatter.current_indent + (4 if number else 0)}}{piece}\n")


def _broken(line: str, width: int) -> Iterator[str]:
    """A command in lines that can be copied to a shell; an option keeps its values."""
    words = re.findall(r"(?:\"[^\"]*\"|'[^']*'|\S)+", line)
    groups: list[str] = []
    for word in words:
        if word.startswith("-") or not groups:
            groups.append(word)
        else:
            groups[-1] += f" {word}"
    piece = ""
    while groups:
        group = groups.pop(0)
        if piece and len(piece) + 1 + len(group) + len(" \\" if groups else "") > width:
            yield f"{piece} \\"
            piece = ""
        piece += f" {group}" if piece else group
    yield piece


def _paragraphs(text: str | None) -> list[str]:
    parts = re.split(r"\n\s*\n", inspect.cleandoc(text or "").partition("\f")[0])
    return [part.strip("\n ") for part in parts if part.strip("\n ")]


def _is_kept(paragraph: str) -> bool:
    return paragraph.startswith("\b")


def _readable(param: click.Parameter, names: str, text: str) -> tuple[str, str]:
    """Names and description of an option, without click's own notation."""
    for theirs, ours in _METAVARS:
        names = names.replace(theirs, ours)
    if (
        isinstance(param, click.Option)
        and isinstance(param.type, click.Choice)
        and param.metavar is None
    ):
        choices = [str(choice) for choice in param.type.choices]
        if len("|".join(choices)) > _LONGEST_CHOICE:
            several = " ..." if param.multiple else ""
            names = re.sub(r" ?\[[^\]]*\]$", f" NAME{several}", names)
            text = _with_sentence(text, f"One of {', '.join(choices)}.")
    found = _BRACKETS.search(text)
    assert found is not None  # it matches nothing at the end, too
    facts = "; ".join(filter(None, found.groups()))
    for pattern, words in _RANGES:
        facts = pattern.sub(words, facts)
    facts = facts.replace("default: True", "default: true").replace(
        "default: False", "default: false"
    )
    return names, text[: found.start()] + (f"  [{facts}]" if facts else "")


def _with_sentence(text: str, sentence: str) -> str:
    found = _BRACKETS.search(text)
    assert found is not None
    end = found.start()
    return f"{text[:end]} {sentence}{text[end:]}"
