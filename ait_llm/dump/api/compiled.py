"""Compiled code runs operator by operator while it is captured: a fused kernel has no calls."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from types import FrameType, FunctionType
from typing import Any

import torch

from ait_llm.dump.api.replacing import BodySwap

_log = logging.getLogger(__name__)


class EagerWatch:
    """Makes ``torch.compile`` stand aside, also for what is compiled meanwhile."""

    def __init__(self) -> None:
        self._stance: Any = None
        compile_function: Any = torch.compile
        self._swap: BodySwap | None = None
        if isinstance(compile_function, FunctionType):
            self._swap = BodySwap(compile_function, self._compile)

    def install(self) -> None:
        """Begin it."""
        if "torch._dynamo" in sys.modules:  # without it there is nothing compiled yet
            self._stand_aside()
        if self._swap is not None:
            self._swap.install()

    def remove(self) -> None:
        """End it."""
        if self._swap is not None:
            self._swap.remove()
        stance, self._stance = self._stance, None
        if stance is not None:
            stance.__exit__(None, None, None)

    def _stand_aside(self) -> None:
        set_stance = getattr(torch.compiler, "set_stance", None)
        if self._stance is not None:
            return
        if set_stance is None:  # torch before 2.6
            _log.warning("set TORCHDYNAMO_DISABLE=1 to capture what runs compiled")
            return
        self._stance = set_stance("force_eager")

    def _compile(
        self,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        frame: FrameType | None,
    ) -> Any:
        compiled = function(*args, **kwargs)
        self._stand_aside()
        return compiled
