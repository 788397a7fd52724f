"""One case of a sweep, and the tensors that it stands for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ait_llm.core import Registry
from ait_llm.errors import UsageError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Shapes = tuple[tuple[int, ...] | None, ...]
"""The shapes of the inputs of a call; None for an absent one."""

LAYOUTS = ("contiguous", "transposed", "strided", "misaligned")
PLAIN = ("contiguous", "normal")
_HALF = 2  # bytes
Draw = Callable[["torch.Generator", "tuple[int, ...]", "torch.dtype"], "Tensor"]
value_kinds: Registry[Draw] = Registry("kind of values")


@dataclass(frozen=True, slots=True)
class Case:
    """What the inputs of one call are like; equal cases have equal inputs.

    Attributes:
        shapes: of the inputs.
        dtypes: of the inputs, by names of torch; one for all that are floats.
        layout: how they lie in memory, of :data:`LAYOUTS`.
        values: what is in them, of :data:`value_kinds`.
        seed: of what is random.
        high: whole numbers are drawn from 0 on, below this.
    """

    shapes: Shapes
    dtypes: tuple[str, ...]
    layout: str = "contiguous"
    values: str = "normal"
    seed: int = 0
    high: int = 8

    def __str__(self) -> str:
        """``[4, 64] [64] float16, strided, normal, seed 0``."""
        shapes = " ".join("absent" if shape is None else str(list(shape)) for shape in self.shapes)
        kinds = "/".join(dict.fromkeys(self.dtypes))
        return f"{shapes} {kinds}, {self.layout}, {self.values}, seed {self.seed}"

    @property
    def is_empty(self) -> bool:
        """True if an input has no element."""
        return any(shape is not None and 0 in shape for shape in self.shapes)

    @property
    def code(self) -> str:
        """The call that makes its inputs."""
        return (
            f"sweep_inputs(shapes={self.shapes!r}, dtypes={self.dtypes!r}, "
            f"layout={self.layout!r}, values={self.values!r}, seed={self.seed}, high={self.high})"
        )

    def inputs(self) -> list[Tensor | None]:
        """Its tensors, on the CPU."""
        import torch

        generator = torch.Generator().manual_seed(self.seed)
        made: list[Tensor | None] = []
        for shape, name in zip(self.shapes, self.dtypes, strict=True):
            if shape is None:
                made.append(None)
                continue
            dtype = dtype_of(name)
            if dtype.is_floating_point:
                drawn = value_kinds.get(self.values)(generator, shape, dtype)
            else:
                drawn = torch.randint(0, self.high, shape, generator=generator).to(dtype)
            made.append(laid_out(drawn, self.layout))
        return made


def sweep_inputs(
    *,
    shapes: Sequence[tuple[int, ...] | None],
    dtypes: Sequence[str],
    layout: str = "contiguous",
    values: str = "normal",
    seed: int = 0,
    high: int = 8,
) -> list[Tensor | None]:
    """The inputs of a case that a sweep names, to call a kernel with."""
    return Case(tuple(shapes), tuple(dtypes), layout, values, seed, high).inputs()


def dtype_of(name: str) -> torch.dtype:
    """``float16`` of torch.

    Raises:
        UsageError: there is no such type.
    """
    import torch

    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise UsageError(f"{name!r} is no data type of torch; give float16, bfloat16, float32 …")
    return found


def laid_out(tensor: Tensor, layout: str) -> Tensor:
    """The same elements elsewhere in memory.

    Raises:
        UsageError: there is no such layout.
    """
    import torch

    if layout == "contiguous":
        return tensor
    if layout == "transposed":  # the last two dims lie the other way round
        two = tensor.dim() > 1
        return tensor.transpose(-1, -2).contiguous().transpose(-1, -2) if two else tensor
    if layout == "strided":  # every second element of each row, the others are NaN or junk
        if not tensor.dim():
            return tensor
        wide = torch.empty((*tensor.shape[:-1], 2 * tensor.shape[-1]), dtype=tensor.dtype)
        wide.fill_(float("nan") if tensor.is_floating_point() else 1)
        wide[..., ::2] = tensor
        return wide[..., ::2]
    if layout == "misaligned":  # one element behind a boundary
        memory = torch.zeros(tensor.numel() + 1, dtype=tensor.dtype)
        memory[1:] = tensor.reshape(-1)
        return memory[1:].view(tensor.shape)
    raise UsageError(f"there is no layout {layout!r}; known: {', '.join(LAYOUTS)}")


def emptied(case: Case) -> Case | None:
    """A case without rows: of the inputs that have as many as the first. None if it has none."""
    first = next((shape for shape in case.shapes if shape), None)
    if first is None or 0 in first:
        return None
    shapes = tuple(
        (0, *shape[1:]) if shape and len(shape) > 1 and shape[0] == first[0] else shape
        for shape in case.shapes
    )
    return None if shapes == case.shapes else replace(case, shapes=shapes)


def _randn(generator: torch.Generator, shape: tuple[int, ...]) -> Tensor:
    import torch

    return torch.randn(shape, generator=generator)


@value_kinds.register("normal")
def _normal(generator: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return _randn(generator, shape).to(dtype)


@value_kinds.register("large")
def _large(generator: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Far from one; squares and their sums are still numbers of float32."""
    import torch

    return (_randn(generator, shape) * (30 if dtype == torch.float16 else 1000)).to(dtype)


