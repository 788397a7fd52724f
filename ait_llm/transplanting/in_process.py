"""The same for two modules of this process, in scripts and notebooks.

import ait_llm

result = ait_llm.transplant(golden, mine, input_ids)
result.needed
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ait_llm.dump.in_process import captured
from ait_llm.transplanting.patched import PatchedProgram
from ait_llm.transplanting.result import TransplantResult
from ait_llm.transplanting.running import GOLDEN, MINE
from ait_llm.transplanting.search import search

_RUNS = 60


def transplant(
    golden: Callable[..., Any],
    mine: Callable[..., Any],
    *args: Any,
    folder: str | Path | None = None,
    operators: bool = True,
    runs: int = _RUNS,
    **kwargs: Any,
) -> TransplantResult:
    """Find which of the differences between two modules changes the answer of mine.

    Golden is called once and mine again and again, with golden's values in place of its own at
    some places; see ``ait llm transplant``. All calls are made without gradients, with copies of
    the arguments and from the same state of the random generators.

    Args:
        golden: the trusted module, function or method of a module.
        mine: the one under suspicion.
        args, kwargs: what both are called with.
        folder: where the captures stay; by default they are removed.
        operators: look at every aten operator; False is for modules whose operators are too many,
            and names modules.
        runs: calls of mine, at most.

    Returns:
        The differences that matter, in ``result.needed``; true if the answer of mine is golden's.

    Raises:
        UsageError: something that cannot be called, or the folder cannot be written.
        Exception: what the modules raise.

    Example:
        >>> from ait_llm import transplant
        >>> result = transplant(trusted_model, fast_model, input_ids=ids)  # doctest: +SKIP
        >>> [each.op for each in result.needed]  # doctest: +SKIP
    """
    with called(golden, mine, args, kwargs, folder, operators=operators) as side:
        return search(side, side.folder, runs)


@contextmanager
def called(
    golden: Callable[..., Any],
    mine: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    folder: str | Path | None,
    *,
    operators: bool,
    keeps_rounding: bool = False,
) -> Iterator[PatchedProgram]:
    """Call two modules once and capture them; mine can then be called again.

    Args:
        golden, mine: the modules, functions or methods.
        args, kwargs: what both are called with.
        folder: where the captures stay; None for a folder that goes with the block.
        operators: also capture every aten operator.
        keeps_rounding: of mine, see :class:`PatchedProgram`.

    Raises:
        UsageError: something that cannot be called, or the folder cannot be written.
        Exception: what the modules raise.
    """
    place: AbstractContextManager[str | Path]
    place = tempfile.TemporaryDirectory(prefix="ait-") if folder is None else nullcontext(folder)
    with place as root:
        path = Path(root).absolute()
        _Caller(golden, args, kwargs, operators).run(path / GOLDEN, None)
        caller = _Caller(mine, args, kwargs, operators)
        caller.run(path / MINE, None)
        yield PatchedProgram(path / GOLDEN, path / MINE, caller, path, keeps_rounding)


@dataclass(frozen=True, slots=True)
class _Caller:
    """Calls a module again and again."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    operators: bool

    def run(self, output: Path, plan: Path | None) -> None:
        """Call it once and capture it, with patches if there is a plan of them."""
        shutil.rmtree(output, ignore_errors=True)
        captured(
            output, self.function, self.args, self.kwargs, operators=self.operators, patches=plan
        )
