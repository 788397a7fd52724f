"""Puts values of another run in place of the program's own while it runs.

Values are changed where they lie, so that everything which the program computes from them follows.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ait_llm.dump.patches import Patch, Patches
from ait_llm.dump.pytorch.layouts import is_plain
from ait_llm.dump.pytorch.ledger import Ledger
from ait_llm.dump.pytorch.options import CaptureOptions
from ait_llm.dump.pytorch.recorder import Recorder
from ait_llm.dump.pytorch.unit import Unit

_COMPILED = "it is computed in a compiled graph, whose values cannot be changed"


class PatchingRecorder(Recorder):
    """Records the values that are asked for, and changes those that are.

    Where everything is recorded, it is as the program computed it, before it is changed; where a
    few values are, they are what the changes led to.
    """

    def __init__(
        self, folder: Path, ledger: Ledger, options: CaptureOptions, patches: Patches
    ) -> None:
        super().__init__(folder, ledger, options)
        self._patches = patches
        self._below = len(str(folder)) + 1

    def _try_tensor(self, unit: Unit, name: str, tensor: Tensor, *, is_new: bool = False) -> None:
        key = f"{unit.folder[self._below :]}/{name}"
        recorded = self._patches.recorded
        if recorded is None:
            super()._try_tensor(unit, name, tensor, is_new=is_new)
        self._patch(key, tensor, is_new=is_new)
        if recorded is not None and key in recorded:
            super()._try_tensor(unit, name, tensor, is_new=is_new)

    def _patch(self, key: str, tensor: Tensor, *, is_new: bool) -> None:
        patches = self._patches
        patch = patches.places.get(key)
        if patch is None:
            return
        if is_new:
            patches.refused[key] = _COMPILED
        elif not is_plain(tensor) or self._weight(tensor) is not None:
            patches.refused[key] = "it is a weight, or no dense tensor"
        elif not _repeats(tensor):
            if patch.size not in (0, tensor.numel()):
                patches.resized.add(key)
            try:
                self._change(key, patch, tensor)
            except (OSError, ValueError, RuntimeError) as error:
                patches.refused[key] = str(error).partition("\n")[0]
            else:
                patches.done.add(key)

    def _change(self, key: str, patch: Patch, tensor: Tensor) -> None:
        with torch.inference_mode():  # its own tensors may be changed nowhere else
            change(self._patches.plan.parent, patch, tensor.detach())

    def close(self, end: str) -> None:
        """Finish writing, and say what was changed."""
        super().close(end)
        self._patches.close()


def _repeats(tensor: Tensor) -> bool:
    """True for a view that shows numbers several times; they are changed where they were made."""
    return any(
        stride == 0 and size > 1 for stride, size in zip(tensor.stride(), tensor.shape, strict=True)
    )


def change(folder: Path, patch: Patch, target: Tensor) -> None:
    """Change a value where it lies.

    Raises:
        ValueError: it has another shape than the patch is for.
        OSError, RuntimeError: a file is gone, or the value cannot be changed.
    """
    at, numbers = numbers_of(folder, patch, target)
    flat = target.reshape(-1)
    if patch.adds:
        numbers = flat[at].double() + patch.scale * numbers.double()
    new = flat.clone()
    new[at] = numbers.to(flat.dtype)
    target.copy_(new.reshape(target.shape))


def numbers_of(folder: Path, patch: Patch, target: Tensor) -> tuple[Tensor, Tensor]:
    """Which elements a patch is for, and its numbers, on the device of the value.

    Raises:
        ValueError: the value has another shape.
        OSError: a file is gone.
    """
    numbers = _read(folder / patch.file, target.device)
    if patch.at:
        at = _read(folder / patch.at, target.device)
        fits = not at.numel() or int(at.max()) < target.numel()
    else:
        at = torch.arange(numbers.numel(), device=target.device)
        fits = numbers.numel() == target.numel()
    if not fits or patch.size not in (0, target.numel()):
        raise ValueError(f"it has the shape {list(target.shape)} in this run")
    return at, numbers


def _read(path: Path, device: torch.device) -> Tensor:
    return torch.from_numpy(np.load(path, allow_pickle=False)).to(device)
