"""What a kernel must keep beside right values: repeated calls, batches, gradients, time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ait_llm.core.comparison import Verdict
from ait_llm.errors import UsageError
from ait_llm.opcheck.kernel_call import Kernel, call_kernel, listed, name_of, same_bits
from ait_llm.opcheck.kernels import check
from ait_llm.opcheck.sweeps.cases import Case
from ait_llm.opcheck.sweeps.looking import Looked, Subject

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_ROUNDS = 5  # of which the fastest counts


def repeats(subject: Subject, case: Case) -> Looked:
    """Whether the kernel makes the same bits of the same inputs twice."""
    inputs = subject.inputs(case)
    first, _ = call_kernel(subject.kernel, inputs, subject.params)
    second, _ = call_kernel(subject.kernel, inputs, subject.params)
    for name, left, right in (
        ("outtensor", first.outputs, second.outputs),
        ("intensor", first.inputs_after, second.inputs_after),
    ):
        for place, one in left.items():
            if place not in right or not same_bits(one, right[place]):
                reason = f"{name}{place} has other bits when the kernel is called again"
                return Looked(case, Verdict.FAIL, reason, "repeated")
    return Looked(case, Verdict.PASS)


def batches(subject: Subject, case: Case, batched: Sequence[int]) -> Looked:
    """Whether a row of a batch has the bits that it has alone.

    Args:
        batched: inputs whose first dim is that of the batch, as that of every output.
    """
    inputs = subject.inputs(case)
    whole, _ = call_kernel(subject.kernel, inputs, subject.params)
    rows = {one.shape[0] for place in batched if (one := inputs[place]) is not None}
    if len(rows) != 1:
        raise UsageError(f"batched= names inputs with {sorted(rows)} rows; give those of one batch")
    for row in range(rows.pop()):
        own = [
            one[row : row + 1].contiguous() if place in batched and one is not None else one
            for place, one in enumerate(inputs)
        ]
        alone, _ = call_kernel(subject.kernel, own, subject.params)
        for place, one in alone.outputs.items():
            if not same_bits(one, whole.outputs[place][row : row + 1]):
                reason = f"outtensor{place} of row {row} has other bits in a batch than alone"
                return Looked(case, Verdict.FAIL, reason, "batch")
    return Looked(case, Verdict.PASS)


def gradients_of(subject: Subject, case: Case) -> Looked:
    """Whether the kernel's gradients are those of golden, a plain function, in float64.

    What arrives at the outputs is drawn as the inputs are. Kernels of backward passes may store any
    stage in 16 bits.
    """
    import torch

    from ait_llm.opcheck.golden.aten.arithmetic import MOST_STAGES
    from ait_llm.opcheck.golden.base import KernelArithmetic

    golden = subject.golden
    if golden is None or isinstance(golden, str) or not callable(golden):
        raise UsageError("gradients=True needs a plain function as golden=, which autograd follows")
    inputs = subject.inputs(case)
    leaves = [
        place
        for place, one in enumerate(inputs)
        if one is not None and one.is_floating_point() and one.numel()
    ]
    produced, _ = call_kernel(subject.kernel, inputs, subject.params)
    generator = torch.Generator().manual_seed(case.seed + 1)
    arriving = [
        torch.randn(one.shape, generator=generator).to(one.dtype).to(subject.device)
        for one in produced.outputs.values()
        if one.is_floating_point()
    ]
    count = len(inputs)

    def backward(function: Kernel) -> Kernel:
        def run(*given: Tensor, **params: Any) -> list[Tensor]:
            with torch.enable_grad():
                own = [
                    one.detach().requires_grad_() if place in leaves else one
                    for place, one in enumerate(given[:count])
                ]
                made = [
                    one
                    for one in listed(function(*own, **params))
                    if one is not None and one.is_floating_point()
                ]
                wanted = [own[place] for place in leaves]
                found = torch.autograd.grad(made, wanted, given[count:], allow_unused=True)
            return [
                torch.zeros_like(one) if gradient is None else gradient
                for one, gradient in zip(wanted, found, strict=True)
            ]

        run.__name__ = f"{name_of(subject.kernel)}.backward"
        return run

    arithmetic = KernelArithmetic(roundings=MOST_STAGES, unknown=True)
    try:
        found = check(
            backward(subject.kernel),
            [*inputs, *arriving],
            subject.params,
            golden=backward(golden),
            golden_params=subject.golden_params,
            arithmetic=arithmetic,
        )
    except RuntimeError as error:
        reason = f"autograd does not follow the kernel: {str(error).splitlines()[0]}"
        return Looked(case, Verdict.FAIL, reason, "gradient")
    bad = next((item for item in found.items if item.verdict is not Verdict.PASS), None)
    if bad is None:
        return Looked(case, Verdict.PASS)
    number = bad.output.removeprefix("outtensor")
    whose = f"input {leaves[int(number)]}" if number.isdecimal() else bad.output
    reason = f"the gradient of {whose} is wrong: {bad.reason}"
    return Looked(case, found.verdict, reason, "gradient", item=bad)


def seconds(function: Kernel, inputs: Sequence[Tensor | None], params: Any) -> float:
    """The fastest of some calls, copies of the inputs not counted."""
    import torch

    device = next((one.device for one in inputs if one is not None), torch.device("cpu"))
    best = float("inf")
    for _ in range(_ROUNDS):
        own = [None if one is None else one.clone() for one in inputs]
        _wait_for(device)
        start = time.perf_counter()
        with torch.no_grad():
            function(*own, **params)
        _wait_for(device)
        best = min(best, time.perf_counter() - start)
    return best


def _wait_for(device: torch.device) -> None:
    import torch

    if device.type != "cpu":
        getattr(torch, device.type).synchronize()
