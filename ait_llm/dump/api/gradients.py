"""Gradients of modules and of parameters.

The gradients that arrive at a module are seen by hooks on what it returned, those that leave it by
hooks on views of what it got: the module gets a view of each tensor, so that other uses of the
tensor do not add to its gradient. Nothing else changes: outputs keep their types (a namedtuple
stays one), in-place operations inside and behind the module work, and a module with a hook of the
deprecated kind is recorded like any other.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import register_multi_grad_hook

from ait_llm.dump.api.capture import backward_of, local
from ait_llm.dump.api.parameters import ParameterRecord
from ait_llm.dump.api.recording import Recording

if TYPE_CHECKING:
    from ait_llm.dump.api.modules import ModuleWatch


class ModuleGradients:
    """The gradients of one call of a module.

    Args:
        watch: the hooks it belongs to; what comes after they are taken off is not recorded.
        recording: where the record goes.
        name: record of the forward call.
        parent: record of the forward call of the module above.
    """

    def __init__(
        self, watch: ModuleWatch, recording: Recording, name: str, parent: str | None
    ) -> None:
        self._watch = watch
        self._recording = recording
        self._name = backward_of(name)
        self._parent = None if parent is None else backward_of(parent)
        self._arriving: list[Tensor | None] = []
        self._leaving: list[Tensor | None] = []
        self._places: list[int] = []
        self._versions: list[int] = []
        self._viewed = True
        self._views: list[Tensor] = []  # only while the module runs
        self._passed: dict[int, int] = {}
        self._lost: RuntimeError | None = None

    def lose(self, error: RuntimeError) -> None:
        """Go on without the gradients that torch does not let us see; the record tells of it."""
        self._recording.complain(f"{self._name}: some gradients are not recorded ({error})")
        self._lost = error

    def lose_inputs(self, error: RuntimeError) -> None:
        """Go on with the gradients that arrive alone."""
        self.lose(error)
        self._views.clear()
        self._places = []
        self._leaving = []

    def watch_inputs(self, module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments for the module, with views in the place of tensors that need gradients.

        A module that changes its input gets the input itself: the gradient of a view does not
        outlive a change of the view.
        """
        self._viewed = not getattr(module, "inplace", False)
        found = [index for index, value in enumerate(args) if _needs_gradient(value)]
        if not found:
            return args
        seen = list(args)
        for index in found:
            seen[index] = args[index].view_as(args[index]) if self._viewed else args[index]
            self._views.append(seen[index])
        # As msprobe has it, arguments without a gradient do not count.
        self._leaving = [None] * len(found)
        self._places = found
        views = self._views
        if len(views) == 1:
            _hook(views[0], lambda grad: self._left([grad]))
        else:
            register_multi_grad_hook(list(views), self._left)
        self._versions = [view._version for view in views]
        return tuple(seen)

    def watch_outputs(self, output: Any) -> None:
        """Look at the gradients of what the module returned."""
        outputs = list(output) if isinstance(output, (tuple, list)) else [output]
        if not isinstance(output, (tuple, list, Tensor)):
            outputs = _tensors(output)
        self._arriving = [None] * len(outputs)
        found = [index for index, value in enumerate(outputs) if _needs_gradient(value)]
        for index in found:
            for place, view in enumerate(self._views):
                if view is outputs[index]:
                    self._passed[index] = place
        alone = not self._places or (
            self._viewed
            and any(
                view._version != version
                for view, version in zip(self._views, self._versions, strict=True)
            )
        )
        self._views.clear()
        if alone and len(found) > 1:
            register_multi_grad_hook(
                [outputs[index] for index in found],
                lambda grads: self._all_arrived(found, grads),
            )
            return
        for index in found:
            _hook(outputs[index], self._arrived(index, alone))

    def _arrived(self, index: int, alone: bool) -> Any:
        def hook(grad: Tensor) -> None:
            self._arriving[index] = grad
            if alone:
                self._record()

        return hook

    def _all_arrived(self, found: Sequence[int], grads: Sequence[Tensor | None]) -> None:
        for index, grad in zip(found, grads, strict=True):
            self._arriving[index] = grad
        self._record()

    def _left(self, grads: Sequence[Tensor | None]) -> None:
        if not self._places:
            return
        self._leaving = list(grads)
        for index, place in self._passed.items():
            # The module returned what it got: both gradients are that of one tensor.
            if self._arriving[index] is None:
                self._arriving[index] = grads[place]
        self._record()

    def _record(self) -> None:
        arriving, self._arriving = self._arriving, [None] * len(self._arriving)
        leaving, self._leaving = self._leaving, [None] * len(self._leaving)
        recording = self._recording
        if not recording.active or self._watch.recording is not recording or self._watch.removed:
            return
        busy, local.busy = local.busy, True
        try:
            with torch._C.DisableTorchFunction():
                recording.gradients(self._name, self._parent, arriving, leaving, self._lost)
        finally:
            local.busy = busy


def _hook(tensor: Tensor, function: Callable[[Tensor], None]) -> Any:
    return tensor.register_hook(function)  # type: ignore[no-untyped-call]  # torch is untyped here


def _needs_gradient(value: Any) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _tensors(value: Any) -> list[Any]:
    """The tensors inside a mapping or another container, in order."""
    leaves, _ = torch.utils._pytree.tree_flatten(value)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


class ParameterGradients:
    """Looks at the gradients of parameters as they are accumulated.

    Args:
        watch: the hooks it belongs to.
    """

    def __init__(self, watch: ModuleWatch) -> None:
        self._watch = watch
        self._hooked: dict[int, weakref.ref[Tensor]] = {}
        self._handles: list[Any] = []
        self._open: dict[str, ParameterRecord] = {}

    def watch(self, recording: Recording, module: nn.Module, name: str) -> None:
        """Hook the parameters that a module has of its own.

        Sharding exchanges parameters while a model runs, so this is asked for at every call.
        """
        expected = None
        for key, parameter in module._parameters.items():
            if parameter is None or not parameter.requires_grad:
                continue
            known = self._hooked.get(id(parameter))
            if known is not None and known() is parameter:
                continue
            if expected is None:
                expected = sum(
                    each is not None and each.requires_grad for each in module._parameters.values()
                )
            self._hooked[id(parameter)] = weakref.ref(parameter)
            self._handles.append(_hook(parameter, self._hook(name, key, expected)))

    def remove(self) -> None:
        """Take the hooks off, and write the records that are not complete."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()
        self._hooked.clear()
        self.finish()

    def finish(self) -> None:
        """Write the records of which some parameter got no gradient."""
        for record in self._open.values():
            record.write()
        self._open.clear()

    def _hook(self, name: str, key: str, expected: int) -> Any:
        def hook(grad: Tensor) -> None:
            recording = self._watch.recording
            if recording is None or not recording.active or grad is None:
                return
            busy, local.busy = local.busy, True
            try:
                with torch._C.DisableTorchFunction():
                    record = self._open.get(name)
                    if record is None or record.recording is not recording or key in record:
                        if record is not None:
                            record.write()
                        record = self._open[name] = ParameterRecord(recording, name)
                    record.add(key, grad)
                    if len(record) == expected:
                        record.write()
                        del self._open[name]
            finally:
                local.busy = busy

        return hook
