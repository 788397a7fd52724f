"""Collectives: what they return is in their arguments, and it is there when they are complete."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ait_llm.dump.api.replacing import Attribute

PREFIX = "Distributed"
# Inputs that a collective only receives into, and outputs that say nothing: written as null.
MASKED_INPUTS: Mapping[str, tuple[int | str, ...]] = {
    "recv": (0,),
    "irecv": (0, "tensor"),
    "gather": (1,),
    **dict.fromkeys(
        (
            "all_gather",
            "scatter",
            "reduce_scatter",
            "_reduce_scatter_base",
            "_all_gather_base",
            "all_to_all_single",
            "all_to_all",
            "all_gather_into_tensor",
            "reduce_scatter_tensor",
        ),
        (0,),
    ),
}
MASKED_OUTPUTS: Mapping[str, tuple[int, ...]] = {
    "Distributed.isend": (0,),
    "NPU.npu_fusion_attention": (4, 5),
}


def results(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a collective is recorded to return: its arguments, received into and all."""
    return (*args, *kwargs.values())


def without(
    args: tuple[Any, ...], kwargs: Mapping[str, Any], masked: tuple[int | str, ...]
) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
    """The arguments without those that a collective only receives into."""
    if not masked:
        return args, kwargs
    return (
        tuple(None if index in masked else value for index, value in enumerate(args)),
        {key: None if key in masked else value for key, value in kwargs.items()},
    )


class WorkWatch:
    """Tells when asynchronous work was waited for."""

    def __init__(self) -> None:
        distributed: Any = sys.modules.get("torch.distributed")
        self._work: Any = getattr(distributed, "Work", None)
        self._pending: dict[int, tuple[Any, Callable[[], None]]] = {}
        self._attribute: Attribute | None = None
        if self._work is not None:
            self._attribute = Attribute(self._work, "wait", self._waiting(self._work.wait))

    def install(self) -> None:
        """Begin to watch."""
        if self._attribute is not None:
            self._attribute.install()

    def remove(self) -> None:
        """End it."""
        self._pending.clear()
        if self._attribute is not None:
            self._attribute.remove()

    def works(self, value: Any) -> list[Any]:
        """The pieces of work among what a collective returned."""
        if self._work is None:
            return []
        found = value if isinstance(value, (list, tuple)) else [value]
        return [each for each in found if isinstance(each, self._work)]

    def when_done(self, works: Sequence[Any], action: Callable[[], None]) -> None:
        """Call ``action`` once all pieces of work were waited for."""
        left = {id(work) for work in works}

        def done(key: int) -> None:
            left.discard(key)
            if not left:
                action()

        for work in works:
            key = id(work)
            # Held, so that no other piece of work gets its id.
            self._pending[key] = (work, lambda key=key: done(key))  # type: ignore[misc]  # default

    def _waiting(self, wait: Any) -> Callable[..., Any]:
        def wait_and_tell(work: Any, *args: Any, **kwargs: Any) -> Any:
            result = wait(work, *args, **kwargs)
            _, action = self._pending.pop(id(work), (None, None))
            if action is not None:
                action()
            return result

        return wait_and_tell
