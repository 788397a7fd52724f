"""A device graph on a CPU: operators are noted down with their memory, and run again in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from ait_llm.dump.taps.replays import recordings, watch_graph


class _Noted(TorchDispatchMode):
    def __init__(self, work: list[tuple[Any, Any, Any, Any]]) -> None:
        super().__init__()
        self._work = work

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        output = func(*args, **kwargs or {})
        self._work.append((func, args, kwargs or {}, output))
        return output


class RecordedGraph:
    """``torch.npu.NPUGraph`` without its device: a replay reads and writes what it was given."""

    def __init__(self) -> None:
        self._work: list[tuple[Any, Any, Any, Any]] = []
        self._mode = _Noted(self._work)

    def capture_begin(self) -> None:
        self._mode.__enter__()

    def capture_end(self) -> None:
        self._mode.__exit__(None, None, None)

    def replay(self) -> None:
        for func, args, kwargs, output in self._work:
            again = func(*args, **kwargs)
            for place, value in zip(tree_leaves(output), tree_leaves(again), strict=True):
                if isinstance(place, Tensor) and place.data_ptr() != value.data_ptr():
                    place.copy_(value)


watch_graph(RecordedGraph, recordings)
