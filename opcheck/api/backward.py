"""The backward pass of a recorded call: gradients from its inputs and those that arrived.

A record of a backward pass has what a hook saw. That is the gradients of the call's arguments, or
of whatever the last step of it was given: a product of three dims ends with a view. Where shapes
and types do not tell, either is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ait_llm.opcheck.api.unchecked import UncheckableError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from ait_llm.opcheck.golden.base import (
        Arithmetic,
        GoldenOp,
        KernelArithmetic,
        Params,
        Result,
    )

    Shapes = Sequence[tuple[tuple[int, ...], torch.dtype]]

# Outputs whose gradient is recorded, where it is not all of them.
_GRADIENT_OF = {"topk": 0, "npu_fusion_attention": 0}
_LAST_STEP = "gradients are those of its last step"
# What running a function or its backward pass on tensors without values may raise.
_FAILURES = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)
Forward = Callable[[Sequence["Tensor | None"]], Any]


def gradients_of_call(
    api: str, output: Any, leaves: Sequence[Tensor], arriving: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """The gradients of some tensors.

    Args:
        api: name of the function without prefix.
        output: of the call.
        leaves: tensors that it was made of.
        arriving: gradients of its outputs; None for those that have none.

    Raises:
        UncheckableError: they do not fit the outputs, or nothing requires a gradient.
    """
    import torch

    roots, given = _roots(api, output, arriving)
    if not roots or not leaves:
        raise UncheckableError("no input of it requires a gradient")
    return list(torch.autograd.grad(roots, leaves, given, allow_unused=True))


def _roots(
    api: str, output: Any, arriving: Sequence[Tensor | None]
) -> tuple[list[Tensor], list[Tensor]]:
    import torch

    outputs = output if isinstance(output, (tuple, list)) else [output]
    if api in _GRADIENT_OF:
        outputs = [outputs[_GRADIENT_OF[api]]]
        arriving = arriving[:1]
    elif len(arriving) > len(outputs) == 1:
        arriving = arriving[:1]
    if len(outputs) != len(arriving):
        raise UncheckableError(
            f"it has {len(outputs)} outputs and {len(arriving)} recorded gradients"
        )
    roots, given = [], []
    for each, gradient in zip(outputs, arriving, strict=True):
        if gradient is None or not isinstance(each, torch.Tensor) or each.grad_fn is None:
            continue
        if each.shape != gradient.shape:
            raise UncheckableError(
                f"its output of {list(each.shape)} has a recorded gradient of "
                f"{list(gradient.shape)}"
            )
        roots.append(each)
        given.append(gradient.to(device=each.device, dtype=each.dtype))
    return roots, given


class BackwardCall:
    """A call and its backward pass as a function of its tensors and the gradients that arrive.

    Args:
        api: name of the function without prefix.
        forward: the call; it may write to what it is given.
        needs: which of its tensors require a gradient.
        last_step: gradients that are wanted are those of the last step.
    """

    def __init__(
        self, api: str, forward: Forward, needs: Sequence[bool], *, last_step: bool
    ) -> None:
        self._api = api
        self._forward = forward
        self._needs = needs
        self._last_step = last_step

    def __call__(self, tensors: Sequence[Tensor | None]) -> list[Tensor]:
        """The gradients.

        Raises:
            UnverifiableError: there are none.
        """
        import torch

        from ait_llm.opcheck.golden.base import UnverifiableError

        count = len(self._needs)
        given = [
            one if one is None else one.detach().requires_grad_(needs)
            for one, needs in zip(tensors[:count], self._needs, strict=True)
        ]
        leaves = [one for one in given if one is not None and one.requires_grad]
        with torch.enable_grad():
            output = self._forward([one if one is None else one.clone() for one in given])
            try:
                if self._last_step:
                    found = _of_last_step(self._api, output, leaves, tensors[count:])
                else:
                    found = gradients_of_call(self._api, output, leaves, tensors[count:])
            except UncheckableError as error:
                raise UnverifiableError(error.reason) from None
        return [one.detach() for one in found if one is not None]


def _of_last_step(
    api: str, output: Any, leaves: Sequence[Tensor], arriving: Sequence[Tensor | None]
) -> list[Tensor | None]:
    roots, _ = _roots(api, output, arriving)
    steps = {one.grad_fn for one in roots}
    if len(steps) != 1:
        raise UncheckableError("it has several last steps")
    seen: list[Tensor | None] = []
    (step,) = steps
    assert step is not None
    handle = step.register_hook(lambda found, _: seen.extend(found))
    try:
        gradients_of_call(api, output, leaves, arriving)
    finally:
        handle.remove()
    return seen


def backward_golden(
    api: str,
    forward: Forward,
    tensors: Shapes,
    needs: Sequence[bool],
    arriving: Shapes,
    recorded: Shapes,
) -> GoldenOp | None:
    """The golden operator of a backward pass; None where it does not make what was recorded.

    Args:
        api, forward, needs: as :class:`BackwardCall` takes them.
        tensors: shapes and types of the tensors of the call.
        arriving: of the gradients that arrived.
        recorded: of those that were made.
    """
    import torch

    calls: dict[bool, BackwardCall] = {}
    for last_step in (False, True):
        call = BackwardCall(api, forward, needs, last_step=last_step)
        blank = [torch.empty(shape, dtype=dtype, device="meta") for shape, dtype in tensors]
        blank += [torch.empty(shape, dtype=dtype, device="meta") for shape, dtype in arriving]
        try:
            made = call(blank)
        except _FAILURES:
            continue
        except Exception as error:  # an operator without a form for such tensors
            if type(error).__module__.partition(".")[0] not in ("torch", "ait_llm"):
                raise
            continue
        if [(tuple(one.shape), one.dtype) for one in made] == list(recorded):
            calls[last_step] = call
    if not calls:
        return None
    goldens = [unlooked_at(api, call) for call in calls.values()]
    return goldens[0] if len(goldens) == 1 else _either(*goldens)


def unlooked_at(api: str, function: Callable[[Sequence[Tensor | None]], Any]) -> GoldenOp:
    """The golden operator of a backward pass.

    Kernels of backward passes were not looked at as those of forward passes were: what they store
    on the way may be rounded.
    """
    from ait_llm.opcheck.golden.aten.arithmetic import MOST_STAGES
    from ait_llm.opcheck.golden.functions import golden_function

    golden = golden_function(api, function)
    kernel = golden.kernel

    def unknown(params: Params) -> KernelArithmetic:
        return replace(kernel(params), roundings=MOST_STAGES, unknown=True)

    return replace(golden, kernel=unknown)


def _either(first: GoldenOp, second: GoldenOp) -> GoldenOp:
    """One golden operator, with the other's results as those of other parameters."""

    def of(params: Params) -> GoldenOp:
        return second if params.get(_LAST_STEP) else first

    def compute(inputs: Sequence[Tensor | None], params: Params, how: Arithmetic) -> Result:
        return of(params).compute(inputs, params, how)

    def recover(
        inputs: Sequence[Tensor | None], outputs: Sequence[Tensor | None], params: Params
    ) -> Mapping[str, Any]:
        second.recover(inputs, outputs, params)
        return first.recover(inputs, outputs, params)

    return replace(
        first,
        compute=compute,
        recover=recover,
        kernel=lambda params: of(params).kernel(params),
        alternatives=lambda params: (*first.alternatives(params), {**params, _LAST_STEP: True}),
        plain=None,
    )
