"""Running a dumped operator again: on an NPU through ``torch_atb``, elsewhere through hostatb."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from ait_llm.judge.outputs import Produced

if TYPE_CHECKING:
    from torch import Tensor

# The library reads these from host memory: on an NPU they must be CPU tensors of int32.
_HOST_TENSORS = frozenset(
    {"seqLen", "tokenOffset", "contextLens", "qSeqLen", "kvSeqLen", "batchRunStatus", "layerId"}
)


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
        from ait_llm.opcheck.atb_call import class_stem, forward
        from ait_llm.opcheck.golden import UnverifiableError

        stem = class_stem(type_name, inputs)
        if not hasattr(self.module, f"{stem}Param"):
            raise UnverifiableError(f"{self.name} has no {stem}Param")
        on_host = host_inputs(stem, params)
        outputs, given = forward(self.module, stem, params, inputs, on_host, self.to_device)
        return Produced(
            dict(enumerate(outputs)),
            {index: tensor for index, tensor in enumerate(given) if tensor.numel()},
            "the rerun did not make it",
        )


def host_inputs(stem: str, params: Mapping[str, Any]) -> frozenset[int]:
    """Indices of the inputs that the library reads from host memory; none of unknown operators.

    Args:
        stem: see :func:`ait_llm.opcheck.atb_call.class_stem`.
        params: as the library prints them.
    """
    from ait_llm.hostatb.operators import operator_specs
    from ait_llm.hostatb.params import param_types
    from ait_llm.opcheck.atb_call import fill

    if f"{stem}Operation" not in operator_specs:
        return frozenset()
    param = param_types.get(f"{stem}Param")()  # with the defaults of what was not printed
    fill(param, params)
    names = operator_specs.get(f"{stem}Operation").tensor_names(param.entries(False))[0]
    return frozenset(index for index, name in enumerate(names) if name in _HOST_TENSORS)


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
