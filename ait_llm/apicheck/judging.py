"""From the outputs of both sides to verdicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from ait_llm.apicheck.metrics import measure_floats, measure_integers
from ait_llm.apicheck.outcome import ERROR, PASS, SKIP, OutputResult, Status
from ait_llm.apicheck.standards import CONTRACT, Measured, standards
from ait_llm.judge.api_limits import class_of, limits_of
from ait_llm.opcheck.api.unchecked import LEFT_OUT

if TYPE_CHECKING:
    from torch import Tensor

# Quantised results may be one step off.
_QUANTISED = frozenset(
    {"npu_rms_norm_dynamic_quant", "npu_dynamic_quant", "npu_quant_lightning_indexer"}
)
_NO_CONTRACT = "by the limits of msprobe: what rounding permits here cannot be computed"
# From here on the zeros of a dropout say something.
_ENOUGH_ELEMENTS = 100
_ZERO_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Found:
    """What the contract says of one output.

    Attributes:
        passed: it is within its bound.
        reason: why not.
    """

    passed: bool
    reason: str = ""


class Judge:
    """Judges outputs by one standard.

    Args:
        standard: its name.

    Raises:
        UnknownNameError: there is no such standard.
    """

    def __init__(self, standard: str) -> None:
        self.standard = standard
        self._judge = standards.get(standard)

    def outputs(
        self,
        api: str,
        golden: Any,
        mine: Any,
        benchmark: Any = None,
        *,
        dropped: bool = False,
        by_contract: Mapping[str, Found] | None = None,
    ) -> list[OutputResult]:
        """Verdicts of everything that a call returned.

        Args:
            api: name of the function without prefix.
            golden, mine: what both sides returned.
            benchmark: of the CPU in the device's precision, None if it did not run.
            dropped: elements were dropped at random.
            by_contract: what the contract says of outputs, by place; it decides where it is there.
        """
        left, right = dict(leaves(golden)), dict(leaves(mine))
        if left.keys() != right.keys():
            message = f"golden has {len(left)} outputs, the device {len(right)}"
            return [OutputResult("0", "", "", None, ERROR, message)]
        peers = dict(leaves(benchmark))
        results = [
            self._one(api, place, left[place], right[place], peers.get(place), dropped)
            for place in left
        ]
        if self.standard != CONTRACT:
            return results
        return [_decided(api, each, (by_contract or {}).get(each.place)) for each in results]

    def _one(
        self, api: str, place: str, golden: Any, mine: Any, benchmark: Any, dropped: bool
    ) -> OutputResult:
        import torch

        if golden is None and mine is None:
            return OutputResult(place, "", "", None, SKIP, f"{LEFT_OUT} there is no value")
        golden, mine, benchmark = (_as_tensor(each) for each in (golden, mine, benchmark))
        if not isinstance(golden, torch.Tensor) or not isinstance(mine, torch.Tensor):
            kinds = type(golden).__name__, type(mine).__name__
            same = kinds[0] == kinds[1] and golden == mine
            message = "" if same else f"golden is {str(golden)[:80]}, the device's {str(mine)[:80]}"
            return OutputResult(place, *kinds, None, PASS if same else ERROR, message)
        types = str(golden.dtype), str(mine.dtype)
        shape = tuple(mine.shape)

        def result(status: Status, message: str = "", metrics: Any = None) -> OutputResult:
            return OutputResult(place, *types, shape, status, message, metrics)

        if golden.shape != mine.shape:
            return result(ERROR, f"golden has the shape {list(golden.shape)}")
        if _family(golden) != _family(mine):
            return result(ERROR, "both are of different kinds of types")
        if not mine.numel():
            return result(SKIP, f"{LEFT_OUT} it has no elements")
        golden, mine = plain(golden), plain(mine)
        if dropped:
            return result(*_by_zeros(golden, mine))
        if _family(mine) != "float":
            found = measure_integers(golden, mine)
            bound = 1.0 if api in _QUANTISED else 0.0
            if (found.max_absolute or 0.0) <= bound:
                return result(PASS, "", found)
            return result(ERROR, f"{found.unequal or 0:.3%} of the elements differ", found)
        metrics = measure_floats(golden, mine)
        limits = limits_of(str(mine.dtype))
        peer = None
        if self.standard == "benchmark" and isinstance(benchmark, torch.Tensor):
            peer = measure_floats(golden, plain(benchmark))
        status, message = self._judge(Measured(metrics, limits, class_of(api), peer))
        return result(status, message, metrics)


def _decided(api: str, result: OutputResult, found: Found | None) -> OutputResult:
    """The verdict of the contract, where both sides could be measured; else that of the limits."""
    if result.metrics is None or api in _QUANTISED:
        return result
    if found is not None:
        status, message = (PASS, "") if found.passed else (ERROR, found.reason)
        return replace(result, status=status, message=message)
    if result.status == PASS:
        return result
    return replace(result, message=f"{result.message} ({_NO_CONTRACT})")


def leaves(value: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """The values in containers by place: ``0``, ``1.0``; a single value is ``0``."""
    import torch

    if isinstance(value, torch.Size):
        value = list(value)
    if isinstance(value, Mapping):
        items = list(enumerate(value.values()))
    elif isinstance(value, (list, tuple)):
        items = list(enumerate(value))
    else:
        yield place or "0", value
        return
    for index, each in items:
        yield from leaves(each, f"{place}.{index}" if place else str(index))


def _as_tensor(value: Any) -> Any:
    """Arrays as tensors, and numbers that rounding may touch; all else as it is."""
    import numpy as np
    import torch

    if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind in "fiubc":
        return torch.from_numpy(np.array(value))
    if isinstance(value, float):
        return torch.tensor(value, dtype=torch.float64)
    return value


def plain(tensor: Tensor) -> Tensor:
    """On the CPU, without gradient, complex numbers as pairs."""
    import torch

    found = tensor.detach().cpu()
    if found.layout != torch.strided:
        found = found.to_dense()
    return torch.view_as_real(found.resolve_conj()) if found.is_complex() else found


def _family(tensor: Tensor) -> Literal["float", "complex", "bool", "int"]:
    import torch

    if tensor.is_complex():
        return "complex"
    if tensor.is_floating_point():
        return "float"
    return "bool" if tensor.dtype == torch.bool else "int"


def _by_zeros(golden: Tensor, mine: Tensor) -> tuple[Status, str]:
    """Dropouts drop other elements on each device, but as many."""
    zeros = [int((each == 0).sum()) for each in (golden, mine)]
    share = abs(zeros[0] - zeros[1]) / mine.numel()
    note = f"dropout, judged by its zeros: golden {zeros[0]}, device {zeros[1]} of {mine.numel()}"
    if mine.numel() >= _ENOUGH_ELEMENTS and share >= _ZERO_SHARE:
        return ERROR, note
    return PASS, note
