"""Calls with other rows beside theirs, behind them or in front."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ait_llm.dump.changes.catalogue import NotPossibleError

OTHERS = 3
"""Rows that are put beside those of a call."""
IDS = ("input_ids", "inputs", "decoder_input_ids")


@dataclass(frozen=True, slots=True)
class Undo:
    """What gives the caller the results of the call that it made.

    Attributes:
        value: puts back one tensor.
    """

    value: Callable[[Tensor], Tensor]

    def __call__(self, output: Any) -> Any:
        """The same structure of results; what is no tensor stays, and so do caches."""
        if isinstance(output, Tensor):
            return self.value(output)
        if isinstance(output, Mapping):
            for name, value in list(output.items()):
                output[name] = self(value)  # type: ignore[index]
            return output
        if isinstance(output, tuple) and hasattr(output, "_fields"):
            return type(output)(*map(self, output))
        if isinstance(output, (list, tuple)):
            return type(output)(map(self, output))
        if is_dataclass(output) and not isinstance(output, type):
            return replace(
                output, **{each.name: self(getattr(output, each.name)) for each in fields(output)}
            )
        return output


def row_count(named: Mapping[str, Any]) -> int:
    """Rows of a call: those of its token ids, or else of its first tensor.

    Raises:
        NotPossibleError: it has no tensor with rows.
    """
    tensors = [named[name] for name in IDS if isinstance(named.get(name), Tensor)]
    tensors += [each for each in named.values() if isinstance(each, Tensor)]
    for each in tensors:
        if each.dim() > 1:
            return len(each)
    raise NotPossibleError("it is called without a tensor that has rows")


@dataclass(slots=True)
class OtherRows:
    """Puts rows beside those of a call.

    Attributes:
        in_front: one row in front, so that all others have another place; else several behind.
    """

    in_front: bool = False

    def change(
        self, named: Mapping[str, Any], rows: int, *, first: bool = True
    ) -> tuple[dict[str, Any], Undo]:
        """The arguments of the changed call, and what puts its results back.

        Args:
            named: arguments by name.
            rows: how many it has.
            first: False for a call that goes on with a cache: the other rows get its tokens.
        """
        sources, keep = self._places(rows)
        others = len(sources) - rows
        changed = {
            name: self._more(name, value, sources, keep, named, shuffle=first and others > 0)
            if isinstance(value, Tensor) and value.dim() and len(value) == rows
            else value
            for name, value in named.items()
        }
        total = len(sources)

        def back(value: Tensor) -> Tensor:
            if not value.dim() or not len(value) or len(value) % total:
                return value
            times = len(value) // total  # answers of one prompt
            places = [place * times + number for place in keep for number in range(times)]
            return value[torch.tensor(places, device=value.device)]

        return changed, Undo(back)

    def _places(self, rows: int) -> tuple[list[int], list[int]]:
        """For each row of the changed call the one it is made of; and where the real ones are."""
        if self.in_front:
            return [0, *range(rows)], list(range(1, rows + 1))
        return [*range(rows), *(number % rows for number in range(OTHERS))], list(range(rows))

    def _more(
        self,
        name: str,
        value: Tensor,
        sources: list[int],
        keep: list[int],
        named: Mapping[str, Any],
        *,
        shuffle: bool,
    ) -> Tensor:
        made = value[torch.tensor(sources, device=value.device)]
        if not shuffle or name not in IDS or value.dim() != 2 or not only_text(named):
            return made
        for place in set(range(len(sources))) - set(keep):
            made[place] = shuffled(made[place], place)
        return made


def only_text(named: Mapping[str, Any]) -> bool:
    """False where tokens stand for pictures or sounds, which have their places."""
    return not any(
        isinstance(value, Tensor) and value.is_floating_point() and name != "attention_mask"
        for name, value in named.items()
    )


def shuffled(row: Tensor, number: int) -> Tensor:
    """Another text of the same length: half of the tokens behind the first one, twice.

    With all of them in another order, what adds up the rows of a batch could stay the same.
    """
    ids = row.tolist()
    rest = ids[1:]
    random.Random(number).shuffle(rest)
    half = rest[: (len(rest) + 1) // 2]
    twice = [*half, *half][: len(rest)]
    return torch.tensor([*ids[:1], *twice], dtype=row.dtype, device=row.device)
