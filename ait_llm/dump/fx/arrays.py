"""Values of a running graph as NumPy arrays, in the way torchair saves them.

Element types without a counterpart in ``.npy`` files, such as bf16 and fp8, are widened to float32,
which holds each of their values exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import is_fake

Array = np.ndarray[Any, np.dtype[Any]]

_NUMPY_TYPES = frozenset(
    dtype
    for name in (
        "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64",
        "float16", "float32", "float64", "complex64", "complex128",
    )
    if (dtype := getattr(torch, name, None)) is not None
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Piece:
    """One value of a node.

    Attributes:
        place: ``0``, or ``0.2`` for element 2 of the list that is argument 0.
        value: a tensor, a number, or a list of numbers.
    """

    place: str
    value: Any


def argument_pieces(args: tuple[Any, ...]) -> Iterator[Piece]:
    """The positional arguments that are values; a list of tensors is taken apart."""
    for place, value in enumerate(args):
        yield from _pieces(str(place), value)


def result_pieces(result: Any) -> Iterator[Piece]:
    """The results; a single one has place 0."""
    results = result if isinstance(result, (tuple, list)) else (result,)
    for place, value in enumerate(results):
        yield from _pieces(str(place), value)


def _pieces(place: str, value: Any) -> Iterator[Piece]:
    if isinstance(value, (tuple, list)) and any(isinstance(item, Tensor) for item in value):
        for number, item in enumerate(value):
            if isinstance(item, Tensor):
                yield Piece(f"{place}.{number}", item)
    elif isinstance(value, Tensor) or _are_numbers(value):
        yield Piece(place, value)


def _are_numbers(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return bool(value) and all(_is_number(item) for item in value)
    return _is_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, complex, torch.SymInt, torch.SymFloat))


def as_array(value: Any) -> Array | str:
    """The values as an array on the host, or the reason why there is none.

    Args:
        value: what a :class:`Piece` holds.
    """
    if isinstance(value, Tensor):
        return _of_tensor(value)
    try:
        if isinstance(value, (tuple, list)):
            return np.asarray([_plain(item) for item in value])
        return np.asarray(_plain(value))
    except OverflowError:
        return "is a number larger than 64 bits"


def _plain(value: Any) -> int | float | complex:
    if isinstance(value, torch.SymInt):
        return int(value)
    return float(value) if isinstance(value, torch.SymFloat) else value


def _of_tensor(tensor: Tensor) -> Array | str:
    if tensor.device.type == "meta" or is_fake(tensor):
        return "is a tensor without data"
    if tensor.is_nested or tensor.is_quantized or tensor.layout is not torch.strided:
        return f"is a tensor of another layout ({tensor.layout})"
    try:
        plain = tensor.detach().cpu().resolve_conj().resolve_neg()
        if plain.dtype not in _NUMPY_TYPES:
            plain = plain.to(torch.complex64 if plain.is_complex() else torch.float32)
        array: Array = plain.numpy()
    except (RuntimeError, TypeError, NotImplementedError) as error:
        return f"{tensor.dtype} cannot be converted: {str(error).splitlines()[0]}"
    return array
