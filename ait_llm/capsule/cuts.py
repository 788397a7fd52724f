"""Ways to cut a case along one axis of its output, inputs and output alike.

Which sizes belong together depends on the operator, and is not written down for each. Candidates
follow from shapes: dimensions of one size, heads that lie side by side, lengths of sequences that
add up to the tokens, tables that number the blocks of a cache. Whoever uses one asks the golden
operator: where golden of the cut inputs is the cut golden, the cut is right.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ait_llm.capsule.case import Call, Case

if TYPE_CHECKING:
    from torch import Tensor

    Option = Callable[[Tensor, "Kept"], Tensor]

# Candidates for one axis that are tried. Shapes seldom leave more.
_COMBINATIONS = 192
_HEADS = ("headNum", "kvHeadNum")
_LARGEST_TABLE = 1 << 16
_BLOCK_SIZES = (16, 32, 64, 128)
_LARGEST_BLOCK = _BLOCK_SIZES[-1]


@dataclass(frozen=True, slots=True)
class Kept:
    """What stays of an axis.

    Attributes:
        units: numbers of the units that stay, ascending.
        parts: the output's indices in each unit, of all units.
    """

    units: tuple[int, ...]
    parts: tuple[tuple[int, ...], ...]

    @property
    def indices(self) -> list[int]:
        """Of the output that stay."""
        return [index for unit in self.units for index in self.parts[unit]]


@dataclass(frozen=True, eq=False)
class Cut:
    """One way to cut a case.

    Attributes:
        name: of the axis, for reports.
        dim: of the output; None for an axis of inputs only, of which the output needs some units.
        parts: the indices of that dimension in each unit.
        needed: units to try first, of an axis of inputs.
        options: what is done to each input; None to leave it.
        scaled: parameters that count the units, or multiples of them.
    """

    name: str
    dim: int | None
    parts: tuple[tuple[int, ...], ...]
    options: Sequence[Option | None]
    scaled: Mapping[str, int] = field(default_factory=dict)
    needed: tuple[int, ...] = ()

    def apply(self, case: Case, units: Sequence[int]) -> Case:
        """The case with some units of the axis only."""
        kept = Kept(tuple(units), self.parts)
        inputs = [
            tensor if option is None or tensor is None else option(tensor, kept)
            for tensor, option in zip(case.call.inputs, self.options, strict=True)
        ]
        params: dict[str, Any] = dict(case.call.params)
        for name, count in self.scaled.items():
            params[name] = count * len(units) // len(self.parts)
        return case.with_call(Call(inputs, params), self.of_output(case.dumped, units))

    def apply_or_none(self, case: Case, units: Sequence[int]) -> Case | None:
        """The same, None where the shapes do not allow it."""
        try:
            return self.apply(case, units)
        except (IndexError, RuntimeError, ValueError):
            return None

    def of_output(self, tensor: Tensor, units: Sequence[int]) -> Tensor:
        """The same part of something of the output's shape."""
        import torch

        if self.dim is None:
            return tensor
        kept = Kept(tuple(units), self.parts)
        return tensor.index_select(self.dim, torch.tensor(kept.indices))


def cuts_of(case: Case) -> Iterator[Cut]:
    """Candidates in the order in which they should be tried, the finest first."""
    shape = case.dumped.shape
    for dim, size in enumerate(shape):
        if size < 2:
            continue
        for name, parts, scaled in _axes(case, dim, size):
            for options in _combinations(case.call.inputs, size, parts):
                yield Cut(name, dim, parts, options, scaled)
    yield from _of_inputs(case)


def _of_inputs(case: Case) -> Iterator[Cut]:
    """Axes that inputs have and the output has not: blocks of a cache, rows of a table."""
    sizes = {
        size
        for tensor in case.call.inputs
        if tensor is not None
        for size in tensor.shape
        if size > 1
    }
    for size in sorted(sizes - set(case.dumped.shape), reverse=True):
        parts = tuple((index,) for index in range(size))
        needed = _referenced(case, size)
        for options in _combinations(case.call.inputs, size, parts):
            if any(option is not None for option in options):
                yield Cut(f"inputs of {size}", None, parts, options, {}, needed)


