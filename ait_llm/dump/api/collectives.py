"""Collectives: what they return is in their arguments, and it is there when they are complete."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ait_llm.dump.api.interception import Attribute

PREFIX = "Distributed"


def results(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a collective is recorded to return: its arguments, received into and all."""
    return (*args, *kwargs.values())


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
