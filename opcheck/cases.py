"""From one dumped operation to its golden operator: inputs, parameters, and what is unknown.

Everything that evaluates dumped operations starts here, so that the rules about absent inputs,
in-place operators and phases exist once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from ait_llm.core import FORMAT_FRACTAL_NZ, DType
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.formats import to_torch
from ait_llm.formats.layout import nz_c0, nz_storage_shape
from ait_llm.opcheck.api.cases import api_case
from ait_llm.opcheck.aten_cases import aten_case, is_aten
from ait_llm.opcheck.case import Case, NoCase
from ait_llm.opcheck.custom_cases import custom_case, registered, why_unknown
from ait_llm.opcheck.declared import as_declared
from ait_llm.opcheck.fx_cases import fx_case
from ait_llm.opcheck.ge_cases import ge_case, is_engine_type
from ait_llm.opcheck.module_cases import module_case
from ait_llm.opcheck.torch_collectives import is_torch_collective, torch_collective_case

if TYPE_CHECKING:
    import torch

    from ait_llm.opcheck.golden import Arithmetic, GoldenOp, Result

# They overwrite an input with values that only depend on the other inputs, so that doing it once
# more on the state after changes nothing. All other in-place operators need the state before.
IDEMPOTENT = frozenset(
    {
        "KvCacheOperation",
        "MlaPreprocessOperation",
        "NormRopeReshapeOperation",
        "PagedCacheLoadOperation",
        "ReshapeAndCacheOperation",
        "ReshapeAndCacheOmniOperation",
        "ReshapeAndCacheWithStrideOperation",
        "SelfAttentionOperation",
        "SetValueOperation",
    }
)
_NZ_DIMS = 4  # storage dims of a batch of matrices
# Dumped parameters and shapes come from another library, of any version.
REFUSALS = (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError)


def case_of(operation: Operation, *, whole: bool = False) -> Case | NoCase:
    """How a dumped operation is computed again, whatever captured it, as users declared.

    Args:
        operation: what was dumped.
        whole: as :func:`module_case` takes it.

    This is the one place that knows the kinds of operations: those with a registered golden
    operator, the acceleration library's among them, operators of torch, nodes of compiled graphs,
    calls of functions and modules.
    """
    found = _case_of(operation, whole=whole)
    if isinstance(found, NoCase):
        return found
    return replace(found, golden=as_declared(found.golden, operation.type))


def _case_of(operation: Operation, *, whole: bool) -> Case | NoCase:
    if operation.engine is not None or is_engine_type(operation):
        return ge_case(operation)
    if operation.run is not None:
        return fx_case(operation)
    golden = library_operator(operation.type)
    if is_torch_collective(operation.type):
        return torch_collective_case(operation)
    if is_aten(operation.type):
        if operation.facts.in_graph:
            return NoCase("ran in compiled graphs, whose kernels keep more digits than are saved")
        if golden is None and (reason := why_unknown(operation.type)):
            return NoCase(reason)
        custom = registered(operation.type) if golden is None else None
        return aten_case(operation, golden) if custom is None else custom_case(operation, custom)
    if operation.api_name:
        return api_case(operation)
    if golden is None:
        return module_case(operation, whole=whole)
    return _library_case(operation, golden)


def library_operator(type_name: str) -> GoldenOp | None:
    """The registered golden operator of a type: the acceleration library's, and users' own."""
    from ait_llm.opcheck.golden import golden_ops

    return golden_ops.get(type_name) if type_name in golden_ops else None


def golden_of(operation: Operation, *, whole: bool = False) -> GoldenOp | None:
    """The golden operator of an operation, None if there is none; see :func:`case_of`."""
    case = case_of(operation, whole=whole)
    return case.golden if isinstance(case, Case) else None


def inputs_of(operation: Operation) -> list[torch.Tensor | None]:
    """An operation's inputs in their order; None for absent optional ones.

    Raises:
        FormatError: values were not saved, or a file is damaged.
        UnverifiableError: a parameter of the model was not saved.
    """
    case = case_of(operation, whole=True)
    return case.read() if isinstance(case, Case) else values_by_index(operation.inputs)


def params_of(operation: Operation) -> Mapping[str, Any]:
    """An operation's parameters as its golden operator takes them."""
    case = case_of(operation, whole=True)
    return case.params if isinstance(case, Case) else operation.params