def _combinations(
    inputs: Sequence[Tensor | None], size: int, parts: tuple[tuple[int, ...], ...]
) -> Iterator[list[Option | None]]:
    """What is done to all inputs; inputs of one shape, such as key and value, alike at first."""
    choices = [_options(tensor, size, parts) for tensor in inputs]
    alike: dict[object, list[int]] = {}
    for index, tensor in enumerate(inputs):
        key = index if tensor is None else (tensor.shape, tensor.dtype, len(choices[index]))
        alike.setdefault(key, []).append(index)
    groups = list(alike.values())
    picks = itertools.product(*(range(len(choices[group[0]])) for group in groups))
    for pick in itertools.islice(picks, _COMBINATIONS):
        options: list[Option | None] = [None] * len(inputs)
        for group, choice in zip(groups, pick, strict=True):
            for index in group:
                options[index] = choices[index][choice]
        yield options
    if len(groups) < len(inputs):
        for each in itertools.islice(itertools.product(*choices), _COMBINATIONS):
            yield list(each)


def _referenced(case: Case, size: int) -> tuple[int, ...]:
    """The numbers of units that integer inputs hold."""
    return tuple(
        sorted(
            {
                int(value)
                for tensor in case.call.inputs
                if tensor is not None and _numbers(tensor, size)
                for value in tensor.reshape(-1).tolist()
                if value >= 0
            }
        )
    )


def _axes(
    case: Case, dim: int, size: int
) -> Iterator[tuple[str, tuple[tuple[int, ...], ...], Mapping[str, int]]]:
    """Partitions of a dimension: single indices, sequences, heads, ever larger blocks."""
    yield f"dimension {dim}", tuple((index,) for index in range(size)), {}
    for tensor in case.call.inputs:
        if tensor is not None and _adds_up(tensor, size) and tensor.numel() > 1:
            ends = list(itertools.accumulate(int(each) for each in tensor.reshape(-1)))
            starts = [0, *ends[:-1]]
            parts = tuple(tuple(range(*pair)) for pair in zip(starts, ends, strict=True))
            yield f"sequences of dimension {dim}", parts, {}
    heads = {
        name: value
        for name in _HEADS
        if isinstance(value := case.call.params.get(name), int) and value > 0
    }
    for units in sorted(set(heads.values())):
        if units > 1 and size % units == 0 and all(n % units == 0 for n in heads.values()):
            yield f"heads of dimension {dim}", _blocks(size, units), heads
    units = size // 2
    while units > 1 and size % units == 0:
        yield f"blocks of dimension {dim}", _blocks(size, units), {}
        units //= 2


def _blocks(size: int, units: int) -> tuple[tuple[int, ...], ...]:
    width = size // units
    return tuple(tuple(range(unit * width, (unit + 1) * width)) for unit in range(units))


