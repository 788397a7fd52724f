"""Products whose sums are added up in another order, as those of another device may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class OtherSums(TorchDispatchMode):
    """Adds up the second half of the terms of each product before the first."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """The product as another device may make it, and any other result as it is."""
        if func is not torch.ops.aten.mm.default:
            return func(*args, **(kwargs or {}))
        left, right = args
        half = left.shape[-1] // 2
        parts = slice(half, None), slice(None, half)
        sums = [left[:, part].float() @ right[part].float() for part in parts]
        return (sums[0] + sums[1]).to(left.dtype)
