"""The ``ait`` command: a host for commands that packages plug in, and the one error boundary."""

from __future__ import annotations

import contextlib
import difflib
import gc
import io
import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any, NoReturn

import click

from ait_llm.cli.fault import end_with_fault, shows_traces
from ait_llm.cli.localised import localised, take_language
from ait_llm.cli.manual import HELP_NAMES, examples, write_examples, write_prose
from ait_llm.cli.supervised import (
    RUNS_COMMAND,
    follow_supervisor,
    is_supervised,
    tell_end,
    watch_ray,
)
from ait_llm.cli.usage import usage_sentence
from ait_llm.cli.version import version_options
from ait_llm.errors import AitError, FormatError, IncompleteError, MissingDependencyError
from ait_llm.language import LANGUAGES, chosen, speaking, translate
from ait_llm.naming import told

GROUP = "ait.commands"
INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it
PIPE_CLOSED = 141  # 128 + SIGPIPE, as a shell reports it of other programs

# Works in a bare checkout too, where no metadata is installed.
_OWN = {
    "completion": EntryPoint("completion", "ait_llm.cli.completion:completion", GROUP),
    "llm": EntryPoint("llm", "ait_llm.cli.llm:llm", GROUP),
}


def installed_commands() -> dict[str, EntryPoint]:
    """Ours, and the entry points of the group ``ait.commands`` of all installed packages."""
    return {**_OWN, **{entry.name: entry for entry in entry_points(group=GROUP)}}