def _options(
    tensor: Tensor | None, size: int, parts: tuple[tuple[int, ...], ...]
) -> list[Option | None]:
    """What may be done to an input, the largest cuts first."""
    if tensor is None:
        return [None]
    found: list[Option | None] = []
    same = [dim for dim, length in enumerate(tensor.shape) if length == size]
    if len(same) > 1:
        found.append(_along_all(same))
    found += [_along_all([dim]) for dim in same]
    count = len(parts)
    if count == size:
        for dim, length in enumerate(tensor.shape):
            if length in _packed(size):
                found.append(_in_each(dim, length // size))
    if count < size:
        for dim, length in enumerate(tensor.shape):
            if length == count:
                found.append(_units_along(dim))
            elif length % count == 0 and length not in (0, size) and tensor.is_floating_point():
                found.append(_blocks_along(dim, length // count))
    if _adds_up(tensor, size):
        found.insert(0, _counts)
    if _numbers(tensor, size):
        found.append(_renumbered)
    elif _numbers(tensor, size * _LARGEST_BLOCK):
        found += [_slots(width) for width in _widths(tensor, size)]
    return [*found, None]


def _adds_up(tensor: Tensor, size: int) -> bool:
    """True for lengths of sequences that make ``size`` tokens."""
    return (
        not tensor.is_floating_point()
        and 0 < tensor.numel() <= _LARGEST_TABLE
        and tensor.element_size() >= 4
        and bool((tensor >= 0).all())
        and int(tensor.sum()) == size
    )


def _numbers(tensor: Tensor, size: int) -> bool:
    """True for what may number the blocks of a cache."""
    return (
        not tensor.is_floating_point()
        and 0 < tensor.numel() <= _LARGEST_TABLE
        and tensor.element_size() >= 4
        and int(tensor.min()) >= -1
        and int(tensor.max()) < size
    )


def _packed(size: int) -> tuple[int, ...]:
    """Lengths in which two or three tensors of a size lie side by side: gate and up; q, k and v."""
    return 2 * size, 3 * size


def _widths(tensor: Tensor, size: int) -> list[int]:
    """Sizes of cache blocks, powers of two, of which ``size`` hold all slots in a tensor."""
    least = -(-(int(tensor.max()) + 1) // size)
    return [width for width in _BLOCK_SIZES if width >= least]


def _along_all(dims: Sequence[int]) -> Option:
    def cut(tensor: Tensor, kept: Kept) -> Tensor:
        import torch

        for dim in dims:
            tensor = tensor.index_select(dim, torch.tensor(kept.indices))
        return tensor

    return cut


def _units_along(dim: int) -> Option:
    def cut(tensor: Tensor, kept: Kept) -> Tensor:
        import torch

        return tensor.index_select(dim, torch.tensor(kept.units))

    return cut


def _blocks_along(dim: int, width: int) -> Option:
    def cut(tensor: Tensor, kept: Kept) -> Tensor:
        import torch

        indices = [unit * width + place for unit in kept.units for place in range(width)]
        return tensor.index_select(dim, torch.tensor(indices))

    return cut


def _in_each(dim: int, copies: int) -> Option:
    def cut(tensor: Tensor, kept: Kept) -> Tensor:
        import torch

        size = len(kept.parts)
        indices = [copy * size + index for copy in range(copies) for index in kept.indices]
        return tensor.index_select(dim, torch.tensor(indices))

    return cut


def _slots(width: int) -> Option:
    """Numbers of slots in blocks of ``width``, of which some blocks stay."""

    def cut(tensor: Tensor, kept: Kept) -> Tensor:
        import torch

        blocks = _renumbered(torch.where(tensor < 0, -1, tensor // width), kept)
        return torch.where(blocks < 0, -1, blocks * width + tensor % width).to(tensor.dtype)

    return cut


def _counts(tensor: Tensor, kept: Kept) -> Tensor:
    """Lengths of sequences, of which some tokens stay; those without any are dropped."""
    import torch

    stay = set(kept.indices)
    counts, start = [], 0
    for length in (int(each) for each in tensor.reshape(-1)):
        counts.append(sum(index in stay for index in range(start, start + length)))
        start += length
    left = [count for count in counts if count]
    return torch.tensor(left, dtype=tensor.dtype).reshape(-1, *tensor.shape[1:])


def _renumbered(tensor: Tensor, kept: Kept) -> Tensor:
    """Numbers of blocks, of which some stay; -1 for those that do not."""
    import torch

    size = sum(len(part) for part in kept.parts)
    places = torch.full((size + 1,), -1, dtype=tensor.dtype)
    places[torch.tensor(kept.indices)] = torch.arange(len(kept.indices), dtype=tensor.dtype)
    return places[tensor.long()]  # -1 stays: the last place
