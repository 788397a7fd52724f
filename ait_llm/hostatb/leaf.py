"""What a leaf operator of the runtime does: golden operators behind the library's kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from ait_llm.core import FORMAT_ND, TensorDesc
from ait_llm.hostatb.acceptance import Gate
from ait_llm.hostatb.exchange import in_group
from ait_llm.hostatb.faults import KernelCall
from ait_llm.hostatb.injection import active_faults
from ait_llm.hostatb.native_types import NativeTensor
from ait_llm.hostatb.site import Site
from ait_llm.hostatb.spec import Kernel, OperatorSpec, Plan
from ait_llm.hostatb.tensors import has_hidden_blocks, matrix_view, torch_view
from ait_llm.opcheck.golden.base import DEVICE, GoldenOp, Result, golden_ops


class OperatorLeaf:
    """One operator with fixed parameters.

    Args:
        spec: how the library presents the operator.
        param: its parameters, with those that are never printed.

    Attributes:
        site: where in which top-level operation this is; known once that runs.

    Raises:
        UnknownNameError: no golden operator computes it.
        RefusedError: the library refuses the parameters.
    """

    def __init__(self, spec: OperatorSpec, param: Mapping[str, Any]) -> None:
        self._gate = Gate(spec.name, param, len(spec.tensor_names(param)[0]))
        self._accepted: set[tuple[tuple[TensorDesc, ...], tuple[TensorDesc, ...]]] = set()
        self.spec = spec
        self.param = param
        self.site = Site(spec.name)
        self._golden = golden_ops.get(spec.name)
        self._kernels: list[tuple[Kernel, GoldenOp]] = []
        self._plans: dict[tuple[tuple[TensorDesc, ...], ...], Plan] = {}
        self._shapes: dict[tuple[TensorDesc, ...], tuple[TensorDesc, ...]] = {}
        self._given: dict[tuple[TensorDesc, ...], tuple[TensorDesc, ...]] = {}

    def infer_shape(self, inputs: Sequence[TensorDesc]) -> tuple[TensorDesc, ...]:
        """Output descriptions; see :class:`GoldenOp`."""
        key = tuple(inputs)
        found = self._shapes.get(key)
        if found is None:
            self._gate.check_inputs(key)
            found = self._shapes[key] = self._golden.infer_shape(key, self.param)
        given = self._given.pop(key, None)
        if given is None:
            return found
        free = self._gate.free
        return tuple(given[index] if index in free else desc for index, desc in enumerate(found))

    def accept(self, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc]) -> None:
        """Refuse tensors at Setup that the library refuses there."""
        key = (tuple(inputs), tuple(outputs))
        if key not in self._accepted:
            self._gate.check_setup(*key, lambda: self.infer_shape(inputs))
            self._accepted.add(key)
        if self._gate.free:
            self._given[key[0]] = key[1]  # the runtime infers shapes again, for this Setup

    def plan(self, inputs: Sequence[TensorDesc], outputs: Sequence[TensorDesc]) -> Plan:
        """Kernels for these tensors."""
        key = (tuple(inputs), tuple(outputs))
        plan = self._plans.get(key)
        if plan is None:
            plan = self._plans[key] = self.spec.plan(self.param, *key)
        self._kernels = [
            (kernel, in_group(golden_ops.get(kernel.golden))) for kernel in plan.kernels
        ]
        return plan

    def run(
        self, kernel: int, inputs: Sequence[NativeTensor], outputs: Sequence[NativeTensor]
    ) -> None:
        """Compute one kernel and write its results into the tensors' memory."""
        chosen, golden = self._kernels[kernel]
        tensors = [torch_view(tensor) for tensor in inputs]
        seen = _reshaped([matrix_view(tensor) for tensor in inputs], chosen.input_shapes)
        faults = active_faults()
        if faults:
            formats = [_format_seen(tensor.desc) for tensor in inputs]
            call = KernelCall(self.site, self.spec, golden, seen, formats, chosen.golden_param)
            result = faults.compute(call)
        else:
            result = golden.compute(seen, chosen.golden_param, DEVICE)
        _store(result, tensors, inputs, outputs)


def _format_seen(desc: TensorDesc) -> int:
    """The format in which a kernel's definition gets a tensor."""
    return FORMAT_ND if has_hidden_blocks(desc) else desc.format


def _reshaped(
    tensors: list[Tensor | None], shapes: Sequence[tuple[int, ...] | None]
) -> list[Tensor | None]:
    if not shapes:
        return tensors
    return [
        tensor if tensor is None or shape is None else tensor.view(shape)
        for tensor, shape in zip(tensors, shapes, strict=True)
    ]


def _store(
    result: Result,
    tensors: Sequence[Tensor | None],
    inputs: Sequence[NativeTensor],
    outputs: Sequence[NativeTensor],
) -> None:
    written = set()
    for target, value in zip(outputs, result.outputs, strict=True):
        view = torch_view(target)
        if view is not None and view.numel() == value.numel():  # else an output of any shape
            view.copy_(value.view(view.shape))
            written.add(target.pointer)
    for index, value in result.updated_inputs.items():
        updated = tensors[index]
        if updated is not None and inputs[index].pointer not in written:
            updated.copy_(value.view(updated.shape))
