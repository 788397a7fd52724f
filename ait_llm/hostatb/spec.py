"""How an operator of the acceleration library is described to the graph runtime.

A golden operator says what is computed; an :class:`OperatorSpec` says how the library presents
it: parameter JSON, tensor names of the operation IR, and the kernels that one execution launches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ait_llm.core import Registry, TensorDesc


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel launch.

    Attributes:
        name: selected kernel class, such as ``PpMatMulF16Kernel``; names the dump directory.
        mki_op: operator name in kernel reports, such as ``MatMulOperation``.
        mki_param: its parameter text in kernel reports (compact JSON, keys sorted).
        inputs, outputs: indices into the operation's tensors: inputs, then outputs, then workspace.
        tiling_size: bytes of host tiling data, a multiple of 32; 0 for none.
        golden: name of the golden operator that computes this kernel.
        golden_param: its parameters, in the JSON names of that operator.
        input_shapes: shapes in which the golden operator sees the inputs, in their order, where
            they differ from the tensors' own; None keeps a tensor's own, () keeps all.
    """

    name: str
    mki_op: str
    mki_param: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    tiling_size: int
    golden: str
    golden_param: Mapping[str, Any] = field(default_factory=dict)
    input_shapes: tuple[tuple[int, ...] | None, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The kernels of one operation, in launch order, and the tensors between them."""

    kernels: tuple[Kernel, ...]
    workspace: tuple[TensorDesc, ...] = ()


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """How the library presents one operator type; ``param`` below is the parameter JSON object.

    ``param`` also holds the fields that the library computes with but never prints.

    Attributes:
        name: operation type, such as ``LinearOperation``.
        tensor_names: input and output names of the IR for a parameter variant.
        plan: kernels for given parameters and tensor descriptions.
        has_param_json: False for the types that print no parameters at all.
        output_aliases: input whose memory each output is, for operators that work in place; None
            for an output with memory of its own, () if every output has.
        updated_inputs: inputs that are overwritten although they are no outputs.
    """

    name: str
    tensor_names: Callable[[Mapping[str, Any]], tuple[tuple[str, ...], tuple[str, ...]]]
    plan: Callable[[Mapping[str, Any], Sequence[TensorDesc], Sequence[TensorDesc]], Plan]
    has_param_json: bool = True
    output_aliases: Callable[[Mapping[str, Any]], tuple[int | None, ...]] = lambda _: ()
    updated_inputs: Callable[[Mapping[str, Any]], tuple[int, ...]] = lambda _: ()


operator_specs: Registry[OperatorSpec] = Registry("operator")