class LazyGroup(click.Group):
    """A group that loads a sub-command when it is used or listed, and survives one that breaks.

    Args:
        source: returns the sub-commands by name; called when they are needed.
    """

    def __init__(self, *args: Any, source: Callable[[], Mapping[str, EntryPoint]], **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.source = source

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in alphabetical order; nothing is loaded."""
        return sorted(self.source())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load one sub-command.

        Raises:
            MissingDependencyError: its package is broken; the message says how.
        """
        entry = self.source().get(cmd_name)
        if entry is None:
            return None
        try:
            command = entry.load()
        except Exception as error:  # a plug-in may fail in any way; we say which did
            raise MissingDependencyError(
                f"the command {cmd_name!r} cannot be loaded from {entry.value}: "
                f"{type(error).__name__}: {error}; reinstall or remove its package"
            ) from error
        if not isinstance(command, click.Command):
            raise MissingDependencyError(
                f"the command {cmd_name!r} cannot be used: {entry.value} is not a click command"
            )
        return localised(command)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """As click does, and suggest the nearest name when there is no such command."""
        name = args[0]
        unknown = self.get_command(ctx, name) is None and not name.startswith("-")
        if unknown and not ctx.resilient_parsing:
            near = difflib.get_close_matches(name, self.list_commands(ctx), n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"see {ctx.command_path} --help"
            ctx.fail(f"there is no command {name!r}; {hint}")
        return super().resolve_command(ctx, args)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What the group is for."""
        write_prose(self, formatter)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The examples, the options and the sub-commands."""
        write_examples(examples(self), formatter)
        super().format_options(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the sub-commands; one that cannot be loaded is listed with the reason."""
        rows = []
        for name in self.list_commands(ctx):
            try:
                command = self.get_command(ctx, name)
            except MissingDependencyError as error:
                rows.append((name, f"(broken) {error}"))
                continue
            if command is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(limit=100)))
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


class Host(LazyGroup):
    """The top-level group. Its :meth:`main` is the only place that turns errors into exit codes."""

    def main(self, args: Sequence[str] | None = None, **extra: Any) -> Any:  # type: ignore[override]  # click's other arguments pass through by name
        """Run and exit: 0, the command's own code, 2 for wrong usage, 130 when interrupted.

        An :class:`AitError` is told in one sentence; any other exception is a fault of ours: 4,
        with a file that has its traceback.
        """
        extra.setdefault("prog_name", "ait")
        for stream in (sys.stdout, sys.stderr):
            if isinstance(stream, io.TextIOWrapper):  # file names may hold half characters
                stream.reconfigure(errors="backslashreplace")
        standalone = extra.pop("standalone_mode", True)
        RUNS_COMMAND.set(standalone and args is None)
        words, language = take_language(sys.argv[1:] if args is None else args)
        try:
            spoken = chosen(language, os.environ)
        except AitError as error:
            if not standalone:
                raise
            click.echo(f"ait: error: {error}", err=True)
            sys.exit(error.exit_code)
        with speaking(spoken):
            host = localised(self)
            if not standalone:
                return host.run(words, extra)
            sys.exit(_ended(lambda: host.run(words, extra)))

    def run(self, words: Sequence[str], extra: Mapping[str, Any]) -> Any:
        """Run as click does, and let errors through."""
        try:
            return super().main(words, standalone_mode=False, **extra)
        except _PassedError as passed:
            raise passed.error from passed.error.__cause__

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        """As click does."""
        with _passed():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """As click does."""
        with _passed():
            return super().invoke(ctx)


class _PassedError(Exception):
    """An error on its way past click, which would end with 1 or as if somebody had interrupted."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@contextlib.contextmanager
def _passed() -> Iterator[None]:
    try:
        yield
    except (EOFError, OSError) as error:
        raise _PassedError(error) from error


def _ended(run: Callable[[], Any]) -> int:
    """What a command ends with, which whoever supervises it is told, too."""
    if not is_supervised():
        return _exit_code(run)
    follow_supervisor()
    watch_ray()
    code = _exit_code(run)
    tell_end(code)
    return code


def _exit_code(run: Callable[[], Any]) -> int:
    """What a command ends with; its error is told."""
    try:
        result = _whole(run())
        sys.stdout.flush()  # a reader that has gone is heard of here, and not when Python ends
    except click.ClickException as error:
        _show(error)
        return error.exit_code
    except click.Abort:
        click.echo(translate("interrupted"), err=True)
        return INTERRUPTED
    except AitError as error:
        if shows_traces():
            traceback.print_exc()
        click.echo(f"ait: {_titled('error', str(error))}{_coded(error, str(error))}", err=True)
        return error.exit_code
    except BrokenPipeError:  # as other programs of a pipeline end: without a word
        _close_streams()
        return PIPE_CLOSED
    except Exception as error:  # noqa: BLE001  whatever it is, nobody foresaw it
        if not _is_out_of_memory(error):
            return end_with_fault(error)
        click.echo(f"ait: {_titled('error', 'there is not enough free memory')}", err=True)
        return IncompleteError.exit_code
    return result if isinstance(result, int) else 0


def _is_out_of_memory(error: Exception) -> bool:
    """True where memory was refused, also that of the stack of a thread."""
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError) and str(error) == "can't start new thread"
    )


def _whole(result: Any) -> Any:
    """The result of a command, if it rests on what its files have.

    Raises:
        FormatError: one became shorter while it was read, and the result rests on zeros.
    """
    mapped = sys.modules.get("ait_llm.formats.mapped")  # loaded where a file was mapped
    for path in mapped.shortened() if mapped is not None else ():
        raise FormatError(
            path,
            "became shorter while it was read, so what was said does not hold",
            "Run the command again when nothing writes there",
        )
    return result


def _close_streams() -> None:
    """Let nothing be written where nobody reads, also not when Python ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)


def _titled(title: str, text: str) -> str:
    return f"{translate(title)}{translate(': ')}{translate(text)}"


def _coded(error: Exception, text: str) -> str:
    """The code of an error in brackets, for ``ait llm explain``; nothing where it has none."""
    from ait_llm.language.codes import code_of  # most commands end without an error

    kinds = [
        f"click.{kind.__name__}" if kind.__module__.startswith("click") else kind.__name__
        for kind in type(error).__mro__
    ]
    code = code_of(kinds, text)
    return f" [{code}]" if code else ""


def _show(error: click.ClickException) -> None:
    """One sentence, in the language of the messages; help where nothing was asked for."""
    if type(error).__name__ == "NoArgsIsHelpError":  # click 8.2 and later
        error.show()
        return
    text = usage_sentence(error)
    click.echo(told(f"ait: {_titled('error', text)}{_coded(error, text)}"), err=True)


@click.command(
    cls=Host,
    source=installed_commands,
    context_settings={"help_option_names": HELP_NAMES},
)
@click.option(
    "--lang",
    type=click.Choice(LANGUAGES),
    expose_value=False,
    help="Language of messages, at any place of the line.  [default: that of the locale]",
)
@version_options
def ait() -> None:
    """Tools for large language model inference. Commands come from installed packages.

    \b
    ait llm --help
    ait completion --help
    """


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Entry point of the ``ait`` script."""
    # Modules and records are many and stay: looking at all of them for each 700 new objects costs
    # an eighth of a short command.
    gc.set_threshold(20_000, 20, 20)
    ait.main(args)
    raise AssertionError("Host.main exits")
