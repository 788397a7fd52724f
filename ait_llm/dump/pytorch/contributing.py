"""How much each error of a run changes its choice of a token: gradients times errors."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ait_llm.dump.patches import Margin, Patch, Patches
from ait_llm.dump.pytorch.ledger import Ledger
from ait_llm.dump.pytorch.options import CaptureOptions
from ait_llm.dump.pytorch.patching import PatchingRecorder, change, numbers_of
from ait_llm.dump.pytorch.recorder import Recorder
from ait_llm.dump.pytorch.unit import Unit

# Of versions that do not have it, gradients of what is changed may be refused.
_SAME_VERSION: Any = getattr(
    torch.autograd, "_unsafe_preserve_version_counter", lambda _tensor: nullcontext()
)
_NO_GRADIENT = "no gradient can be computed of it"


def patching_recorder(
    folder: Path, ledger: Ledger, options: CaptureOptions, plan: Path
) -> Recorder:
    """The recorder for a plan of patches.

    Raises:
        FormatError: the plan is damaged.
    """
    patches = Patches.read(plan)
    kind = ContributingRecorder if patches.margins else PatchingRecorder
    return kind(folder, ledger, options, patches)


class ContributingRecorder(PatchingRecorder):
    """Runs the model with gradients, whatever the program says, and multiplies them by errors.

    What a place is changed by is a share of its error. With ``g`` the gradient of a margin by the
    value and ``e`` the whole error, ``g . e`` is the change of the margin by that error, to first
    order. All steps up to the margin stay in memory with what their gradients need.
    """

    def __init__(
        self, folder: Path, ledger: Ledger, options: CaptureOptions, patches: Patches
    ) -> None:
        super().__init__(folder, ledger, options, patches)
        self._held: dict[str, Tensor] = {}
        self._before: bool | None = None
        patches.changes = [{} for _ in patches.margins]

    def begin_step(self, step: int) -> bool:
        """Compute with gradients from here on, to the end of the model's call."""
        if self._before is None:
            self._before = torch.is_grad_enabled()
        torch.set_grad_enabled(True)
        return super().begin_step(step)

    def finish(self, unit: Unit, failure: str = "") -> None:
        """Write the line of a call; with that of the model itself gradients end."""
        super().finish(unit, failure)
        if "." not in unit.path and self._before is not None:
            torch.set_grad_enabled(self._before)
            self._before = None

    def _patch(self, key: str, tensor: Tensor, *, is_new: bool) -> None:
        super()._patch(key, tensor, is_new=is_new)
        for number, margin in enumerate(self._patches.margins):
            if margin.key == key:
                self._contribute(number, margin, tensor)

    def _change(self, key: str, patch: Patch, tensor: Tensor) -> None:
        if tensor.is_floating_point():
            self._held[key] = _from_here(tensor)
        with torch.no_grad():
            change(self._patches.plan.parent, patch, tensor.data)  # no version of it is saved

    def _contribute(self, number: int, margin: Margin, tensor: Tensor) -> None:
        patches = self._patches
        held = {key: each for key, each in self._held.items() if key in patches.done}
        try:
            flat = tensor.reshape(-1)
            gradients = torch.autograd.grad(
                flat[margin.plus].double() - flat[margin.minus].double(),
                list(held.values()),
                retain_graph=True,
                allow_unused=True,
            )
        except (RuntimeError, IndexError) as why:
            patches.refused[margin.key] = f"{_NO_GRADIENT}: {str(why).partition(chr(10))[0]}"
            return
        for (key, value), gradient in zip(held.items(), gradients, strict=True):
            if gradient is not None:
                patch = patches.places[key]
                at, error = numbers_of(patches.plan.parent, patch, value)
                change_of = (gradient.reshape(-1)[at].double() * error.double()).sum()
                patches.changes[number][key] = float(change_of)


def _from_here(tensor: Tensor) -> Tensor:
    """What to differentiate by for the effect of a change that is made now.

    What was computed from the value before does not follow a change of it. Nothing is added, by an
    operator that autograd sees: its other summand has the gradient of what comes later. Values that
    may not be changed in place, such as parts of a split, have that of all that uses them.

    Raises:
        RuntimeError: it was made in inference mode, and has no gradient.
    """
    nothing = torch.zeros_like(tensor, requires_grad=True)
    try:
        with _SAME_VERSION(tensor):
            tensor.add_(nothing)
    except RuntimeError:
        if not tensor.requires_grad:
            tensor.requires_grad_(True)
        return tensor
    return nothing
