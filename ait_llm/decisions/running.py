"""The same for programs that are started, and for modules of this process."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from ait_llm.decisions.compared import same_dumps, tokens_of
from ait_llm.decisions.result import TokensResult
from ait_llm.transplanting.patched import PatchedProgram
from ait_llm.transplanting.running import GOLDEN, MINE, ProgramRunner, Request, clean
from ait_llm.transplanting.search import ProgramFailedError


def tokens_of_programs(
    request: Request,
    environ: Mapping[str, str],
    tell: Callable[[str], None] = lambda _text: None,
) -> TokensResult:
    """Run golden once and mine a few times, and tell why they choose differently.

    Args:
        request: the programs; ``runs`` is not looked at.
        environ: the user's environment.
        tell: is told before each run what it is.

    Raises:
        UsageError: a program cannot be started, the folder cannot be written, or the captures
            cannot be compared.
        FormatError: golden is no dump.
    """
    started = time.monotonic()
    folder = request.folder
    runner = ProgramRunner(request.words, environ, request.types, request.steps)
    count = 1
    try:
        golden = request.golden
        if not isinstance(golden, Path):
            tell("golden: as it is")
            replace(runner, words=golden).run(folder / GOLDEN, None)
            golden, count = folder / GOLDEN, 2
        tell("mine: as it is")
        runner.run(folder / MINE, None)
        side = PatchedProgram(golden, folder / MINE, runner, folder, keeps_rounding=True)
        result = tokens_of(side, tell)
        result = replace(result, runs=result.runs + count)
    except ProgramFailedError as error:
        result = TokensResult("failed", str(error), folder, program_code=error.program_code)
    except KeyboardInterrupt:
        result = TokensResult("interrupted", "it was interrupted", folder)
    if not request.keep:
        clean(folder)
    return replace(result, seconds=time.monotonic() - started)


def tokens_of_dumps(golden: Path, mine: Path) -> TokensResult:
    """What two captured runs thought of their tokens.

    Raises:
        FormatError, UsageError: they cannot be compared.
    """
    return replace(tokens_of(same_dumps(golden, mine), why=False), folder=None)


def tokens(
    golden: Callable[..., Any],
    mine: Callable[..., Any],
    *args: Any,
    folder: str | Path | None = None,
    **kwargs: Any,
) -> TokensResult:
    """Tell what two modules think of each token, and why they choose differently.

    Golden is called once and mine a few times, without gradients or with them; see ``ait llm
    tokens``. All calls get copies of the arguments and the same state of the random generators.

    Args:
        golden: the trusted module, or a method of it such as ``model.generate``.
        mine: the one under suspicion.
        args, kwargs: what both are called with.
        folder: where the captures stay; by default they are removed.

    Returns:
        The decisions; true if no token is another one but by rounding.

    Raises:
        UsageError: something that cannot be called, or the folder cannot be written.
        Exception: what the modules raise.

    Example:
        >>> from ait_llm import tokens
        >>> result = tokens(trusted.generate, fast.generate, ids)  # doctest: +SKIP
        >>> [(each.step, each.cause) for each in result.flips]  # doctest: +SKIP
    """
    from ait_llm.dump.in_process import captured  # torch, which the command does without
    from ait_llm.transplanting.in_process import Caller

    place: AbstractContextManager[str | Path]
    place = tempfile.TemporaryDirectory(prefix="ait-") if folder is None else nullcontext(folder)
    with place as root:
        path = Path(root).absolute()
        for name in (GOLDEN, MINE):
            shutil.rmtree(path / name, ignore_errors=True)
        captured(path / GOLDEN, golden, args, kwargs, operators=False)
        caller = Caller(mine, args, kwargs, operators=False)
        caller.run(path / MINE, None)
        side = PatchedProgram(path / GOLDEN, path / MINE, caller, path, keeps_rounding=True)
        result = tokens_of(side)
    return replace(result, runs=result.runs + 1, folder=None if folder is None else path)
