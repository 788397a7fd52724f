"""A case of the vendor's through hostatb: the stage at which it ends, and its status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from math import prod
from typing import Any

import torch
from torch import Tensor
from vendor.cases import OK, Case, TensorCase
from vendor.generator import Generator, NotRunError, limit

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import OperationError
from ait_llm.hostatb.acceptance.table import FORMATS
from ait_llm.hostatb.context import current_context
from ait_llm.hostatb.native import NativeStatusError
from ait_llm.hostatb.native_types import NativeTensor, Status
from ait_llm.hostatb.operation import Operation
from ait_llm.hostatb.params import param_types, train  # noqa: F401 the latter enters its own
from ait_llm.hostatb.params.base import Struct, camel_case
from ait_llm.hostatb.params.fields import FieldTypeError
from ait_llm.opcheck.golden import RefusedError
from ait_llm.opcheck.golden.support import desc_of, torch_dtype

CHIP = "Ascend910B"
MOST_ELEMENTS = 1 << 28
SECONDS = 60
LAST = "E"
_NO_MEMORY = "meta"
_INFERRED = "Generalization"  # cases of this kind take outputs as they are inferred
_RESERVED, _RANKS = "rsv", "rankSize"


@dataclass(frozen=True, slots=True)
class End:
    """How far a case came.

    Attributes:
        stage: C, I, S or E.
        status: name of the status, as the vendor's tables have it.
        text: what was said.
    """

    stage: str
    status: str
    text: str = ""

    @property
    def where(self) -> tuple[str, str]:
        """Stage and status."""
        return self.stage, self.status

    def __str__(self) -> str:
        return f"{self.stage}:{self.status}"


def expected(case: Case) -> End:
    """What the table says; a case that goes through ends after its last stage."""
    return End(case.stage or LAST, case.status)


def shortened(end: End) -> str:
    """Stage and status, and the start of what was said."""
    text = " ".join(end.text.split())[:120]
    return f"{end} ({text})" if text else str(end)


def end_of(
    case: Case, generator: Generator | None, last: str = LAST, *, inferred: bool = False
) -> End:
    """Take a case through hostatb, to its stage in the table or another one at most.

    Args:
        case: it.
        generator: makes the inputs; without it shapes are those of the table, without memory.
        last: the stage after which it ends.
        inferred: outputs are not those of the table, but as they are inferred.
    """
    try:
        operation = Operation(param_of(case.operator, params_of(case)))
    except FieldTypeError as error:
        if case.stage != "C":
            raise NotRunError("its parameters cannot be written with torch_atb") from error
        return End("C", _name(Status.INVALID_PARAM), str(error))
    except OperationError as error:
        return _refused("C", error)
    if case.stage == "C":
        return End("C", OK)
    tensors = _tensors(case, generator)
    inputs = [
        desc_of(tensor, _layout(each)) for tensor, each in zip(tensors, case.inputs, strict=True)
    ]
    try:
        found = operation._native.infer_shape([_as_passed(desc) for desc in inputs])
    except OperationError as error:
        return _refused("I", error)
    if case.stage == "I":
        return End("I", OK)
    natives = [_native(desc, tensor) for desc, tensor in zip(inputs, tensors, strict=True)]
    place = "cpu" if generator else _NO_MEMORY
    descs = [
        TensorDesc(DType.from_label(each.dtype), each.shape, _layout(each)) for each in case.outputs
    ]
    if inferred or case.fields["TestType"] == _INFERRED:
        descs = list(found)
    outputs = [
        torch.zeros(desc.shape, dtype=torch_dtype(desc.dtype), device=place) for desc in descs
    ]
    given = [_native(desc, tensor) for desc, tensor in zip(descs, outputs, strict=True)]
    if not outputs and found:  # tables do not list what is updated in place
        given = [natives[alias] for alias in operation.output_aliases if alias is not None]
    context = current_context()
    try:
        operation._native.setup(context, natives, given)
    except OperationError as error:
        return _refused("S", error)
    if "S" in (case.stage, last):
        return End("S", OK)
    try:
        with limit(SECONDS, "hostatb"):
            operation._native.execute(context, natives, given)
    except OperationError as error:
        return _refused("E", error)
    return End("E", OK)


def params_of(case: Case) -> dict[str, Any]:
    """The parameters of a case; of collectives those of the first rank.

    The vendor's tool starts a process for each rank and gives each its number.
    """
    params = case.params
    if any(any(part.get(_RESERVED, ())) for part in (params, *_structs(params))):
        raise NotRunError("reserved bytes are not in the parameters of torch_atb")
    return {**params, "rank": 0} if _RANKS in params else params


def param_of(operator: str, params: Mapping[str, Any]) -> Any:
    """Parameters in the words of the cases as an object of hostatb's."""
    name = operator.removesuffix("Operation") + "Param"
    if name not in param_types:
        raise NotRunError("hostatb has no such operator")
    return _filled(param_types.get(name)(), params)


def _structs(params: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [value for value in params.values() if isinstance(value, Mapping)]


def _filled(target: Struct, params: Mapping[str, Any]) -> Struct:
    """The vendor's cases name fields as the library does; some are printed with another name."""
    known: dict[str, str] = {}
    for item in fields(target):  # type: ignore[arg-type]  # all are dataclasses
        known |= dict.fromkeys((item.metadata.get("key"), camel_case(item.name)), item.name)
    for key, value in params.items():
        field = known.get(key.strip())  # the vendor's tool takes all spaces out of its tables
        if field is None:  # the vendor's tool takes the keys that it knows
            continue
        inner = getattr(target, field)
        setattr(target, field, _filled(inner, value) if isinstance(inner, Struct) else value)
    return target


def _refused(stage: str, error: Exception) -> End:
    text = str(error)
    if isinstance(error, NativeStatusError):
        return End(stage, _name(error.status), text)
    if isinstance(error, RefusedError):
        return End(stage, _name(int(error.status)), text)
    return End(stage, _name(Status.INTERNAL_ERROR), text)


def _name(status: int) -> str:
    return f"ERROR_{Status(status).name}"


def _layout(each: TensorCase) -> int:
    """The vendor's tool says ND where a tensor is in its usual order."""
    return FORMATS["nd" if each.layout == "nchw" else each.layout]


def _as_passed(desc: TensorDesc) -> TensorDesc:
    """The vendor's tool passes a tensor without memory, hence an empty one, without dimensions."""
    return replace(desc, shape=()) if 0 in desc.shape else desc


def _torch_dtype(each: TensorCase) -> torch.dtype:
    return torch_dtype(DType.from_label(each.dtype))


def _tensors(case: Case, generator: Generator | None) -> list[Tensor]:
    if generator is None:  # nothing is computed: no memory is needed
        return [
            torch.empty(each.shape, dtype=_torch_dtype(each), device=_NO_MEMORY)
            for each in case.inputs
        ]
    if sum(prod(each.shape) for each in case.inputs + case.outputs) > MOST_ELEMENTS:
        raise NotRunError("too large")
    try:
        made = generator.inputs(case, CHIP, SECONDS)
    except NotRunError:
        raise
    except Exception as error:
        raise NotRunError(f"the generator fails: {type(error).__name__}: {error}") from error
    return [tensor.contiguous() for tensor in made]


def _native(desc: TensorDesc, tensor: Tensor) -> NativeTensor:
    size = tensor.numel() * tensor.element_size()
    placed = size and tensor.device.type != _NO_MEMORY
    return NativeTensor(desc, tensor.data_ptr() if placed else 0, size)
