"""The record of the gradients of a module's parameters."""

from __future__ import annotations

from torch import Tensor

from ait_llm.dump.api.calls import Call
from ait_llm.dump.api.recording import Recording


class ParameterRecord:
    """The gradients of a module's parameters in one backward pass, as they come.

    Args:
        recording: where the record goes.
        module: name of the module.
    """

    def __init__(self, recording: Recording, module: str) -> None:
        self.recording = recording
        key = f"{module}.parameters_grad"
        self.name = f"{key}.{recording.count(key)}"
        self._call = Call(self.name, recording.next_order(), None, recording.saves(self.name))

    def __contains__(self, key: str) -> bool:
        return key in self._call.inputs

    def __len__(self) -> int:
        return len(self._call.inputs)

    def add(self, key: str, grad: Tensor) -> None:
        """Add the gradient of one parameter."""
        describer = self.recording.describer(self._call)
        try:
            self._call.inputs[key] = [describer.value(grad, f"{self.name}.{key}")]
        except Exception as error:  # noqa: BLE001 - exotic tensors; the program must go on
            self._call.inputs[key] = [None]
            self.recording.lose(self._call, f"{self.name}.{key}", error)

    def write(self) -> None:
        """Write the record."""
        self.recording.put(self._call, self._call.inputs)
