"""From one dumped operator of the graph engine to the golden operator of what it stands for.

The graph before fusion says which of its operators a dumped one computes, with their attributes.
Where there is none, the type of the dumped one says it, as far as that needs no attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ait_llm.core import DType
from ait_llm.dumps.engine_operator import TensorName
from ait_llm.dumps.ge_tensors import address_of
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.errors import FormatError
from ait_llm.opcheck.case import Case, NoCase
from ait_llm.program.digests import digest
from ait_llm.topology.ge_graph import GeOp

if TYPE_CHECKING:
    import torch

_INSERTED = frozenset({"TransData", "Cast"})
_CHOOSE = frozenset({"TopKV2", "ArgMaxV2"})
_MOVES = frozenset(
    {"Cast", "Identity", "TensorMove", "TransData", "Reshape", "Unsqueeze", "Squeeze"}
)
_UNCLEAR = NoCase("are operators of which the graph before fusion does not say what they read")
_NO_GRAPH = NoCase(
    "need attributes that only the graph before fusion has; put dynamo_original_graph_*.txt "
    "beside the dump"
)
_IN_PLACE = NoCase("write to the memory of an input, which was saved after they ran")


def is_engine_type(operation: Operation) -> bool:
    """True for an operator that a graph engine ran, by its type: ``MatMulV2``."""
    return operation.run is not None and operation.launch is None and operation.type.isidentifier()


def ge_case(operation: Operation) -> Case | NoCase:
    """How an operator of the graph engine is computed again."""
    from ait_llm.opcheck.golden.engine import WRITING, Composite, Part, is_defined
    from ait_llm.opcheck.golden.functions import golden_function

    try:
        inputs = {tensor.index: tensor for tensor in operation.inputs}
        outputs = {tensor.index: tensor for tensor in operation.outputs}
        missing = _missing(operation)
    except FormatError as error:
        return NoCase(lost=str(error))
    if not outputs:
        return NoCase("have no output in the dump")
    found = _graph_of(operation, inputs, outputs)
    if isinstance(found, NoCase):
        return found
    parts, names, made, constants, attributes = found
    saved = {name: outputs[index] for index, name in made.items() if index in outputs}
    given = [
        (
            op,
            Part(
                op.type,
                op.attrs if attributes else None,
                _type_of(saved.get((op.name, 0))) or _recorded_type(op),
                _shape_of(saved.get((op.name, 0))),
                op.ports,
            ),
        )
        for op in parts
    ]
    order = sorted(names)
    composite = Composite.of(given, [names[at] for at in order], list(saved), constants)
    if isinstance(composite, str):
        return _NO_GRAPH if not attributes and is_defined(composite) else NoCase()
    if not composite.outputs:
        return NoCase("have no output that their inputs decide")
    types = {op.type for op in parts}
    if not (types <= _MOVES or types <= WRITING) and _is_in_place(inputs, outputs):
        return _IN_PLACE
    kept = [saved[name] for name in composite.outputs]
    accepts, params = None, dict[str, Any]()
    if len(parts) == 1 and parts[0].type in _CHOOSE:
        from ait_llm.opcheck.golden.engine.moves import is_other_choice

        accepts, params = is_other_choice, {**parts[0].attrs, "type": parts[0].type}
    return Case(
        golden_function(operation.type, composite, accepts=accepts),
        params,
        lambda: [inputs[at].torch() for at in order],
        lambda: dict(enumerate(kept)),
        missing,
    )


_Graph = tuple[
    tuple[GeOp, ...], dict[int, TensorName], dict[int, TensorName], Mapping[str, GeOp], bool
]


def _graph_of(
    operation: Operation, inputs: Mapping[int, Tensor], outputs: Mapping[int, Tensor]
) -> _Graph | NoCase:
    """The operators that it computes, names of its inputs and outputs, and constants.

    The last item is false where attributes are unknown.
    """
    engine = operation.engine
    if engine is not None and engine.parts:
        names = {at: name for at, name in enumerate(engine.inputs) if name is not None}
        made = {at: name for at, name in enumerate(engine.outputs) if name is not None}
        if engine.note or any(at not in names for at in inputs) or not made:
            return _UNCLEAR
        known = {at: name for at, name in names.items() if at in inputs}
        return engine.parts, known, made, engine.constants, True
    if engine is not None and operation.type not in _INSERTED:
        return _UNCLEAR
    names = {at: ("", at) for at in inputs}
    order = tuple(sorted(names))
    op = GeOp(
        operation.name, operation.type, tuple(names[at] for at in order), order, (), (), (), {}
    )
    return (op,), names, {at: (op.name, at) for at in outputs}, {}, False


def _missing(operation: Operation) -> str:
    for tensor in operation.tensors:
        if not tensor.has_data and 0 not in tensor.shape:
            return f"{tensor.name} has no values ({tensor.problem})"
    return ""


def _type_of(tensor: Tensor | None) -> torch.dtype | None:
    return None if tensor is None else _in_torch(tensor.dtype)


def _recorded_type(op: GeOp) -> torch.dtype | None:
    """Type of its first result by the graph."""
    dtype = op.outputs[0].dtype if op.outputs else None
    return None if dtype is None else _in_torch(dtype)


def _in_torch(dtype: DType) -> torch.dtype | None:
    import torch

    found = getattr(torch, dtype.torch_name or "", None)
    return found if isinstance(found, torch.dtype) else None


def _shape_of(tensor: Tensor | None) -> tuple[int, ...] | None:
    return None if tensor is None else tuple(tensor.shape)


def _is_in_place(inputs: Mapping[int, Tensor], outputs: Mapping[int, Tensor]) -> bool:
    """True where an output has address and values of an input: they are saved when all is done."""
    written = {address_of(tensor): tensor for tensor in outputs.values()}
    for tensor in inputs.values():
        place = address_of(tensor)
        made = written.get(place) if place else None
        if made is None or (made.dtype, made.shape) != (tensor.dtype, tensor.shape):
            continue
        if (mark := digest(tensor)) is not None and mark == digest(made):
            return True
    return False
