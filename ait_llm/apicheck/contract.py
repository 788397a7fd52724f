"""A call on the device judged by what rounding permits of its own inputs.

The function and its backward pass are evaluated on the CPU in float64, with the bounds of
:mod:`ait_llm.judge`. What cannot be evaluated so is left to the limits of a standard.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ait_llm.apicheck.judging import Found, leaves, plain
from ait_llm.apicheck.sides import REDUCED, Run, Side, run_call, shortened
from ait_llm.apicheck.standards import CONTRACT
from ait_llm.core.comparison import Verdict
from ait_llm.errors import AitError
from ait_llm.opcheck.api.backward import unlooked_at
from ait_llm.opcheck.api.cases import accepts_other_order

if TYPE_CHECKING:
    from torch import Tensor

    from ait_llm.opcheck.golden.base import GoldenOp


@dataclass(frozen=True, slots=True)
class ByContract:
    """What it says of a call.

    Attributes:
        outputs, gradients: by place; what it says nothing of is absent.
    """

    outputs: Mapping[str, Found]
    gradients: Mapping[str, Found]


def judge_call(
    function: Callable[..., Any],
    api: str,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    gradients: Sequence[Tensor | None] | None,
    mine: Run,
    *,
    reduced: bool,
) -> ByContract:
    """Judge what a device made of a call.

    Args:
        function: that was called.
        api: its name without prefix.
        args, kwargs: with tensors on the CPU in their recorded types.
        gradients: of the outputs; None for a call without backward.
        mine: what the device made.
        reduced: it multiplies float32 in convolutions with fewer bits.
    """
    import torch

    from ait_llm.opcheck.golden.functions import golden_function

    given = list(_tensors_in([*args, *kwargs.values()]))
    if reduced and api in REDUCED:
        given = [shortened(one) if one.dtype == torch.float32 else one for one in given]
    needs = [one.requires_grad for one in given]
    inputs = [one.detach() for one in given]
    here = Side(torch.device("cpu"))

    def run(tensors: Sequence[Tensor | None], arriving: Sequence[Tensor | None] | None) -> Run:
        pairs = zip(tensors, needs, strict=True)
        own = iter([one if one is None else one.detach().requires_grad_(n) for one, n in pairs])
        listed = [_filled(value, own) for value in args]
        named = {name: _filled(value, own) for name, value in kwargs.items()}
        with torch.set_grad_enabled(arriving is not None):  # golden is computed without
            return run_call(function, api, listed, named, here, arriving)

    def forward(tensors: Sequence[Tensor | None]) -> list[Tensor]:
        return list(_tensors(run(tensors, None).output).values())

    def backward(tensors: Sequence[Tensor | None]) -> list[Tensor]:
        arriving = iter(tensors[len(given) :])
        own = [one if one is None else next(arriving) for one in gradients or ()]
        return list(_tensors(run(tensors[: len(given)], own).gradients).values())

    accepts = accepts_other_order(api, args, kwargs)
    outputs = _judged(golden_function(api, forward, accepts=accepts), inputs, mine.output)
    if gradients is None or mine.problem:
        return ByContract(outputs, {})
    golden = unlooked_at(api, backward)
    inputs += [one.detach() for one in gradients if one is not None]
    return ByContract(outputs, _judged(golden, inputs, mine.gradients))


def _judged(golden: GoldenOp, inputs: Sequence[Tensor], mine: Any) -> dict[str, Found]:
    """Verdicts by place, of what golden can be computed of."""
    from ait_llm.judge.outputs import Produced, judge_outputs
    from ait_llm.judge.standards import standards
    from ait_llm.opcheck.cases import REFUSALS
    from ait_llm.opcheck.outcome import Checked

    made = _tensors(mine)
    produced = Produced(dict(enumerate(made.values())), {})
    base = Checked("", golden.name, Verdict.SKIPPED, standard=CONTRACT)
    judge = standards.get(CONTRACT)
    try:
        judged = judge_outputs(golden, inputs, {}, produced, judge, base, metrics=None)
    except (AitError, *REFUSALS):
        return {}
    by_name = {item.checked.output: item.checked for item in judged}
    found = {place: by_name.get(f"outtensor{index}") for index, place in enumerate(made)}
    return {
        place: Found(item.verdict is Verdict.PASS, item.reason)
        for place, item in found.items()
        if item is not None and item.verdict in (Verdict.PASS, Verdict.FAIL)
    }


def _tensors(value: Any) -> dict[str, Tensor]:
    """The tensors among values, by place."""
    import torch

    return {place: plain(one) for place, one in leaves(value) if isinstance(one, torch.Tensor)}


def _tensors_in(value: Any) -> Iterator[Tensor]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _tensors_in(each)
    elif isinstance(value, dict):
        for each in value.values():
            yield from _tensors_in(each)


def _filled(value: Any, tensors: Iterator[Tensor | None]) -> Any:
    """The same with other tensors in place of its own, in their order."""
    import torch

    if isinstance(value, torch.Tensor):
        return next(tensors)
    if isinstance(value, torch.Size):
        return value
    if isinstance(value, (list, tuple)):
        return type(value)(_filled(each, tensors) for each in value)
    if isinstance(value, dict):
        return {key: _filled(each, tensors) for key, each in value.items()}
    return value
