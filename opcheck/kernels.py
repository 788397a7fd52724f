"""Kernels of your own against golden: any callable on tensors, without a dump and without ATB."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ait_llm.core import Registry, TensorDesc
from ait_llm.core.comparison import Verdict
from ait_llm.core.optional import import_optional
from ait_llm.errors import AitError, OperationError, UsageError
from ait_llm.judge.outputs import Produced, failure_verdict, judge_outputs
from ait_llm.judge.standards import standards
from ait_llm.opcheck.cases import REFUSALS, first_line
from ait_llm.opcheck.outcome import Checked
from ait_llm.opcheck.plugins import load_entry_points

if TYPE_CHECKING:
    from torch import Tensor

    from ait_llm.opcheck.golden import Arithmetic, GoldenOp, Params, Result

Kernel = Callable[..., Any]  # tensors in; a tensor, several, or None out


@dataclass(frozen=True, slots=True)
class CheckedKernel:
    """What a check of one call of a kernel found; true if it passed.

    Attributes:
        name: of the golden operator.
        items: one for each output, and for each input that was overwritten.
    """

    name: str
    items: Sequence[Checked]

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
    standard: str = "contract",
    metrics: Sequence[str] = (),
) -> CheckedKernel:
    """Check what a kernel makes of its inputs.

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
        golden_params: parameters of the golden operator, where they are not ``params``.
        standard: name of the precision standard.
        metrics: optional columns, ``abs``, ``cos_sim``, ``kl``.

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
    from ait_llm.opcheck.golden.products import shared_products

    load_entry_points()
    judge_by = standards.get(standard)
    params = dict(params or {})
    known = _golden_of(op, golden)
    kernel = outputs if callable(outputs) else op if outputs is None else None
    if isinstance(kernel, str):
        raise UsageError(f"{kernel} is a name; give outputs=, the results or a callable")
    given = [None if tensor is None else tensor.detach().cpu() for tensor in inputs]
    base = Checked("", known.name, Verdict.SKIPPED, standard=standard)
    changed: list[Checked] = []
    if kernel is not None:
        produced = _run(kernel, inputs, params)
    else:
        assert outputs is not None
        assert not callable(outputs)
        listed = [outputs] if not isinstance(outputs, Sequence) else list(outputs)
        produced = Produced({i: tensor.detach().cpu() for i, tensor in enumerate(listed)}, {})
    golden_op = known
    if callable(golden):
        golden_op = _traced(known.name, golden, given, params, produced) or _rounded_like(
            known, produced
        )
    given = _without_unread(given, golden_op)
    own_params = dict(params if golden_params is None else golden_params)
    try:
        with shared_products(given):
            judged = judge_outputs(
                golden_op, given, own_params, produced, judge_by, base, metrics=metrics
            )
    except (AitError, *REFUSALS) as error:
        reason = f"golden {known.name} cannot be computed: {first_line(error)}"
        item = replace(base, verdict=failure_verdict(error), reason=reason)
        return CheckedKernel(known.name, [item])
    items = [item.checked for item in judged]
    if kernel is not None:
        wrote = {item.output for item in items}
        changed = list(_overwritten(given, produced, base, golden_op, own_params, wrote))
    return CheckedKernel(known.name, [*items, *changed])


def _without_unread(given: list[Tensor | None], golden: GoldenOp) -> list[Tensor | None]:
    """The same without the memory that an operator only fills."""
    from ait_llm.opcheck.golden.custom import signature

    if not golden.fills:
        return given
    unread = signature(golden.schema).unread(golden.fills)
    return [None if place in unread else one for place, one in enumerate(given)]


def _run(kernel: Kernel, inputs: Sequence[Tensor | None], params: Mapping[str, Any]) -> Produced:
    import torch

    own = [None if tensor is None else tensor.detach().clone() for tensor in inputs]
    with torch.no_grad():
        made = kernel(*own, **params)
    listed = [] if made is None else [made] if isinstance(made, torch.Tensor) else list(made)
    return Produced(
        {i: t.detach().cpu() for i, t in enumerate(listed) if t is not None},
        {i: t.cpu() for i, t in enumerate(own) if t is not None},
        "the kernel did not return it",
    )


def _overwritten(
    given: Sequence[Tensor | None],
    produced: Produced,
    base: Checked,
    golden: GoldenOp,
    params: Mapping[str, Any],
    judged: set[str],
) -> Iterator[Checked]:
    """A failure for each input that the kernel changed and the operator leaves as it is."""
    from ait_llm.opcheck.cases import evaluate

    updated = evaluate(golden, given, params).updated_inputs
    for index, before in enumerate(given):
        name = f"intensor{index}"
        after = produced.inputs_after.get(index)
        if before is None or after is None or name in judged or index in updated:
            continue
        if not _same_bits(before, after):
            reason = "the kernel overwrites this input, which the operator leaves as it is"
            yield replace(base, output=name, verdict=Verdict.FAIL, reason=reason)


