"""The same for programs that are started, and for modules of this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ait_llm.decisions.compared import tokens_of
from ait_llm.decisions.result import TokensResult
from ait_llm.transplanting.running import Request, with_programs
from ait_llm.transplanting.two_runs import TwoRuns


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
    return with_programs(
        request,
        environ,
        tell,
        lambda side: tokens_of(side, tell),
        lambda status, reason, code: TokensResult(
            status, reason, request.folder, program_code=code
        ),
        keeps_rounding=True,
    )


def tokens_of_dumps(golden: Path, mine: Path) -> TokensResult:
    """What two captured runs thought of their tokens.

    Raises:
        FormatError, UsageError: they cannot be compared.
    """
    return tokens_of(TwoRuns(golden, mine))


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
    from ait_llm.transplanting.in_process import called  # torch, which the command does without

    with called(golden, mine, args, kwargs, folder, operators=False, keeps_rounding=True) as side:
        result = tokens_of(side)
        return replace(result, runs=result.runs + 1, folder=None if folder is None else side.folder)