def outputs_of(operation: Operation) -> dict[int, torch.Tensor]:
    """An operation's outputs by index.

    Raises:
        FormatError: values were not saved, or a file is damaged.
    """
    case = case_of(operation, whole=True)
    return results_of(case) if isinstance(case, Case) else {}


def saved_outputs(operation: Operation) -> Mapping[int, Tensor]:
    """The records of an operation's outputs by the index that its golden operator gives them."""
    case = case_of(operation, whole=True)
    return case.outputs() if isinstance(case, Case) else {}


def results_of(case: Case) -> dict[int, torch.Tensor]:
    """The dumped results of a case, by the golden operator's numbers.

    Raises:
        FormatError: values were not saved, or a file is damaged.
    """
    return {index: values_of(tensor) for index, tensor in case.outputs().items()}


def _library_case(operation: Operation, golden: GoldenOp) -> Case:
    def outputs() -> dict[int, Tensor]:
        return {
            tensor.index: tensor
            for tensor in operation.outputs
            if tensor.dtype is not DType.UNDEFINED  # an optional output that was not asked for
        }

    return Case(golden, operation.params, partial(values_by_index, operation.inputs), outputs)


def values_by_index(tensors: Sequence[Tensor]) -> list[torch.Tensor | None]:
    """The values of tensors at their places; None where there is no tensor or no element.

    Raises:
        FormatError: as :func:`inputs_of`.
    """
    found = {tensor.index: tensor for tensor in tensors}
    return [
        _values(found[index]) if index in found else None
        for index in range(max(found, default=-1) + 1)
    ]


def _values(tensor: Tensor) -> torch.Tensor | None:
    return values_of(tensor) if is_filled(tensor) else None


def is_filled(tensor: Tensor) -> bool:
    """True for a tensor with elements; ATB describes an absent optional one by no dims."""
    return bool(tensor.shape) and 0 not in tensor.shape


def values_of(tensor: Tensor) -> torch.Tensor:
    """The values as a golden operator takes them.

    FRACTAL_NZ stays in its storage dims. A weight that a framework cast in place has the dims of
    the matrix in its header and blocks in its data; it becomes that matrix. Two halves as one
    number (complex32) become complex64, in which they are compared.

    Raises:
        FormatError: as :func:`inputs_of`.
        UnverifiableError: of blocks only as many elements were saved as the matrix has.
    """
    if 0 in tensor.shape:  # there is no data, and nothing is missing
        return to_torch(np.empty(tensor.shape, tensor.dtype.numpy_type or np.float32), tensor.dtype)
    if tensor.format == FORMAT_FRACTAL_NZ and len(tensor.shape) < _NZ_DIMS:
        _require_whole_blocks(tensor)
        return to_torch(tensor.nd(), tensor.dtype)
    found = tensor.torch()
    if tensor.dtype is not DType.COMPLEX32:
        return found
    import torch

    return found.to(torch.complex64)


def _require_whole_blocks(tensor: Tensor) -> None:
    """The library counts the elements of the matrix, and so saves the start of padded blocks."""
    from ait_llm.opcheck.golden import UnverifiableError

    stored = tensor.numpy(mmap=True).size
    shape = list(tensor.shape)
    blocks = nz_storage_shape(shape if len(shape) > 1 else [1, *shape], nz_c0(tensor.dtype))
    if stored == prod(shape) < prod(blocks):
        raise UnverifiableError(f"{tensor.name} {shape}: the padding of its blocks was not saved")


def evaluate(
    golden: GoldenOp,
    inputs: Sequence[torch.Tensor | None],
    params: Mapping[str, Any],
    arithmetic: Arithmetic | None = None,
) -> Result:
    """What a golden operator makes of inputs, without gradients; ``GOLDEN`` unless given."""
    import torch

    from ait_llm.opcheck.golden import GOLDEN

    with torch.no_grad():
        return golden.compute(inputs, params, arithmetic or GOLDEN)


def needs_state_before(operation: Operation, changes_inputs: bool) -> bool:
    """True where the inputs were overwritten before they were saved, and that matters."""
    return changes_inputs and operation.type not in IDEMPOTENT and "before" not in operation.phases


def first_line(error: Exception) -> str:
    """What an exception says, without what follows its first line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