@value_kinds.register("tiny")
def _tiny(generator: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Near the smallest normal number; squares are numbers of float32."""
    import torch

    return (_randn(generator, shape) * (2.0**-10 if dtype == torch.float16 else 1e-18)).to(dtype)


@value_kinds.register("denormal")
def _denormal(generator: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Every other element is smaller than the smallest normal number."""
    import torch

    drawn = _randn(generator, shape)
    small = drawn.double() * (torch.finfo(dtype).smallest_normal / 8)
    odd = torch.arange(drawn.numel()).reshape(shape) % 2 == 1
    return torch.where(odd, small, drawn.double()).to(dtype)


@value_kinds.register("constant")
def _constant(generator: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """All elements are one number, of which types round the digits."""
    import torch

    return torch.full(shape, 0.7371, dtype=dtype)


@value_kinds.register("cancelling")
def _cancelling(generator: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Each row adds up to nearly nothing."""
    import torch

    drawn = _randn(generator, shape)
    if not drawn.dim() or drawn.shape[-1] < 2 or not drawn.numel():
        return drawn.to(dtype)
    width = drawn.shape[-1]
    order = torch.randperm(width, generator=generator)
    half = width // 2
    drawn[..., order[half : 2 * half]] = -drawn[..., order[:half]]
    return drawn.to(dtype)


@value_kinds.register("NaN and Inf")
def _strange(generator: torch.Generator, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """NaN, Inf and -Inf at the corners, numbers elsewhere."""
    drawn = _randn(generator, shape).to(dtype)
    flat = drawn.view(-1)
    for place, value in zip(
        (0, -1, drawn.shape[-1] - 1 if drawn.dim() else 0), _CORNERS, strict=True
    ):
        if flat.numel():
            flat[place] = value
    return drawn


_CORNERS = (float("nan"), float("inf"), float("-inf"))


def base_cases(
    shapes: Sequence[Shapes], dtypes: Sequence[tuple[str, ...]], seeds: Sequence[int], high: int
) -> Iterator[Case]:
    """Plain cases: every shape in every type with every seed."""
    for each in shapes:
        for kinds in dtypes:
            for seed in seeds:
                yield Case(each, kinds, seed=seed, high=high)


def as_shapes(given: Sequence[Any]) -> list[Shapes]:
    """What users give as shapes: of each call one shape, or those of all inputs.

    Raises:
        UsageError: it is neither.
    """
    found: list[Shapes] = []
    for each in given:
        parts = tuple(each) if isinstance(each, (tuple, list)) else None
        if parts is None:
            raise UsageError(f"shapes= takes shapes or lists of them, not {each!r}")
        if all(isinstance(size, int) for size in parts):
            parts = (parts,)
        try:
            found.append(tuple(None if one is None else tuple(map(int, one)) for one in parts))
        except (TypeError, ValueError):
            raise UsageError(f"shapes= takes shapes or lists of them, not {each!r}") from None
    if not found:
        raise UsageError("shapes= is empty; give the shapes of the inputs of a call or several")
    return found


def as_dtypes(given: Sequence[Any], count: int) -> list[tuple[str, ...]]:
    """What users give as types: of each call one type, or those of all inputs.

    Raises:
        UsageError: there is no such type, or there are not as many as inputs.
    """
    found = []
    for each in given:
        parts = tuple(each) if isinstance(each, (tuple, list)) else (each,) * count
        names = tuple(str(part).removeprefix("torch.") for part in parts)
        for name in names:
            dtype_of(name)
        if len(names) != count:
            raise UsageError(f"dtypes= has {len(names)} types for {count} inputs")
        found.append(names)
    if not found:
        raise UsageError("dtypes= is empty; give data types such as float16")
    return found
