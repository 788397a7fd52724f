"""A call that is being recorded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from ait_llm.dump.pytorch.identity import Identity, identity_of
from ait_llm.dump.pytorch.layouts import is_plain
from ait_llm.dump.pytorch.tensor_jobs import Outcome


@dataclass(slots=True)
class Call:
    """A call that is being recorded.

    Attributes:
        name: of the record, ``Torch.relu.0.forward``.
        order: place among the records.
        parent: the record of the module it runs in.
        inputs: JSON of what it got.
        save: whether its tensors get files.
        deferred: what to call before the JSON is complete.
        outcome: what became of its tensors.
        shown: the inputs as they are in the file already.
        identities: which values its tensors are, by the end of the item's name: ``input.0``.
        rounding: what keeping weights of its module in few bits has cost them.
    """

    name: str
    order: float
    parent: str | None
    save: bool
    inputs: dict[str, Any] = field(default_factory=dict)
    deferred: list[Callable[[], None]] = field(default_factory=list)
    outcome: Outcome = field(default_factory=Outcome)
    shown: str = ""
    identities: dict[str, Identity] = field(default_factory=dict)
    rounding: float = 0.0

    def identify(self, tensor: Tensor, name: str) -> None:
        """Note which value a tensor is, where that can be told.

        Args:
            tensor: as the program has it.
            name: of the item, ``{record}.input.0``.
        """
        item = name.removeprefix(f"{self.name}.")
        if item.startswith("kwargs."):  # files are named so, items in tables are not
            item = f"input.{item.removeprefix('kwargs.')}"
        if is_plain(tensor) and not item.startswith("parameters."):
            identity = identity_of(tensor)
            if identity is not None:
                self.identities[item] = identity


def first_tensor(value: Any) -> Tensor | None:
    """The first tensor in what a call returned."""
    if isinstance(value, Tensor):
        return value
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return None
    for item in value:
        found = first_tensor(item)
        if found is not None:
            return found
    return None
