"""The values of one process while its forward passes are computed, each no longer than needed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np

from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError, FormatError
from ait_llm.opcheck.cases import values_of
from ait_llm.replay.program import Key, Program

if TYPE_CHECKING:
    import torch

Origin = Literal["golden", "dump"]


@dataclass(slots=True)
class Value:
    """A value at hand.

    Attributes:
        tensor: its elements.
        origin: computed here, or read from the dump.
        source: where it was read.
    """

    tensor: torch.Tensor
    origin: Origin
    source: Tensor | None = None


@dataclass(slots=True)
class Values:
    """The computed values of one forward pass.

    Attributes:
        program: the pass.
        computed: what golden operators made and is still needed.
        first: for values that are updated in place, the value before the first update.
    """

    program: Program
    computed: dict[Key, torch.Tensor] = field(default_factory=dict)
    first: dict[Key, Key] = field(default_factory=dict)
    _uses: Counter[Key] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for unit in self.program.operators:
            self._uses.update(key for key in unit.inputs if key is not None)

    def keep(self, key: Key, tensor: torch.Tensor, *, state: bool = False) -> None:
        """Remember a value if it is read later, or at the end of the pass."""
        if state or self._uses[key] > 0:
            self.computed[key] = tensor

    def read(self, keys: Iterable[Key | None]) -> None:
        """Note that an operator is done with its inputs; let go of what nobody reads any more."""
        for key in keys:
            if key is None:
                continue
            self._uses[key] -= 1
            if self._uses[key] <= 0 and key not in self.first:
                self.computed.pop(key, None)

    def update(self, before: Key, after: Key, tensor: torch.Tensor) -> None:
        """Remember what an operator made of an input in its place."""
        self.first[after] = self.first.get(before, before)
        self.keep(after, tensor, state=True)
        if before in self.first and before != after:
            del self.first[before]
            if self._uses[before] <= 0:
                self.computed.pop(before, None)

    def updated(self) -> Iterator[tuple[Key, Key]]:
        """Values from outside that were updated in place, and what they are at the end."""
        for last, first in self.first.items():
            if last in self.computed and first in self.program.kinds:
                yield first, last


def dumped(program: Program, key: Key, own: Tensor | None = None) -> Value | None:
    """A value as the dump has it; None if it was not captured.

    Args:
        program: the pass.
        key: the value.
        own: the tensor of the operator that reads it, which is taken if it holds that value.

    Raises:
        FormatError: a file is damaged.
    """
    candidates = program.captured.get(key, [])
    if own is not None and own in candidates:
        candidates = [own, *candidates]
    for tensor in candidates:
        if tensor.has_data:
            return Value(values_of(tensor), "dump", tensor)
    return None


def mark_of(program: Program, key: Key) -> bytes | None:
    """Digest of a value as the dump has it; None if it was not captured or cannot be read."""
    for tensor in program.captured.get(key, []):
        try:
            if tensor.has_data:
                array = np.ascontiguousarray(tensor.numpy())
                return blake2b(array.view(np.uint8).data, digest_size=16).digest()
        except (AitError, ValueError):
            continue
    return None


def with_error(tensor: torch.Tensor, path: Path) -> torch.Tensor:
    """A value and an error of it, in the type of the value.

    Raises:
        FormatError: the error has another number of elements.
    """
    import torch

    error = torch.from_numpy(np.load(path, allow_pickle=False))
    if error.numel() != tensor.numel():
        raise FormatError(path, f"is no error of a value with shape {list(tensor.shape)}")
    return (tensor.double() + error.reshape(tensor.shape)).to(tensor.dtype)
