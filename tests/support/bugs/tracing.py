"""What each operator of a program makes, as digests: the truth about where a bug shows first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from bugs.places import Numbering, Place, Places

# What they make of a weight or an input is no result of the program yet.
_MOVES = frozenset(
    {"t", "transpose", "view", "_unsafe_view", "expand", "permute", "slice", "select", "unsqueeze"}
    | {"squeeze", "detach", "alias", "as_strided", "clone", "_to_copy", "split", "unbind"}
    | {"split_with_sizes", "reshape"}
)


@dataclass(frozen=True)
class Call:
    """One operator as it ran.

    Attributes:
        place: where.
        made: digests of the inputs that operators before it made.
        result: digests of what it made.
        outputs: copies of what it made.
    """

    place: Place
    made: tuple[int, ...]
    result: tuple[int, ...]
    outputs: tuple[torch.Tensor, ...]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of what it made."""
        return tuple(tuple(each.shape) for each in self.outputs)


class Trace(TorchDispatchMode):
    """Records the operators of a model that runs under it."""

    def __init__(self, places: Places) -> None:
        super().__init__()
        self.calls: list[Call] = []
        self._numbering = Numbering(places)
        self._made: set[int] = set()

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """The result of the operator."""
        place = self._numbering.next(str(func))
        inputs = [_digest(each) for each in tensors(args, kwargs)]
        result = func(*args, **(kwargs or {}))
        outputs = list(tensors(result))
        if "empty" in str(func):
            for each in outputs:
                each.zero_()  # what memory held before is no result
        made = tuple(each for each in inputs if each in self._made)
        digests = tuple(map(_digest, outputs))
        name = str(func).split(".")[1]
        if made or name not in _MOVES:
            self._made.update(digests)
        if place is not None:
            copies = tuple(each.detach().clone() for each in outputs)
            self.calls.append(Call(place, made, digests, copies))
        return result


def culprits(healthy: Sequence[Call], faulty: Sequence[Call]) -> list[Call]:
    """Calls of a faulty run that make what the healthy one never made, of what it made.

    Weights, buffers and inputs of the program count as given; so the operators that first use a
    wrong one are among them.
    """
    good = {digest for call in healthy for digest in call.result}
    return [
        call
        for call in faulty
        if any(each not in good for each in call.result) and all(each in good for each in call.made)
    ]


def rewritten(
    healthy: Sequence[Call], faulty: Sequence[Call], owners: Sequence[str]
) -> Iterator[Call]:
    """Calls of modules whose code is another: those that the healthy code lacks, and what follows.

    Where code was left out, what follows is the first that shows it.
    """
    for owner in owners:
        before, after = ([c for c in each if c.place.path == owner] for each in (healthy, faulty))
        names = [[call.place.what for call in each] for each in (before, after)]
        for tag, _, _, start, end in SequenceMatcher(None, *names, autojunk=False).get_opcodes():
            if tag != "equal":
                yield from after[start : end + 1]


def tensors(*values: Any) -> Iterator[torch.Tensor]:
    """All tensors in arguments or results."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (tuple, list)):
            yield from tensors(*value)
        elif isinstance(value, dict):
            yield from tensors(*value.values())


def _digest(tensor: torch.Tensor) -> int:
    data = tensor.detach().flatten().clone(memory_format=torch.contiguous_format)
    return hash((str(data.dtype), data.view(torch.uint8).numpy().tobytes())) if len(data) else 0
