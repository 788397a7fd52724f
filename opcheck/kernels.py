"""Kernels of your own against golden: any callable on tensors, without a dump and without ATB."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ait_llm.core import Registry
from ait_llm.core.comparison import Verdict
from ait_llm.core.optional import import_optional
from ait_llm.errors import AitError, UsageError
from ait_llm.judge.outputs import Produced, failure_verdict, judge_outputs
from ait_llm.judge.standards import standards
from ait_llm.opcheck.cases import REFUSALS, evaluate, first_line
from ait_llm.opcheck.declared import as_declared
from ait_llm.opcheck.kernel_call import (
    Kernel,
    accepted,
    call_kernel,
    defaults_of,
    listed,
    name_of,
    same_bits,
    without,
)
from ait_llm.opcheck.kernel_source import source_of
from ait_llm.opcheck.outcome import Checked
from ait_llm.opcheck.plain_golden import plain_golden
from ait_llm.opcheck.plugins import load_entry_points

if TYPE_CHECKING:
    from torch import Tensor

    from ait_llm.judge.standards import Standard
    from ait_llm.opcheck.golden import GoldenOp, KernelArithmetic
    from ait_llm.report.summary import SourceLine


@dataclass(frozen=True, slots=True)
class CheckedKernel:
    """What a check of one call of a kernel found; true if it passed.

    Attributes:
        name: of the golden operator.
        items: one for each output, and for each input that was overwritten.
        source: where the kernel is written; None where that is not known.
    """

    name: str
    items: Sequence[Checked]
    source: SourceLine | None = None

    @property
    def verdict(self) -> Verdict:
        """The gravest verdict: FAIL, ERROR, SKIPPED, else PASS."""
        found = {item.verdict for item in self.items}
        grave = (Verdict.FAIL, Verdict.ERROR, Verdict.SKIPPED)
        return next((verdict for verdict in grave if verdict in found), Verdict.PASS)

    def __bool__(self) -> bool:
        return self.verdict is Verdict.PASS

    def __str__(self) -> str:
        """A line for each output: verdict, standard, reason."""
        return "\n".join(
            f"{self.name} {item.output}: {item.verdict.value}"
            f"{f' [{item.standard} {item.limit}]' if item.limit else ''}"
            f"{f': {item.reason}' if item.reason else ''}"
            for item in self.items
        )


def check(
    op: str | Kernel,
    inputs: Sequence[Tensor | None],
    params: Mapping[str, Any] | None = None,
    *,
    outputs: Tensor | Sequence[Tensor] | Kernel | None = None,
    golden: str | GoldenOp | Kernel | None = None,
    golden_params: Mapping[str, Any] | None = None,
    writes: Sequence[int] | None = None,
    arithmetic: KernelArithmetic | None = None,
    tolerance: tuple[float, float] | None = None,
    standard: str = "contract",
    metrics: Sequence[str] = (),
    source: str | None = None,
    soc: str | None = None,
) -> CheckedKernel:
    """Check what a kernel makes of its inputs.

    Number, shapes and data types of its results must be golden's.

    Args:
        op: the kernel, such as ``torch.ops.mylib.rms_norm``, called as ``op(*inputs, **params)`` on
            copies; or the name of a golden operator, with ``outputs`` as the kernel or its results.
        inputs: tensors in the operator's order, on any device; None for an absent one.
        params: the kernel's keyword arguments; those of the golden operator where ``op`` is a name.
        outputs: results to judge instead of calling ``op``, or a callable that makes them.
        golden: the golden operator or its name; or a plain function, called as
            ``golden(*inputs, **params)`` on inputs of the next wider floating type, and once as
            they are, to see where it keeps values in 16 bits. Unless given,
            the one registered under the name of ``op`` (``mylib::rms_norm``).
        golden_params: parameters of golden, where they are not ``params`` and the default
            arguments of the kernel.
        writes: numbers of the inputs that the kernel overwrites, where ``golden`` is a plain
            function that returns their new values, last; one that writes to its arguments itself
            needs none.
        arithmetic: how correct kernels compute, where that is not what golden says.
        tolerance: relative and absolute error that each element may have, in place of a bound that
            follows from the arithmetic.
        standard: name of the precision standard.
        metrics: optional columns, ``abs``, ``cos_sim``, ``kl``.
        source: where a kernel in C++ is written, ``csrc/rms_norm.cu:42``; of a Python function and
            of a Triton kernel it is known.
        soc: the chip that a kernel of the acceleration library is for, ``Ascend310P3``; unless
            given, what those of any chip do is permitted.

    Raises:
        UsageError: there is no golden operator for it, or nothing to judge.
        UnknownNameError: there is no such standard.

    Example:
        >>> import torch
        >>> from ait_llm.opcheck import check
        >>> x, weight = torch.randn(8, 64).half(), torch.ones(64).half()
        >>> def double(x):
        ...     return x + x
        >>> bool(check(double, [x], golden=lambda x: 2 * x))
        True
    """
    import_optional("torch", "computing golden operators")
    from ait_llm.opcheck.golden import GoldenOp

    load_entry_points()
    judge_by = standards.get(standard)
    name, known = golden_for(op, golden)
    kernel = outputs if callable(outputs) else op if outputs is None else None
    if isinstance(kernel, str):
        raise UsageError(f"{kernel} is a name; give outputs=, the results or a callable")
    written = source_of(kernel, source)
    given = [None if tensor is None else tensor.detach().cpu() for tensor in inputs]
    params = dict(params or {})
    own = golden_parameters(kernel, known, len(given), params, golden_params)
    if soc is not None:
        own = {**own, **_chip(known, soc)}
    if kernel is not None:
        produced, same = call_kernel(kernel, inputs, params)
    else:
        produced, same = _given_results(outputs), {}
    base = Checked("", name, Verdict.SKIPPED, standard=standard)
    try:
        if not isinstance(known, GoldenOp):
            plain = plain_golden(name, known, given, own, writes)
            if len(produced.outputs) != plain.outputs:
                plain = plain.without_same()
                kept = [result for result, place in same.items() if place in plain.writes]
                produced = without(produced, kept)
            if wrong := plain.misfits(given, produced):
                return CheckedKernel(name, _wrong(wrong, produced, base), written)
            known, own = plain.operator(given, produced), {}
        elif same:
            updated = evaluate(known, given, own).updated_inputs
            produced = without(produced, [one for one, place in same.items() if place in updated])
        known = _as_told(_stepwise(known, given, own), name, arithmetic, tolerance)
        items = _judged(known, given, own, produced, judge_by, base, metrics)
        if kernel is not None:
            items += _overwritten(given, produced, base, known, own, {i.output for i in items})
    except UsageError:
        raise
    except (AitError, *REFUSALS) as error:
        reason = f"golden {name} cannot be computed: {first_line(error)}"
        items = [replace(base, verdict=failure_verdict(error), reason=reason)]
    return CheckedKernel(name, items, written)


def golden_for(
    op: str | Kernel, golden: str | GoldenOp | Kernel | None
) -> tuple[str, GoldenOp | Kernel]:
    """What golden is, and the name of the operator."""
    from ait_llm.opcheck.golden import GoldenOp, golden_ops

    if isinstance(golden, GoldenOp):
        return golden.name, golden
    own_name = op if isinstance(op, str) else name_of(op)
    if golden is not None and not isinstance(golden, str):
        return own_name, golden
    name = golden or own_name
    found = _registered(golden_ops, name)
    if found is None and (golden is not None or isinstance(op, str)):
        golden_ops.get(name)  # raises with the nearest name
    if found is None:
        raise UsageError(
            f"there is no golden operator {name!r}; register one with @golden_op({name!r}, ...) "
            "or give golden="
        )
    return found.name, found


def golden_parameters(
    kernel: Kernel | None,
    known: GoldenOp | Kernel,
    given: int,
    params: Mapping[str, Any],
    golden_params: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """The parameters of golden: those of the kernel, its default arguments included."""
    from ait_llm.opcheck.golden import GoldenOp

    if golden_params is not None:
        return dict(golden_params)
    defaults = {} if kernel is None else defaults_of(kernel, given)
    if isinstance(known, GoldenOp):
        defaults = {name: value for name, value in defaults.items() if value is not None}
    else:
        defaults = accepted(known, given, defaults)
    return {**defaults, **params}


def _chip(known: GoldenOp | Kernel, name: str) -> dict[str, str]:
    """The parameter that names the chip, where golden asks for it."""
    from ait_llm.opcheck.golden import GoldenOp
    from ait_llm.opcheck.golden.soc import SOC, soc_named

    family = soc_named(name).value
    return {SOC: family} if isinstance(known, GoldenOp) and known.by_soc else {}


def _given_results(outputs: Tensor | Sequence[Tensor] | Kernel | None) -> Produced:
    made = listed(outputs)
    tensors = {i: tensor.detach().cpu() for i, tensor in enumerate(made) if tensor is not None}
    return Produced(tensors, {}, "it is not among the results", whole=True)


def _wrong(wrong: Mapping[int, str], produced: Produced, base: Checked) -> list[Checked]:
    """A failure for each result of another type or shape."""
    return [
        replace(
            base,
            output=f"outtensor{index}",
            verdict=Verdict.FAIL,
            reason=reason,
            dtype=str(produced.outputs[index].dtype).removeprefix("torch."),
            shape=tuple(produced.outputs[index].shape),
        )
        for index, reason in wrong.items()
    ]


def _stepwise(golden: GoldenOp, given: list[Tensor | None], params: Mapping[str, Any]) -> GoldenOp:
    """The same, with bounds that follow from its steps where it has some."""
    from ait_llm.opcheck.golden.functions import golden_function

    if golden.steps is None:
        return golden
    own = golden_function(golden.name, golden.steps(params))
    own.recover(_without_unread(given, golden), [], params)  # its steps are seen on these inputs
    return replace(golden, kernel=own.kernel)


def _as_told(
    golden: GoldenOp,
    name: str,
    arithmetic: KernelArithmetic | None,
    tolerance: tuple[float, float] | None,
) -> GoldenOp:
    """The same with what users say of its kernels."""
    golden = as_declared(golden, name)
    if arithmetic is not None:
        golden = replace(golden, kernel=lambda params: arithmetic)
    return golden if tolerance is None else replace(golden, tolerance=tolerance)


def _judged(
    golden: GoldenOp,
    given: list[Tensor | None],
    params: Mapping[str, Any],
    produced: Produced,
    judge_by: Standard,
    base: Checked,
    metrics: Sequence[str],
) -> list[Checked]:
    from ait_llm.opcheck.golden.products import shared_products

    read = _without_unread(given, golden)
    with shared_products(read):
        found = judge_outputs(golden, read, params, produced, judge_by, base, metrics=metrics)
    return [item.checked for item in found]


def _without_unread(given: list[Tensor | None], golden: GoldenOp) -> list[Tensor | None]:
    """The same without the memory that an operator only fills."""
    from ait_llm.opcheck.golden.custom import signature

    if not golden.fills:
        return given
    unread = signature(golden.schema).unread(golden.fills)
    return [None if place in unread else one for place, one in enumerate(given)]


def _overwritten(
    given: Sequence[Tensor | None],
    produced: Produced,
    base: Checked,
    golden: GoldenOp,
    params: Mapping[str, Any],
    judged: set[str],
) -> list[Checked]:
    """A failure for each input that the kernel changed and the operator leaves as it is."""
    changed = []
    for index, before in enumerate(given):
        after = produced.inputs_after.get(index)
        if before is None or after is None or f"intensor{index}" in judged:
            continue
        if not same_bits(before, after):
            changed.append(index)
    updated = evaluate(golden, given, params).updated_inputs if changed else {}
    reason = "the kernel overwrites this input, which the operator leaves as it is"
    return [
        replace(base, output=f"intensor{index}", verdict=Verdict.FAIL, reason=reason)
        for index in changed
        if index not in updated
    ]


def _registered(ops: Registry[GoldenOp], name: str) -> GoldenOp | None:
    from ait_llm.opcheck.golden.vllm_operators import engine_operator

    for each in (name, f"{name}Operation"):
        if each in ops:
            return ops.get(each)
    return engine_operator(name)
