"""Fixing everything random, so that two runs draw the same numbers."""

from __future__ import annotations

import contextlib
import os
import random
from typing import Any

import numpy as np
import torch

_DROPOUTS = ("dropout", "dropout1d", "dropout2d", "dropout3d")


def seed_all(
    seed: int = 1234, mode: bool = False, rm_dropout: bool = False, is_enhanced: bool = False
) -> None:
    """Seed Python, NumPy, torch and its devices.

    Args:
        seed: 0 to 2**32 - 1.
        mode: also use deterministic algorithms.
        rm_dropout: dropout drops nothing from now on.
        is_enhanced: also the seeds of later processes: PYTHONHASHSEED is set in any case; with
            this the deterministic settings of the communication and matrix libraries too.

    Raises:
        ValueError: the seed is not an integer of 32 bits.
    """
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise ValueError(f"seed: an integer from 0 to 2**32 - 1, not {seed!r}")
    random.seed(seed)
    os.environ["PYTHONHASHSEED"] = str(seed)
    np.random.seed(seed)  # noqa: NPY002 - it is the global generator that is to be fixed
    torch.manual_seed(seed)
    for kind in ("cuda", "npu", "xpu", "mps"):
        device: Any = getattr(torch, kind, None)
        if device is not None and _is_available(device):
            getattr(device, "manual_seed_all", device.manual_seed)(seed)
    torch.backends.cudnn.enabled = False
    torch.backends.cudnn.benchmark = False
    torch.backends.cudnn.deterministic = True
    if mode or is_enhanced:
        os.environ["HCCL_DETERMINISTIC"] = "true"
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
    if rm_dropout:
        _remove_dropout()


def _is_available(device: Any) -> bool:
    with contextlib.suppress(RuntimeError, AssertionError):
        return bool(device.is_available())
    return False


def _remove_dropout() -> None:
    functional: Any = torch.nn.functional
    for name in _DROPOUTS:
        function = getattr(functional, name)
        if not getattr(function, "drops_nothing", False):
            setattr(functional, name, _without_dropping(function))


def _without_dropping(function: Any) -> Any:
    def drop_nothing(
        input: torch.Tensor,
        p: float = 0.0,
        training: bool = True,
        inplace: bool = False,
    ) -> Any:
        return function(input, 0.0, training, inplace)

    drop_nothing.drops_nothing = True  # type: ignore[attr-defined]
    drop_nothing.__name__ = function.__name__
    drop_nothing.__module__ = function.__module__
    return drop_nothing
