"""A function of torch run in one wide type, with what is on the way moved if asked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from ait_llm.opcheck.golden.aten.kinds import base_name
from ait_llm.opcheck.golden.aten.kinds import is_exact as moves
from ait_llm.opcheck.golden.base import Arithmetic
from ait_llm.opcheck.golden.function_steps import Step, Trace, floats_in

_NEIGHBOUR = 1.44  # root mean square of the distance to a neighbour, in units of the type
_FLOAT32_STEP = 2.0**-20  # some roundings of float32, where the bound is that of 16 bits
_SEED = 20251122
_AHEAD = 8  # steps that a wider type may leave out


class Wide(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch is untyped here
    """Lets a function keep all floats in one wide type, and moves what is on the way if asked."""

    def __init__(self, trace: Trace, dtype: torch.dtype, how: Arithmetic) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch is untyped here
        self._steps = trace.steps
        self._staged = trace.is_staged
        self._dtype = dtype
        info = torch.finfo(dtype)
        self._limits = (info.eps, info.min, info.max, info.tiny)
        self._move = how.move
        self._generator = torch.Generator().manual_seed(_SEED + how.sample)
        self._next = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        step = self._step(str(func))
        own = {} if step is None else step.plain
        kwargs = {name: self._wide(value, own.get(name)) for name, value in (kwargs or {}).items()}
        given = [self._wide(value, own.get(str(place))) for place, value in enumerate(args)]
        found = func(*given, **kwargs)
        if not self._move or step is None or step.ends:
            return found
        if func._schema.is_mutable:
            for tensor in floats_in([found]):
                tensor.mul_(self._factors(tensor, step))
            return found
        return self._shaken(found, step)  # autograd may keep what was found: that must not change

    def _wide(self, value: Any, own: Any) -> Any:
        """An argument in the wide type; a number of that type itself is the one of the own type."""
        if isinstance(value, torch.dtype) and value.is_floating_point:
            return self._dtype
        return own if isinstance(own, float) and value in self._limits else value

    def _step(self, kind: str) -> Step | None:
        """The step that an operator is; wider types may take other ways."""
        if moves(kind):
            return None
        name = base_name(kind)
        for place in range(self._next, min(self._next + _AHEAD, len(self._steps))):
            if self._steps[place].name == name:
                self._next = place + 1
                return self._steps[place]
        return None

    def _shaken(self, found: Any, step: Step) -> Any:
        """The same with each element moved up or down."""
        if isinstance(found, Tensor):
            return found * self._factors(found, step) if found.is_floating_point() else found
        if isinstance(found, (list, tuple)):
            return type(found)(self._shaken(each, step) for each in found)
        return found

    def _factors(self, tensor: Tensor, step: Step) -> Tensor:
        """One and a little more or less, by chance, as one rounding may change an element."""
        if step.half is not None:
            move = _NEIGHBOUR * torch.finfo(step.half).eps / 2
        else:
            move = _FLOAT32_STEP if self._staged else self._move
        signs = torch.randint(0, 2, tensor.shape, generator=self._generator, dtype=torch.int8)
        return 1 + move * signs.mul_(2).sub_(1).to(tensor.dtype)
