"""Signatures of inputs that a kernel read wrongly: masks, lengths, positions, experts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING

from ait_llm.diagnosis.call import Call
from ait_llm.diagnosis.kinds import Kind
from ait_llm.diagnosis.residual import Hypothesis, Residual

if TYPE_CHECKING:
    from torch import Tensor

_MASKED = -1000.0  # additive masks have at least this where nothing may be seen
_MOST_EXPERTS = 8
_BASES = (1e4, 1e6, 5e5)  # of rotary frequencies, as published models have them
_FIRST_EXTRA = 3  # query, key and value come first
_ATTENTION = "Attention"


def read_wrongly(call: Call, residual: Residual, output: int) -> Iterator[Hypothesis]:
    """Everything that this module knows, as far as it applies."""
    yield from _masks(call, output)
    yield from _lengths(call, output)
    yield from _indices(call, output)
    yield from _tables(call, output)
    yield from _experts(call, output)


def _hypothesis(
    call: Call, output: int, kind: Kind, text: str, **parameters: float | str
) -> Iterator[Hypothesis]:
    values = call.predicted(output)
    if values is not None:
        yield Hypothesis(kind, values, text, parameters)


def _is_mask(tensor: Tensor) -> bool:
    """True for an additive mask: zeros, and one other value far below or, multiplied later, one."""
    if not tensor.is_floating_point() or tensor.dim() < 2:
        return False
    found = tensor.float()
    low = found <= _MASKED
    plain = (found == 0) | low | (found == 1)
    return bool(plain.all()) and bool((found != 0).any())


def _masks(call: Call, output: int) -> Iterator[Hypothesis]:
    import torch

    if _ATTENTION not in call.golden.name:
        return
    found = False
    params = {**call.params, **({"isTriuMask": 0} if "isTriuMask" in call.params else {})}
    for index, tensor in call.tensors():
        if index < _FIRST_EXTRA or not _is_mask(tensor):
            continue
        found = True
        bare = call.with_params(params).with_input(index, torch.zeros_like(tensor))
        text = "it computes as without its mask, every token sees all tokens"
        yield from _hypothesis(bare, output, Kind.MASK, text, mask="missing")
        for step in (1, -1):
            moved = torch.roll(tensor, step, -1)
            edge = 0 if step > 0 else -1
            moved[..., edge] = tensor[..., edge]
            way = "early" if step > 0 else "late"
            yield from _hypothesis(
                call.with_input(index, moved), output, Kind.MASK,
                f"its mask is read one column too {way}", mask=f"{step:+d} column",
            )  # fmt: skip
    if not found and not call.params.get("maskType"):
        yield from _extra_mask(call, output)


def _extra_mask(call: Call, output: int) -> Iterator[Hypothesis]:
    """A causal mask where there is none."""
    import torch

    query = call.inputs[0]
    if query is None or len(call.inputs) <= _FIRST_EXTRA:
        return
    size = query.shape[0]
    hidden = 1.0 if query.dtype == torch.bfloat16 else -10000.0
    mask = torch.full((size, size), hidden).triu(1).to(query.dtype)
    inputs = [*call.inputs[:_FIRST_EXTRA], mask, *call.inputs[_FIRST_EXTRA:]]
    masked = Call(call.golden, inputs, {**call.params, "maskType": 1}, call.outputs)
    text = "it computes as with a causal mask, and has none"
    yield from _hypothesis(masked, output, Kind.MASK, text, mask="extra")


def _lengths(call: Call, output: int) -> Iterator[Hypothesis]:
    """Sequences in a cache taken for one entry longer or shorter than they are."""
    import torch

    if _ATTENTION not in call.golden.name:
        return
    for index, tensor in call.tensors():
        if tensor.dim() != 1 or tensor.dtype != torch.int32:
            continue
        more = torch.where(tensor > 0, tensor + 1, tensor).clamp(max=_room(call))
        longer = call.with_input(index, more)
        text = "one entry beyond the end of each sequence is read"
        yield from _hypothesis(longer, output, Kind.STALE, text, length=1.0)
        shorter = call.with_input(index, torch.where(tensor > 1, tensor - 1, tensor))
        text = "the last entry of each sequence is left out"
        yield from _hypothesis(shorter, output, Kind.SHIFTED, text, length=-1.0)


def _room(call: Call) -> int | None:
    """Entries that the blocks of a sequence hold; None without a table of blocks."""
    import torch

    cache = call.inputs[1]
    for _, tensor in call.tensors():
        if tensor.dim() == 2 and tensor.dtype == torch.int32 and cache is not None:
            return tensor.shape[1] * cache.shape[1]
    return None


def _indices(call: Call, output: int) -> Iterator[Hypothesis]:
    """Rows are gathered, or slots written, one place beside the right one."""
    name = call.golden.name
    if "Gather" not in name and "Cache" not in name and "Index" not in name:
        return
    for index, tensor in call.tensors():
        if tensor.is_floating_point() or tensor.dtype.itemsize < 4 or tensor.numel() < 1:
            continue
        for step in (1, -1):
            moved = call.with_input(index, (tensor + step).clamp(min=0))
            text = f"the indices of intensor{index} are one too {'large' if step > 0 else 'small'}"
            yield from _hypothesis(moved, output, Kind.SHIFTED, text, index=float(step))


def _tables(call: Call, output: int) -> Iterator[Hypothesis]:
    """Rotary positions that are one off; angles are those that the tables have."""
    import torch

    if call.golden.name != "RopeOperation":
        return
    cos, sin = call.inputs[2], call.inputs[3]
    if cos is None or sin is None:
        return
    angles = torch.atan2(sin.double(), cos.double())
    frequencies = _frequencies(angles, float(torch.finfo(cos.dtype).eps))
    if frequencies is None:
        return
    for step in (1, -1):
        turned = angles + step * frequencies
        moved = call.with_input(2, turned.cos().to(cos.dtype))
        moved = moved.with_input(3, turned.sin().to(sin.dtype))
        text = f"positions are one too {'large' if step > 0 else 'small'}"
        yield from _hypothesis(moved, output, Kind.SHIFTED, text, position=float(step))


def _frequencies(angles: Tensor, unit: float) -> Tensor | None:
    """Radians per position of each column, if some usual base explains all angles."""
    import torch

    width = angles.shape[-1]
    half = torch.arange(0, width, 2, dtype=torch.float64) / width
    for base in _BASES:
        powers = base**-half
        for frequencies in (torch.cat([powers, powers]), powers.repeat_interleave(2)):
            # The slowest column tells the position: it has not turned around yet.
            position = (angles[..., -1:] / frequencies[-1]).round()
            off = torch.remainder(angles - position * frequencies + torch.pi, 2 * torch.pi)
            if bool(((off - torch.pi).abs() <= 4 * unit).all()):
                return frequencies
    return None


def _experts(call: Call, output: int) -> Iterator[Hypothesis]:
    """Two experts with each other's weights."""
    for index, tensor in call.tensors():
        if tensor.dim() != 3 or index == 0 or not 2 <= tensor.shape[0] <= _MOST_EXPERTS:
            continue
        if "Grouped" not in call.golden.name and "LinearParallel" not in call.golden.name:
            continue
        for one, other in combinations(range(tensor.shape[0]), 2):
            order = list(range(tensor.shape[0]))
            order[one], order[other] = other, one
            swapped = call.with_input(index, tensor[order])
            text = f"experts {one} and {other} have each other's weights"
            yield from _hypothesis(
                swapped, output, Kind.SWAPPED_EXPERTS, text, one=float(one), other=float(other)
            )
