"""The same for a module of this process, in scripts and notebooks.

import ait_llm

result = ait_llm.invariant(model.generate, input_ids, max_new_tokens=4, do_sample=False)
result.in_state("broken")
"""

from __future__ import annotations

import functools
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ait_llm.compare.pipeline import compare
from ait_llm.dump.changes.calls import ChangedCalls
from ait_llm.dump.changes.catalogue import CHANGES, NotPossibleError
from ait_llm.dump.changes.process import changed_here
from ait_llm.dump.torch_hook import DumpConfig, register_hook
from ait_llm.errors import UnknownNameError, UsageError
from ait_llm.invariance.heard import Heard
from ait_llm.invariance.judging import judged
from ait_llm.invariance.result import InvariantResult, Outcome
from ait_llm.invariance.running import PLAIN

_ALL_STEPS = range(1 << 31)


def invariant(
    function: Callable[..., Any],
    *args: Any,
    changes: Iterable[str] | None = None,
    folder: str | Path | None = None,
    operators: bool = True,
    **kwargs: Any,
) -> InvariantResult:
    """Call a module under changes that must not change its answer, and compare the calls.

    No trusted module is needed: the calls are compared with each other, as :func:`ait_llm.compare`
    does. All are made without gradients, from the same state of the random generators.

    Args:
        function: a module, or its ``generate``.
        args, kwargs: what it is called with.
        changes: names of ``ait llm invariant --changes``; None for all that one process can make.
        folder: where the captures stay; by default they are removed.
        operators: also capture every aten operator, so that operators are named and not modules.

    Returns:
        The outcomes; the result is true if every change that applies was made and held.

    Raises:
        UsageError: something that is no module, or the folder cannot be written.
        UnknownNameError: there is no such change.
        Exception: what the module raises without a change.

    Example:
        >>> from ait_llm import invariant
        >>> result = invariant(model, ids, changes=["batch", "padding-right"])  # doctest: +SKIP
        >>> [each.origin for each in result.in_state("broken")]  # doctest: +SKIP
    """
    names = tuple((each for each in CHANGES if each != "ranks") if changes is None else changes)
    for name in names:
        if name not in CHANGES:
            raise UnknownNameError(f"there is no change {name!r}; known: {', '.join(CHANGES)}")
    owner = function if isinstance(function, nn.Module) else getattr(function, "__self__", None)
    if not isinstance(owner, nn.Module):
        raise UsageError(
            f"invariant needs a module or a method of one, not {type(function).__name__}"
        )
    started = time.monotonic()
    place: AbstractContextManager[str | Path]
    place = tempfile.TemporaryDirectory(prefix="ait-") if folder is None else nullcontext(folder)
    with place as root:
        caller = _Caller(owner, function, args, kwargs, Path(root), operators=operators)
        plain = caller.run(PLAIN)
        outcomes = [caller.outcome(name, plain) for name in names]
    return InvariantResult(
        Path(root),
        tuple(replace(each, dump=None) if folder is None else each for each in outcomes),
        runs=1 + len(names),
        seconds=time.monotonic() - started,
    )


class _Caller:
    """Makes the calls."""

    def __init__(
        self,
        owner: nn.Module,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        folder: Path,
        *,
        operators: bool,
    ) -> None:
        self._owner, self._function = owner, function
        self._args, self._kwargs = args, kwargs
        self._folder, self._operators = folder, operators

    def run(self, name: str) -> Heard:
        """Call with a change and capture the call in a folder of its name."""
        heard = Heard()
        change = CHANGES.get(name)
        config = DumpConfig(
            self._folder / name,
            token_range=_ALL_STEPS,
            operators=self._operators and not (change is not None and change.modules_only),
            weights=True,
            warmup=0 if change is None else change.warmup,
        )
        names = self._owner.forward if self._function is self._owner else self._function
        with (
            torch.random.fork_rng(),
            torch.no_grad(),
            changed_here(name, self._owner),
            register_hook(self._owner, config),
        ):
            ChangedCalls(name, heard.hear, changes_models=False).outermost(
                self._owner, functools.partial(self._function), names, self._args, self._kwargs
            )
        return heard

    def outcome(self, name: str, plain: Heard) -> Outcome:
        """What a change shows."""
        if name == "ranks":
            return Outcome(name, "not made", "it is for the command ait llm invariant")
        begun = time.monotonic()
        dump = self._folder / name
        try:
            heard = self.run(name)
        except NotPossibleError as error:
            return Outcome(name, "not made", str(error))
        except Exception as error:  # noqa: BLE001 - whatever the module raises under the change
            text = f"the module raises {type(error).__name__} under it: {error}"
            return Outcome(name, "failed", text, dump=dump)
        if not heard.made:
            shutil.rmtree(dump, ignore_errors=True)
            return Outcome(name, "not made", heard.why_not())
        report = compare(self._folder / PLAIN, dump)
        outcome = judged(name, report, plain.answers, heard.answers)
        return replace(outcome, dump=dump, seconds=time.monotonic() - begun)
