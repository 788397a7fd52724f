"""What users declare of an operator: a tolerance of its own, or how its kernels compute."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from ait_llm.errors import UsageError

if TYPE_CHECKING:
    from ait_llm.opcheck.golden import GoldenOp, KernelArithmetic, Params


@dataclass(frozen=True, slots=True)
class _Declaration:
    tolerance: tuple[float, float] | None
    arithmetic: dict[str, Any]


_declared: dict[str, _Declaration] = {}


def declare(
    name: str, *, rtol: float | None = None, atol: float | None = None, **arithmetic: Any
) -> None:
    """Declare how far an operator's results may be off, or how its kernels compute.

    A later declaration of the same name replaces an earlier one.

    Args:
        name: ``LinearOperation`` or ``Linear``, ``aten.mm`` with or without overload,
            ``mylib::rms_norm``, ``functional.layer_norm``.
        rtol: largest error relative to golden. With it or ``atol`` each element must be within
            ``atol + rtol * |golden|``, and nothing else is asked.
        atol: largest absolute error, added to it.
        arithmetic: fields of :class:`~ait_llm.opcheck.golden.KernelArithmetic` that differ from
            what is known of the operator: ``roundings=1``.

    Raises:
        UsageError: nothing is declared, or what is declared means nothing.

    Example:
        >>> from ait_llm.opcheck import declare
        >>> declare("mylib::fast_rms_norm", rtol=1e-2)
        >>> declare("SoftmaxOperation", roundings=1)
    """
    from ait_llm.opcheck.golden import KernelArithmetic

    known = {one.name for one in fields(KernelArithmetic)}
    if wrong := sorted(set(arithmetic) - known):
        raise UsageError(f"{name}: there is no {wrong[0]!r} to declare; known: {sorted(known)}")
    tolerance = None if rtol is None and atol is None else (rtol or 0.0, atol or 0.0)
    if tolerance is None and not arithmetic:
        raise UsageError(f"{name}: declare a tolerance, rtol= or atol=, or an arithmetic")
    if tolerance is not None and not all(0 <= one < float("inf") for one in tolerance):
        raise UsageError(f"{name}: rtol and atol are numbers from 0 on, not {tolerance}")
    _declared[name] = _Declaration(tolerance, arithmetic)


def as_declared(golden: GoldenOp, type_name: str) -> GoldenOp:
    """A golden operator with what was declared of it."""
    found = next((_declared[one] for one in _names(type_name) if one in _declared), None)
    if found is None:
        return golden
    known = golden.kernel

    def kernel(params: Params) -> KernelArithmetic:
        return replace(known(params), **found.arithmetic)

    return replace(golden, kernel=kernel, tolerance=found.tolerance or golden.tolerance)


def _names(type_name: str) -> list[str]:
    """What an operator may be called: ``mylib.f.default``, ``mylib.f``, ``mylib::f``."""
    names = [type_name, type_name.removesuffix("Operation"), f"{type_name}Operation"]
    parts = type_name.split(".")
    if len(parts) == 3:  # library, operator and overload
        names += [".".join(parts[:2]), "::".join(parts[:2])]
    return names
