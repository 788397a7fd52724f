"""Running a dumped operator again: on an NPU through ``torch_atb``, or through a function.

hostatb is no other implementation: its kernels are golden operators, so that what it says of a
dump is what golden says.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from ait_llm.errors import UsageError
from ait_llm.judge.outputs import Produced
from ait_llm.opcheck.plugins import load_module

if TYPE_CHECKING:
    from torch import Tensor

# The library reads these from host memory: on an NPU they must be CPU tensors of int32.
_HOST_TENSORS = frozenset(
    {"seqLen", "tokenOffset", "contextLens", "qSeqLen", "kvSeqLen", "batchRunStatus", "layerId"}
)


class Backend(Protocol):
    """Runs one operator.

    Attributes:
        name: ``torch_atb``, or the function's; ``none`` where there is no other implementation.
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


@dataclass(frozen=True)
class FunctionBackend:
    """Another implementation of operators: Triton, a C++ extension, torch on another device.

    Attributes:
        name: ``MODULE:FUNCTION``.
        function: called as ``function(operator, inputs, params)`` on copies. It returns a tensor or
            several, or writes to its inputs; NotImplemented for what it does not have.
    """

    name: str
    function: Callable[[str, list[Tensor | None], dict[str, Any]], Any]

    def run(
        self, type_name: str, params: Mapping[str, Any], inputs: Sequence[Tensor | None]
    ) -> Produced:
        """See :class:`Backend`."""
        from ait_llm.opcheck.golden import UnverifiableError
        from ait_llm.opcheck.kernel_call import as_laid_out, listed, same_bits

        own = [None if tensor is None else as_laid_out(tensor) for tensor in inputs]
        try:
            made = self.function(type_name, own, dict(params))
        except NotImplementedError:
            made = NotImplemented
        except Exception as error:  # anything can happen in foreign code
            raise UnverifiableError(f"{self.name} fails: {error!r}") from error
        if made is NotImplemented:
            raise UnverifiableError(f"{self.name} does not have {type_name}")
        outputs = {i: t.detach().cpu() for i, t in enumerate(listed(made)) if t is not None}
        after = {i: t.cpu() for i, t in enumerate(own) if t is not None}
        if not outputs and all(
            before is None or same_bits(before, after[place]) for place, before in enumerate(inputs)
        ):
            raise UnverifiableError(f"{self.name} makes nothing of {type_name}")
        return Produced(outputs, after, "the rerun did not make it")


@dataclass(frozen=True)
class NoBackend:
    """There is nothing that could run an operator again."""

    name: str = "none"

    def run(
        self, type_name: str, params: Mapping[str, Any], inputs: Sequence[Tensor | None]
    ) -> Produced:
        """See :class:`Backend`."""
        from ait_llm.opcheck.golden import UnverifiableError

        raise UnverifiableError(NO_RERUN)


NO_RERUN = "no independent rerun"


def choose_backend(device: int) -> Backend:
    """``torch_atb`` where an NPU is there; elsewhere nothing runs again.

    Args:
        device: number of the NPU.
    """
    if all(importlib.util.find_spec(name) for name in ("torch_npu", "torch_atb")):
        npu = importlib.import_module("torch_npu").npu
        if npu.is_available():
            npu.set_device(device)
            module = importlib.import_module("torch_atb")
            return AtbBackend("torch_atb", module, lambda tensor: tensor.to(f"npu:{device}"))
    return NoBackend()


def function_backend(text: str) -> FunctionBackend:
    """The implementation that ``MODULE:FUNCTION`` or ``FILE.py:FUNCTION`` names.

    Raises:
        UsageError: there is none of that name, or its module fails.
    """
    place, separator, name = text.rpartition(":")
    if not separator or not place or not name:
        raise UsageError(f"--rerun-with {text}: give MODULE:FUNCTION or FILE.py:FUNCTION")
    function = getattr(load_module("--rerun-with", place), name, None)
    if not callable(function):
        raise UsageError(f"--rerun-with {text}: {place} has no function {name}")
    return FunctionBackend(text, function)
