"""Running a dumped operator again: on an NPU through ``torch_atb``, elsewhere through hostatb."""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from ait_llm.opcheck.judging import Produced

if TYPE_CHECKING:
    from torch import Tensor

# The library reads these from host memory: on an NPU they must be CPU tensors of int32.
_HOST_TENSORS = frozenset(
    {"seqLen", "tokenOffset", "contextLens", "qSeqLen", "kvSeqLen", "batchRunStatus", "layerId"}
)
_STRIDED = "RmsNormWithStride"  # reports the class name of RmsNorm


class Backend(Protocol):
    """Runs one operator.

    Attributes:
        name: ``hostatb`` or ``torch_atb``.
    """

    @property
    def name(self) -> str: ...

    def run(
        self, type_name: str, params: Mapping[str, Any], inputs: Sequence[Tensor | None]
    ) -> Produced:
        """Run an operator on copies of its inputs.

        Raises:
            UnverifiableError: the back end does not have this operator.
            AitError: it refuses the inputs.
        """
        ...


@dataclass(frozen=True)
class AtbBackend:
    """A back end with the interface of ``torch_atb``.

    Attributes:
        name: of the back end.
        module: with the parameter classes and ``Operation``.
        to_device: moves a tensor to where the library computes.
    """

    name: str
    module: ModuleType
    to_device: Callable[[Tensor], Tensor]

    def run(
        self, type_name: str, params: Mapping[str, Any], inputs: Sequence[Tensor | None]
    ) -> Produced:
        """See :class:`Backend`."""
        import torch

        stem = _stem(type_name, inputs)
        operation = self.module.Operation(self._param(stem, params))
        names = _tensor_names(stem, params)
        given = []
        for index in range(max(operation.input_num, len(inputs))):
            tensor = inputs[index] if index < len(inputs) else None
            name = names[index] if index < len(names) else ""
            given.append(self._placed(torch.empty(0) if tensor is None else tensor, name))
        outputs = operation.forward(given)
        return Produced(
            {index: tensor.cpu() for index, tensor in enumerate(outputs)},
            {index: tensor.cpu() for index, tensor in enumerate(given) if tensor.numel()},
            "the rerun did not make it",
        )

    def _placed(self, tensor: Tensor, name: str) -> Tensor:
        if name in _HOST_TENSORS:
            return tensor.clone()
        return self.to_device(tensor.clone())

    def _param(self, stem: str, params: Mapping[str, Any]) -> Any:  # a class of the module
        from ait_llm.opcheck.golden import UnverifiableError

        made = getattr(self.module, f"{stem}Param", None)
        if made is None:
            raise UnverifiableError(f"{self.name} has no {stem}Param")
        param = made()
        _fill(param, params)
        return param


def _stem(type_name: str, inputs: Sequence[Tensor | None]) -> str:
    import torch

    stem = type_name.removesuffix("Operation")
    if stem == "RmsNorm" and len(inputs) == 4:
        strides = [tensor is not None and tensor.dtype == torch.int64 for tensor in inputs[2:]]
        return _STRIDED if all(strides) else stem
    return stem


def _fill(param: Any, values: Mapping[str, Any]) -> None:
    """Set the fields of a parameter object from printed JSON; keys that it lacks are no fields."""
    for key, value in values.items():
        name = key if hasattr(param, key) else _snake(key)
        if not hasattr(param, name):
            continue
        current = getattr(param, name)
        if isinstance(value, Mapping):
            _fill(current, value)
        elif hasattr(type(current), "__members__"):  # an enumeration, of Python or pybind11
            setattr(param, name, type(current)(value))
        else:
            setattr(param, name, value)


def _snake(key: str) -> str:
    """``transposeA`` as ``transpose_a``."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", key).lower()


def _tensor_names(stem: str, params: Mapping[str, Any]) -> Sequence[str]:
    """Names of the inputs, of which those on the host are known; () of an unknown operator."""
    from ait_llm.hostatb.operators import operator_specs
    from ait_llm.hostatb.params import param_types

    if f"{stem}Operation" not in operator_specs:
        return ()
    param = param_types.get(f"{stem}Param")()  # with the defaults of what was not printed
    _fill(param, params)
    return operator_specs.get(f"{stem}Operation").tensor_names(param.entries(False))[0]


def choose_backend(device: int) -> Backend:
    """``torch_atb`` where an NPU is there, hostatb elsewhere.

    Args:
        device: number of the NPU.
    """
    if all(importlib.util.find_spec(name) for name in ("torch_npu", "torch_atb")):
        npu = importlib.import_module("torch_npu").npu
        if npu.is_available():
            npu.set_device(device)
            module = importlib.import_module("torch_atb")
            return AtbBackend("torch_atb", module, lambda tensor: tensor.to(f"npu:{device}"))
    return AtbBackend("hostatb", importlib.import_module("ait_llm.hostatb"), lambda tensor: tensor)
