"""``sweep``: a kernel over shapes, types, layouts, values and seeds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ait_llm.core.comparison import Verdict
from ait_llm.core.optional import import_optional
from ait_llm.opcheck.kernel_call import Kernel, name_of
from ait_llm.opcheck.kernel_source import source_of
from ait_llm.opcheck.kernels import golden_for, golden_parameters
from ait_llm.opcheck.plugins import load_entry_points
from ait_llm.opcheck.sweeps.cases import (
    LAYOUTS,
    Case,
    as_dtypes,
    as_shapes,
    base_cases,
    emptied,
    value_kinds,
)
from ait_llm.opcheck.sweeps.looking import Looked, Subject, golden_itself, look
from ait_llm.opcheck.sweeps.properties import batches, gradients_of, repeats, seconds
from ait_llm.opcheck.sweeps.report import Speed, SweepReport
from ait_llm.opcheck.sweeps.shrinking import shrunk

if TYPE_CHECKING:
    from ait_llm.opcheck.golden import GoldenOp, KernelArithmetic

DTYPES = ("float32", "float16", "bfloat16")


def sweep(
    op: Kernel,
    *,
    shapes: Sequence[Any],
    dtypes: Sequence[Any] | None = None,
    layouts: Sequence[str] | None = None,
    values: Sequence[str] | None = None,
    seeds: Sequence[int] = (0, 1),
    params: Mapping[str, Any] | None = None,
    golden: str | GoldenOp | Kernel | None = None,
    golden_params: Mapping[str, Any] | None = None,
    writes: Sequence[int] | None = None,
    arithmetic: KernelArithmetic | None = None,
    tolerance: tuple[float, float] | None = None,
    standard: str = "contract",
    high: int = 8,
    device: str = "cpu",
    deterministic: bool = True,
    batched: Sequence[int] = (),
    batch_invariant: bool = False,
    gradients: bool = False,
    speed: bool = True,
    shrink: bool = True,
    source: str | None = None,
) -> SweepReport:
    """Check a kernel over many inputs, and find the smallest that it fails for.

    Every shape in every type is checked with every seed, contiguous and normally distributed. Each
    layout and each kind of values, and no rows at all, are then tried once for each shape and type.

    Args:
        op: the kernel, called as ``op(*inputs, **params)`` on copies.
        shapes: of each call the shapes of its inputs, ``[(4, 64), (64,)]``, or one shape where
            there is one input; None for an absent input.
        dtypes: data types by name; of each call one for all inputs, or one for each. float32,
            float16 and bfloat16 unless given; a kernel may then refuse one.
        layouts: how inputs lie in memory, of ``contiguous``, ``transposed``, ``strided`` and
            ``misaligned``; all unless given. A kernel may refuse those that were not asked for.
        values: what is in them, of ``normal``, ``large``, ``tiny``, ``denormal``, ``constant``,
            ``cancelling`` and ``NaN and Inf``; all unless given, and likewise.
        seeds: of the plain cases.
        params: the kernel's keyword arguments.
        golden, golden_params, writes, arithmetic, tolerance, standard: as
            :func:`~ait_llm.opcheck.check` takes them.
        high: whole numbers are drawn from 0 on, below this.
        device: where the kernel computes.
        deterministic: it must make the same bits when it is called again.
        batched: inputs whose first dim, and that of all outputs, is a batch: whether a row has the
            bits that it has alone is said, and must be so with ``batch_invariant``.
        batch_invariant: see ``batched``.
        gradients: its gradients must be those of ``golden``.
        speed: take its time, and that of ``golden`` in the same types.
        shrink: look for the smallest case that fails.
        source: as :func:`~ait_llm.opcheck.check` takes it.

    Raises:
        UsageError: there is no golden operator for it, or an argument means nothing.

    Example:
        >>> import torch
        >>> from ait_llm.opcheck import sweep
        >>> bool(sweep(torch.nn.functional.silu, shapes=[(3, 5)], golden=lambda x: x * x.sigmoid()))
        True
    """
    import_optional("torch", "computing golden operators")
    load_entry_points()
    written = source_of(op, source)
    calls = as_shapes(shapes)
    kinds = as_dtypes(DTYPES if dtypes is None else dtypes, len(calls[0]))
    _, known = golden_for(op, golden)
    subject = Subject(
        op,
        known,
        dict(params or {}),
        golden_parameters(op, known, len(calls[0]), dict(params or {}), golden_params),
        {"writes": writes, "arithmetic": arithmetic, "tolerance": tolerance, "standard": standard},
        device,
    )
    plain = list(base_cases(calls, kinds, tuple(seeds) or (0,), high))
    firsts = [case for case in plain if case.seed == plain[0].seed]
    found = [look(subject, case, must_run=dtypes is not None) for case in plain]
    found += [
        look(subject, case, must_run=layouts is not None if is_layout else values is not None)
        for first in firsts
        for case, is_layout in _variants(first, layouts, values)
    ]
    found += _unnamed_edges(subject, firsts)
    sound = [case for case in firsts if _passed(found, case)]
    notes: list[str] = []
    for case in sound:
        if deterministic:
            found.append(repeats(subject, case))
        if batched and not case.is_empty:
            invariant = batches(subject, case, batched)
            if batch_invariant:
                found.append(invariant)
            elif invariant.reason:
                notes.append(f"{case}: {invariant.reason}")
        if gradients and not case.is_empty:
            found.append(gradients_of(subject, case))
    smallest = next((one for one in found if one.verdict is Verdict.FAIL), None)
    if smallest is not None and shrink:
        smallest = shrunk(smallest, partial(_again, subject, smallest.kind, tuple(batched)))
    times = [_speed(subject, case) for case in sound if not case.is_empty] if speed else []
    return SweepReport(name_of(op), found, smallest, times, notes, written)


def _variants(
    first: Case, layouts: Sequence[str] | None, kinds: Sequence[str] | None
) -> Iterator[tuple[Case, bool]]:
    """A plain case in other layouts, and with other values; whether it is the former."""
    for layout in LAYOUTS if layouts is None else layouts:
        if layout != first.layout:
            yield replace(first, layout=layout), True
    for kind in value_kinds if kinds is None else kinds:
        value_kinds.get(kind)
        if kind != first.values:
            yield replace(first, values=kind), False


def _unnamed_edges(subject: Subject, firsts: Sequence[Case]) -> list[Looked]:
    """Cases without rows; where golden cannot be computed without any, they say nothing."""
    cases = dict.fromkeys(case for first in firsts if (case := emptied(first)) is not None)
    found = [look(subject, case, must_run=False) for case in cases]
    return [
        replace(one, verdict=Verdict.SKIPPED) if one.verdict is Verdict.ERROR else one
        for one in found
    ]


def _passed(found: Sequence[Looked], case: Case) -> bool:
    return any(one.case == case and one.verdict is Verdict.PASS for one in found)


def _again(subject: Subject, kind: str, batched: Sequence[int], case: Case) -> Looked:
    """A case looked at in the way in which one was found to fail."""
    if kind == "repeated":
        return repeats(subject, case)
    if kind == "batch":
        return batches(subject, case, batched)
    if kind == "gradient":
        return gradients_of(subject, case)
    return look(subject, case, must_run=True)


def _speed(subject: Subject, case: Case) -> Speed:
    inputs = subject.inputs(case)
    mine = seconds(subject.kernel, inputs, subject.params)
    own = golden_itself(subject)
    reference = None
    if own is not None:
        try:
            reference = seconds(own, inputs, {})
        except Exception:  # noqa: BLE001  as on a CPU that lacks it in 16 bits
            reference = None
    return Speed(case, mine, reference)