def _same_bits(left: Tensor, right: Tensor) -> bool:
    import torch

    return torch.equal(
        left.contiguous().reshape(-1).view(torch.uint8),
        right.contiguous().reshape(-1).view(torch.uint8),
    )


def _golden_of(op: str | Kernel, golden: str | GoldenOp | Kernel | None) -> GoldenOp:
    from ait_llm.opcheck.golden import GoldenOp, golden_ops

    if isinstance(golden, GoldenOp):
        return golden
    if golden is not None and not isinstance(golden, str):
        return _from_function(op if isinstance(op, str) else _name_of(op), golden)
    name = golden or (op if isinstance(op, str) else _name_of(op))
    found = _registered(golden_ops, name)
    if found is None and (golden is not None or isinstance(op, str)):
        golden_ops.get(name)  # raises with the nearest name
    if found is None:
        raise UsageError(
            f"there is no golden operator {name!r}; register one with @golden_op({name!r}, ...) "
            "or give golden="
        )
    return found


def _registered(ops: Registry[GoldenOp], name: str) -> GoldenOp | None:
    from ait_llm.opcheck.golden.vllm_operators import engine_operator

    for each in (name, f"{name}Operation"):
        if each in ops:
            return ops.get(each)
    return engine_operator(name)


def _name_of(op: Kernel) -> str:
    """``mylib::rms_norm`` of a torch operator, else the function's name."""
    for attribute in ("_qualified_op_name", "_name", "__name__"):
        name = getattr(op, attribute, None)
        if isinstance(name, str):
            return name.partition(".")[0] if "::" in name else name
    return type(op).__name__


def _from_function(name: str, function: Kernel) -> GoldenOp:
    from ait_llm.opcheck.golden import GoldenOp, Result

    def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
        import torch

        wide = [None if t is None else arithmetic.widen(t).clone() for t in inputs]
        made = function(*wide, **params)
        return Result((made,) if isinstance(made, torch.Tensor) else tuple(made))

    def infer_shape(descs: Sequence[TensorDesc], params: Params) -> tuple[TensorDesc, ...]:
        raise OperationError(f"{name}: a plain function has no shape rule")

    return GoldenOp(name, compute, infer_shape)


def _traced(
    name: str,
    function: Kernel,
    inputs: Sequence[Tensor | None],
    params: Params,
    produced: Produced,
) -> GoldenOp | None:
    """A plain function with limits that follow from its steps, and from where it keeps 16 bits.

    Returns:
        None where the kernel's results are of other types than its own, or it cannot be run in the
        types of the inputs: then only what goes in and comes out is known to be rounded.
    """
    from ait_llm.opcheck.golden import GOLDEN
    from ait_llm.opcheck.golden.functions import golden_function

    def call(tensors: Sequence[Tensor | None]) -> Any:
        return function(*[None if t is None else t.clone() for t in tensors], **params)

    golden = golden_function(name, call)
    outputs = produced.outputs
    mine = [outputs.get(index) for index in range(max(outputs, default=-1) + 1)]
    try:
        golden.recover(inputs, mine, params)
        made = golden.compute(inputs, params, GOLDEN).outputs
    except (AitError, *REFUSALS):
        return None
    alike = len(made) == len(mine) and all(
        one is not None and each.is_floating_point() and each.dtype == one.dtype
        for each, one in zip(made, mine, strict=True)
    )
    return golden if alike else None


def _rounded_like(golden: GoldenOp, produced: Produced) -> GoldenOp:
    """A plain function's operator, its wide results rounded to the types of the kernel's."""

    def compute(inputs: Sequence[Tensor | None], params: Params, arithmetic: Arithmetic) -> Result:
        result = golden.compute(inputs, params, arithmetic)
        return replace(
            result,
            outputs=tuple(
                _rounded(tensor, produced.outputs.get(index), arithmetic)
                for index, tensor in enumerate(result.outputs)
            ),
        )

    return replace(golden, compute=compute)


def _rounded(tensor: Tensor, mine: Tensor | None, arithmetic: Arithmetic) -> Tensor:
    if mine is None or not tensor.is_floating_point() or not mine.is_floating_point():
        return tensor
    if mine.dtype.itemsize > tensor.dtype.itemsize:
        return tensor  # a type that golden does not have is no rounding
    return arithmetic.round(tensor, mine.dtype)
