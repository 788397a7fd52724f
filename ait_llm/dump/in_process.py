"""Captures and comparisons of modules of one process, in scripts and notebooks.

import ait_llm

report = ait_llm.diff(golden, mine, input_ids)
with ait_llm.capture(model) as run:
    model.generate(input_ids)
run.to_pandas()
"""

from __future__ import annotations

import copy
import os
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from ait_llm.compare.pipeline import compare
from ait_llm.core.comparison import Report
from ait_llm.dump.torch_hook import DumpConfig, register_hook
from ait_llm.dumps import Dump, open_dump
from ait_llm.errors import UsageError

if TYPE_CHECKING:
    import pandas

__all__ = ["Run", "capture", "diff"]

_ALL_STEPS = range(1 << 31)


def diff(
    golden: Callable[..., Any],
    mine: Callable[..., Any],
    *args: Any,
    folder: str | Path | None = None,
    operators: bool = True,
    **kwargs: Any,
) -> Report:
    """Run two modules or functions on the same arguments, and compare all that they compute.

    Both run once, without gradients and from the same state of the random generators. Each gets
    copies of the arguments: tensors on the device of its parameters, and floating ones in their
    type if that is one. A method of a module, such as ``model.generate``, is captured as the
    module, with all steps that it makes; of another function only the operators are seen.

    Args:
        golden: the trusted one.
        mine: the one under suspicion.
        args, kwargs: what both are called with.
        folder: where the captures stay, in ``golden`` and ``mine``; by default they are removed,
            and paths in the report name nothing any more.
        operators: also capture every aten operator; False is for modules whose operators are too
            many, and names modules.

    Returns:
        The report of :func:`ait_llm.compare`; it is true if everything agrees.

    Raises:
        UsageError: something that cannot be called, or the folder cannot be written.
        Exception: what the modules raise.

    Example:
        >>> from ait_llm import diff
        >>> report = diff(trusted_model, fast_model, input_ids=ids)  # doctest: +SKIP
        >>> report.to_pandas().query("verdict == 'FAIL'")  # doctest: +SKIP
    """
    place: AbstractContextManager[str | Path]
    place = tempfile.TemporaryDirectory() if folder is None else nullcontext(folder)
    with place as root:
        sides = (Path(root, "golden"), Path(root, "mine"))
        for path, side in zip(sides, (golden, mine), strict=True):
            captured(path, side, args, kwargs, operators=operators)
        return compare(*sides)


class Run:
    """A capture of this process; :func:`capture` makes it.

    Args:
        folder: where it is written; None for a folder that goes when the run is let go of.

    Attributes:
        path: the folder.
    """

    def __init__(self, folder: str | Path | None) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="ait-") if folder is None else folder)
        self._complete = False
        if folder is None:
            weakref.finalize(self, _remove, self.path, os.getpid())

    @property
    def dump(self) -> Dump:
        """What was captured.

        Raises:
            UsageError: the block of the capture has not ended.
            FormatError: the model was not called.
        """
        if not self._complete:
            raise UsageError("the capture is complete when its with block ends; look at it then")
        return open_dump(self.path)

    def compare(self, golden: Run | str | Path, **options: Any) -> Report:
        """This run against a trusted one; options are those of :func:`ait_llm.compare`.

        Raises:
            UsageError, FormatError: as :func:`ait_llm.compare`.
        """
        other = golden.dump.root if isinstance(golden, Run) else golden
        return compare(other, self.dump.root, **options)

    def to_pandas(self, *, statistics: bool = False) -> pandas.DataFrame:
        """One row for each tensor; see :meth:`ait_llm.dumps.Dump.to_pandas`."""
        return self.dump.to_pandas(statistics=statistics)

    def __repr__(self) -> str:
        state = repr(self.dump) if self._complete else f"<a capture that goes on in {self.path}>"
        return state.replace("<Dump", "<Run", 1)

    def _repr_html_(self) -> str:
        return self.dump._repr_html_() if self._complete else escape(repr(self))


@contextmanager
def capture(
    model: nn.Module,
    folder: str | Path | None = None,
    *,
    operators: bool = False,
    weights: bool = True,
    **settings: Any,
) -> Iterator[Run]:
    """Capture what the modules of a model receive and return while the block runs.

    All steps are captured. When the block ends, by an exception too, everything is written and no
    hook is left.

    Args:
        model: the outermost module.
        folder: where the capture stays; by default it goes when the run is let go of.
        operators: also capture every aten operator.
        weights: save parameters and buffers as well.
        settings: more of :class:`ait_llm.DumpConfig`, such as ``mode="stats"`` or ``layers``.

    Returns:
        The run: ``run.dump``, ``run.to_pandas()``, ``run.compare(golden)``.

    Raises:
        UsageError: no module, a setting of the wrong type, or a folder that cannot be written.

    Example:
        >>> from ait_llm import capture
        >>> with capture(trusted_model) as golden:  # doctest: +SKIP
        ...     trusted_model(ids)
        >>> with capture(fast_model) as run:  # doctest: +SKIP
        ...     fast_model(ids)
        >>> run.compare(golden)  # doctest: +SKIP
    """
    run = Run(folder)
    given = {"token_range": _ALL_STEPS, **settings}
    config = DumpConfig(run.path, operators=operators, weights=weights, **given)
    with register_hook(model, config):
        try:
            yield run
        finally:
            run._complete = True


def _remove(path: Path, pid: int) -> None:
    if os.getpid() == pid:  # a child that was forked does not own it
        shutil.rmtree(path, ignore_errors=True)


class _Function(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._function(*args, **kwargs)


def captured(
    path: Path,
    side: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    *,
    operators: bool,
    patches: Path | None = None,
) -> None:
    """Capture one call of a module, a method of one or a function, with copies of the arguments.

    Args:
        path: the output folder.
        side: what is called.
        args, kwargs: what it is called with.
        operators: also capture every aten operator.
        patches: plan of values that take the place of its own.

    Raises:
        UsageError: something that cannot be called, or the folder cannot be written.
        Exception: what it raises.
    """
    if not callable(side):
        raise UsageError(f"a module or function is needed, not {type(side).__name__}")
    owner = side if isinstance(side, nn.Module) else getattr(side, "__self__", None)
    if not isinstance(owner, nn.Module):
        owner = side = _Function(side)
    config = DumpConfig(path, token_range=_ALL_STEPS, operators=operators, weights=True)
    given, named = tree_map(_Giving(owner), (args, kwargs))
    with torch.random.fork_rng(), torch.no_grad(), register_hook(owner, config, patches=patches):
        side(*given, **named)


class _Giving:
    """Copies what a module is given, to where its parameters are and in their type."""

    def __init__(self, module: nn.Module) -> None:
        found = list(module.parameters())
        kinds = {each.dtype for each in found if each.is_floating_point()}
        self._device = found[0].device if found else None
        self._dtype = kinds.pop() if len(kinds) == 1 else None

    def __call__(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            dtype = self._dtype if value.is_floating_point() else None
            return value.detach().to(self._device, dtype or value.dtype, copy=True)
        try:
            return copy.deepcopy(value)
        except Exception:  # noqa: BLE001 - whatever a class of the user's does: both get the one object
            return value
