"""Values that a shell can complete: files, folders, and names that the program knows."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

import ait_llm


class CompletedWords(click.types.StringParamType):
    """Texts that a shell completes from what is known.

    Args:
        known: returns the values; called when a shell asks.
        comma: values stand in a comma list, the last of which is completed.
    """

    def __init__(self, known: Callable[[], Iterable[str]], *, comma: bool = False) -> None:
        self.known = known
        self.comma = comma

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The known values that begin so, in any case."""
        done, comma, last = incomplete.rpartition(",") if self.comma else ("", "", incomplete)
        given = set(done.split(","))
        return [
            CompletionItem(f"{done}{comma}{name}")
            for name in sorted(self.known())
            if name.lower().startswith(last.lower()) and name not in given
        ]


class CompletedPath(click.types.StringParamType):
    """Texts that a shell completes as a file or folder.

    Args:
        kind: ``file`` or ``dir``, as click's scripts know them.
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Leave it to the shell."""
        return [CompletionItem(incomplete, type=self.kind)]


_FOLDERS = ("DIR",)
_FILES = ("PATH", "FILE")


def complete_paths(params: Iterable[click.Parameter]) -> None:
    """Give parameters whose metavar says path, file or folder the completion of such."""
    for param in params:
        metavar = (param.metavar or "").split(":")[0]
        if type(param.type) is not click.types.StringParamType:
            continue
        if metavar in _FOLDERS:
            param.type = CompletedPath("dir")
        elif metavar.startswith(_FILES) or "." in metavar:
            param.type = CompletedPath("file")


_TYPE = re.compile(r'^\w+ = "(\w+)Operation"', re.MULTILINE)


def operator_names() -> list[str]:
    """Beginnings of ATB operator types, such as ``SelfAttention``.

    They are read from the source of the golden operators: importing those takes seconds.
    """
    folders = [Path(entry) / "opcheck" / "golden" for entry in ait_llm.__path__]
    modules = [path for folder in folders for path in folder.glob("*.py")]
    return [name for path in modules for name in _TYPE.findall(path.read_text(encoding="utf-8"))]


def open_option(params: Sequence[click.Parameter], words: Sequence[str]) -> click.Option | None:
    """The option of several words to which a further word at the end would belong.

    Args:
        params: of the command.
        words: what is typed already.
    """
    options = {
        name: param for param in params if isinstance(param, click.Option) for name in param.opts
    }
    for place in range(len(words) - 1, -1, -1):
        name = words[place].partition("=")[0]
        if not name.startswith("-"):
            continue
        option = options.get(name)
        values = words[place + 1 :]
        several = option is not None and option.multiple and option.nargs == 1
        goes_on = bool(values) and values[-1].endswith(",")
        return option if values and (several or goes_on) else None
    return None
