"""What was found in tensors of one step, for the modules that the same objects are passed on to.

Most values of a model are seen more than once: as the output of a module, of the one around it, and
as the input of the next. The elements are reduced each time, for nothing else shows a change of a
tensor of inference mode. Where their numbers are what they were, who the tensor is and its row of
the table are too, and need not be found out and written anew.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch import Tensor

from ait_llm.core.kernels import NativeKernels, Numbers, native_kernels
from ait_llm.dump.pytorch.identity import Identity, Mark, is_as_told
from ait_llm.dump.pytorch.statistics import element_code, fills_its_memory

# Larger ones that count their changes are not reduced again while they count none.
_SMALL = 1 << 16


class Seen:
    """What is known of a tensor.

    Attributes:
        cells: of its row in the table.
        identity: which value it is.
    """

    __slots__ = (
        *("address", "cells", "code", "count", "counter", "identity", "is_dense", "mark"),
        *("numbers", "reference", "shape", "strides"),
    )

    def __init__(
        self,
        tensor: Tensor,
        code: int,
        counter: int | None,
        mark: Mark,
        numbers: Numbers,
        cells: Callable[[], str],
        identity: Identity,
    ) -> None:
        self.reference: weakref.ref[Tensor] = weakref.ref(tensor)
        self.address = tensor.data_ptr()
        self.shape = tensor.shape
        self.strides = identity[3]
        self.code = code
        self.count = tensor.numel()
        self.is_dense = fills_its_memory(tensor)
        self.counter = counter
        self.mark = mark
        self.numbers = numbers
        self.cells = cells
        self.identity = identity


class SeenTensors:
    """The tensors of one step, by object. Nothing of a tensor is kept alive."""

    def __init__(self) -> None:
        self._objects: dict[int, Seen] = {}
        self._kernels: NativeKernels | None = native_kernels()

    def forget(self) -> None:
        """Start afresh, at a new step."""
        self._objects.clear()

    def find(self, tensor: Tensor) -> Seen | None:
        """What is known of a tensor that has the elements that it had when it was remembered.

        None where it is another one, lies elsewhere, was written, or has other numbers now.
        """
        seen = self._objects.get(id(tensor))
        if seen is None or seen.reference() is not tensor:
            return None
        if (
            tensor.data_ptr() != seen.address
            or tensor.shape != seen.shape
            or tensor.stride() != seen.strides
            or (seen.counter is not None and tensor._version != seen.counter)
            or not is_as_told(seen.mark, seen.identity, seen.counter)
            or self._reduced(tensor, seen) != seen.numbers
        ):
            return None
        return seen

    def remember(
        self,
        tensor: Tensor,
        mark: Mark,
        numbers: Numbers,
        cells: Callable[[], str],
        identity: Identity,
    ) -> None:
        """Know a tensor when it comes again in this step.

        Args:
            tensor: on the host, neither negated nor conjugated.
            mark: that of its storage.
            numbers: of its elements.
            cells: of its row in the table.
            identity: which value it is.
        """
        code = element_code(tensor.dtype)
        counter = None if tensor.is_inference() else tensor._version
        if code is None or (counter is not None and tensor.nbytes >= _SMALL):
            return
        self._objects[id(tensor)] = Seen(tensor, code, counter, mark, numbers, cells, identity)

    def _reduced(self, tensor: Tensor, seen: Seen) -> Numbers | None:
        if self._kernels is None:
            return None
        if seen.is_dense:
            return self._kernels.statistics(seen.code, seen.address, seen.count)
        with torch.no_grad():
            copy = tensor.contiguous()
        return self._kernels.statistics(seen.code, copy.data_ptr(), seen.count)
