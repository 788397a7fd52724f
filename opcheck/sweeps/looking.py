"""One case of a sweep judged, with a second look at what fails.

Inputs at the edges of a type are where right kernels may differ: some flush the smallest numbers to
zero, and what a definition itself computes in the types of its inputs may be far from what it is in
wider ones. What such a kernel does there is no fault.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ait_llm.core.comparison import Verdict
from ait_llm.errors import UsageError
from ait_llm.judge.outputs import Produced
from ait_llm.opcheck.kernel_call import Kernel, call_kernel, listed, same_bits
from ait_llm.opcheck.kernels import CheckedKernel, check
from ait_llm.opcheck.outcome import Checked
from ait_llm.opcheck.sweeps.cases import Case

if TYPE_CHECKING:
    from torch import Tensor

    from ait_llm.opcheck.golden import GoldenOp

_FURTHER = 8.0  # times as far off as the definition itself in the types of its inputs
GOLDEN_ITSELF = "golden itself, in the types of the inputs, is as far from its exact value"


@dataclass(frozen=True, eq=False)
class Subject:
    """What is swept.

    Attributes:
        kernel: called as ``kernel(*inputs, **params)``.
        golden: as :func:`~ait_llm.opcheck.check` takes it.
        params: the kernel's keyword arguments.
        golden_params: those of golden.
        settings: further arguments of :func:`~ait_llm.opcheck.check`.
        device: where inputs are put.
    """

    kernel: Kernel
    golden: str | GoldenOp | Kernel | None
    params: Mapping[str, Any]
    golden_params: Mapping[str, Any]
    settings: Mapping[str, Any]
    device: str = "cpu"

    def inputs(self, case: Case) -> list[Tensor | None]:
        """The tensors of a case where the kernel computes."""
        made = case.inputs()
        if self.device == "cpu":
            return made
        return [None if one is None else one.to(self.device) for one in made]

    def check(self, kernel: Kernel, inputs: Sequence[Tensor | None]) -> CheckedKernel:
        """Check what some kernel makes of inputs."""
        return check(
            self.kernel,
            inputs,
            self.params,
            outputs=kernel,
            golden=self.golden,
            golden_params=self.golden_params,
            **self.settings,
        )


@dataclass(frozen=True, slots=True)
class Looked:
    """What was found of one case.

    Attributes:
        case: it.
        verdict: PASS, FAIL; SKIPPED where it says nothing, ERROR where golden cannot be computed.
        reason: why it did not pass.
        kind: of the failure: ``values``, ``refused``, ``repeated``, ``batch``, ``gradient``;
            empty for none.
        worst: the element that is furthest off, in units of its bound; None where not measured.
        item: the output that failed.
    """

    case: Case
    verdict: Verdict
    reason: str = ""
    kind: str = ""
    worst: float | None = None
    item: Checked | None = None


def look(subject: Subject, case: Case, *, must_run: bool) -> Looked:
    """Judge one case.

    Args:
        must_run: the case is one of those that were asked for: a kernel that refuses it fails.
    """
    inputs = subject.inputs(case)
    try:
        produced, same = call_kernel(subject.kernel, inputs, subject.params)
    except Exception as error:  # noqa: BLE001  anything can happen in foreign code
        verdict = Verdict.FAIL if must_run else Verdict.SKIPPED
        return Looked(case, verdict, f"the kernel refuses it: {_said(error)}", "refused")
    again = replayed(inputs, produced, same)
    found = subject.check(again, inputs)
    if found.verdict is Verdict.FAIL and (reason := _excused(subject, inputs, again, found)):
        return Looked(case, Verdict.SKIPPED, reason)
    worst = max((item.values.get("worst", 0.0) for item in found.items), default=None)
    bad = next((item for item in found.items if item.verdict is found.verdict), None)
    if found.verdict is Verdict.PASS or bad is None:
        return Looked(case, Verdict.PASS, worst=worst)
    reason = f"{bad.output} {bad.reason}".strip()
    kind = "values" if found.verdict is Verdict.FAIL else ""
    return Looked(case, found.verdict, reason, kind, worst, bad)


def replayed(
    inputs: Sequence[Tensor | None], produced: Produced, same: Mapping[int, int]
) -> Kernel:
    """A kernel that does once more what was seen.

    Args:
        inputs: that it had.
        produced, same: as :func:`call_kernel` returns them.
    """

    def kernel(*given: Any, **_: Any) -> list[Tensor | None]:
        for place, (own, before) in enumerate(zip(given, inputs, strict=True)):
            after = produced.inputs_after.get(place)
            if own is None or before is None or after is None:
                continue
            if not same_bits(before.cpu(), after):
                own.copy_(after)
        last = max(produced.outputs, default=-1)
        return [
            given[same[place]] if place in same else produced.outputs.get(place)
            for place in range(last + 1)
        ]

    return kernel


def _excused(
    subject: Subject, inputs: Sequence[Tensor | None], kernel: Kernel, found: CheckedKernel
) -> str:
    """Why a kernel that fails may be right all the same; empty if it may not."""
    flushed = [_flushed(tensor) for tensor in inputs]
    has_small = any(one is not own for one, own in zip(flushed, inputs, strict=True))
    if has_small and subject.check(_flushing(kernel), flushed):
        return "it is right for a kernel that flushes the smallest numbers to zero"
    own = golden_itself(subject)
    if own is None:
        return ""
    try:
        itself = {item.output: item for item in subject.check(own, inputs).items}
    except UsageError:
        raise
    except Exception:  # noqa: BLE001  as on a CPU that lacks it in 16 bits
        return ""
    bad = [item for item in found.items if item.verdict is Verdict.FAIL]
    if all(item.values and _is_near(item, itself.get(item.output)) for item in bad):
        return GOLDEN_ITSELF
    return ""


def _is_near(item: Checked, itself: Checked | None) -> bool:
    """Whether a failed result is not much further off than golden itself, which fails too."""
    if itself is None or itself.verdict is not Verdict.FAIL or not itself.values:
        return False
    if "not finite" in item.reason and "not finite" not in itself.reason:
        return False
    return all(
        item.values.get(name, 0.0) <= _FURTHER * itself.values.get(name, 0.0)
        for name in ("worst", "error")
    )


def golden_itself(subject: Subject) -> Kernel | None:
    """Golden as a kernel, in the types of the inputs; None where it is no plain function."""
    golden = subject.golden
    if golden is None or isinstance(golden, str) or not callable(golden):
        return None
    writes = subject.settings.get("writes")
    given = subject.golden_params

    def in_place(*inputs: Tensor, **_: Any) -> list[Tensor | None]:
        made = listed(golden(*inputs, **given))
        if writes is None:
            return made
        first = len(made) - len(writes)
        for place, value in zip(writes, made[first:], strict=True):
            inputs[place].copy_(value)
        return made[:first]

    return in_place


def _flushed(tensor: Tensor | None) -> Tensor | None:
    """The same with zeros for the smallest numbers; itself where it has none."""
    import torch

    if tensor is None or not tensor.is_floating_point():
        return tensor
    small = (tensor != 0) & (tensor.abs() < torch.finfo(tensor.dtype).smallest_normal)
    return tensor.masked_fill(small, 0.0) if bool(small.any()) else tensor


def _flushing(kernel: Kernel) -> Callable[..., list[Tensor | None]]:
    """The same kernel, its results flushed too."""

    def flushing(*given: Any, **params: Any) -> list[Tensor | None]:
        return [_flushed(one) for one in kernel(*given, **params)]

    return flushing


def _said(error: Exception) -> str:
    text = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
