"""Where in a model a program is, told by hooks of its own and not by a dump."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from torch import nn
from torch.nn.modules import module as hooks
from typing_extensions import Self


@dataclass(frozen=True, order=True)
class Place:
    """One call of an operator or function.

    Attributes:
        step: forward pass of the program.
        path: module whose own code makes the call; empty for the model itself.
        what: ``aten.mm.default``, or the name of a function.
        call: which of its calls in that module and step.
    """

    step: int
    path: str
    what: str
    call: int


class Places:
    """Follows a model's calls while it is entered."""

    def __init__(self, model: nn.Module) -> None:
        self._root = model
        self._names = {id(module): name for name, module in model.named_modules()}
        self._around: list[str] = []
        self.step = -1

    def __enter__(self) -> Self:
        self._handles = [
            hooks.register_module_forward_pre_hook(self._enter),
            hooks.register_module_forward_hook(self._leave, always_call=True),
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for handle in self._handles:
            handle.remove()

    @property
    def path(self) -> str | None:
        """The innermost module that runs; None outside of the model."""
        return self._around[-1] if self._around else None

    def _enter(self, module: nn.Module, _: Any) -> None:
        if id(module) not in self._names:
            return
        if module is self._root:
            self.step += 1
        self._around.append(self._names[id(module)])

    def _leave(self, module: nn.Module, _: Any, __: Any) -> None:
        if id(module) in self._names:
            self._around.pop()


class Numbering:
    """Numbers the calls that one observer sees."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._seen: Counter[tuple[int, str, str]] = Counter()

    def next(self, what: str) -> Place | None:
        """The place of a call that begins now; None outside of the model."""
        path = self._places.path
        if path is None:
            return None
        key = (self._places.step, path, what)
        self._seen[key] += 1
        return Place(*key, self._seen[key] - 1)
