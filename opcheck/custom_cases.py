"""From one recorded operator of another library to its golden operator, by its schema.

What such operators write to their arguments is in no output of theirs. A capture of operators has
it all the same: whoever reads that memory next recorded it. It is the operator's work if the
memory has been written once since, which the capture counted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.opcheck.case import Case, NoCase

if TYPE_CHECKING:
    import torch

    from ait_llm.opcheck.golden import Arithmetic, GoldenOp, Params, Result
    from ait_llm.opcheck.golden.custom import Signature

_INPUT, _OUTPUT = "input_", "output"
_OVERLOAD = re.compile(r"(\w+)\.(\w+)\.\w+")
# They find the cache by the name of a layer, which is no tensor.
_BY_LAYER = re.compile(r"vllm\.unified_\w+\.\w+")
_Region = tuple[int, tuple[tuple[int, int], ...]]


def registered(type_name: str) -> GoldenOp | None:
    """The golden operator with a schema for ``_C.rms_norm.default``; None without one.

    Registered ones are known as ``_C::rms_norm``; users' own come first.
    """
    from ait_llm.opcheck.golden import golden_ops
    from ait_llm.opcheck.golden.vllm_operators import engine_operator

    match = _OVERLOAD.fullmatch(type_name)
    if match is None or match[1] in ("aten", "prims"):
        return None
    name = f"{match[1]}::{match[2]}"
    found = golden_ops.get(name) if name in golden_ops else engine_operator(name)
    return found if found is not None and found.schema else None


def why_unknown(type_name: str) -> str:
    """Why what an operator makes does not follow from its arguments; empty where it may."""
    return "work on a cache that no argument names" if _BY_LAYER.fullmatch(type_name) else ""


def with_written(operations: Sequence[Operation]) -> list[Operation]:
    """The same; operators that are known to write get what they wrote, as far as it was read.

    Args:
        operations: all of a capture, in order.
    """
    if not any(registered(operation.type) for operation in operations):
        return list(operations)
    versions: dict[tuple[object, ...], list[tuple[int, Tensor]]] = {}
    for order, operation in enumerate(operations):
        for tensor in operation.inputs:
            if tensor.identity is not None:
                key = (operation.device, operation.pid, operation.step, tensor.identity.storage)
                versions.setdefault(key, []).append((order, tensor))
    return [_completed(operation, order, versions) for order, operation in enumerate(operations)]


def _completed(
    operation: Operation,
    order: int,
    versions: Mapping[tuple[object, ...], Sequence[tuple[int, Tensor]]],
) -> Operation:
    golden = registered(operation.type)
    known = None if golden is None else _signature(golden)
    if known is None:
        return operation
    written = {one.name for one in known.arguments if one.is_written}
    found = []
    for tensor in operation.inputs:
        identity = tensor.identity
        if identity is None or known.named(tensor.stem.removeprefix(_INPUT)) not in written:
            continue
        key = (operation.device, operation.pid, operation.step, identity.storage)
        for place, later in versions.get(key, ()):
            assert later.identity is not None
            if (
                place > order
                and later.identity.version == identity.version + 1
                and later.dtype is tensor.dtype
                and _region(later) == _region(tensor)
            ):
                found.append(replace(later, role="in", phase="after", stem=tensor.stem))
                break
    return replace(operation, tensors=(*operation.tensors, *found)) if found else operation


def _region(tensor: Tensor) -> _Region:
    """Where the elements lie, in order, however they are divided into dims."""
    assert tensor.identity is not None
    merged: list[tuple[int, int]] = []
    for size, stride in zip(tensor.shape, tensor.identity.strides, strict=False):
        if size == 1:
            continue
        if merged and merged[-1][1] == size * stride:
            merged[-1] = (merged[-1][0] * size, stride)
        else:
            merged.append((size, stride))
    return tensor.identity.offset, tuple(merged)


def custom_case(operation: Operation, golden: GoldenOp) -> Case | NoCase:
    """How an operator of another library is computed again.

    Args:
        operation: it, completed by :func:`with_written`.
        golden: with a schema.
    """
    from ait_llm.opcheck.aten_cases import aten_inputs, aten_params
    from ait_llm.opcheck.golden.aten import TENSORS
    from ait_llm.opcheck.module_cases import not_captured

    known = _signature(golden)
    recorded = aten_params(operation)
    places = [str(stem).removeprefix(_INPUT) for stem in recorded.pop(TENSORS)]
    plain = {
        str(known and known.named(name.removeprefix(_INPUT))): value
        for name, value in recorded.items()
        if name.startswith(_INPUT)
    }
    names = [None if known is None else known.named(place) for place in places]
    if known is None or not _fits(known, names, plain):
        return NoCase("have a golden operator for other arguments than they were called with")
    order = [one.name for one in known.tensors]
    params = known.plain(plain)
    written = [one.name for one in known.tensors if one.is_written and one.name in names]
    after = {
        known.named(tensor.stem.removeprefix(_INPUT)): tensor
        for tensor in operation.tensors
        if tensor.role == "in" and tensor.phase == "after"
    }
    returned = [one for one in operation.outputs if one.stem.startswith(_OUTPUT)]
    results: list[Tensor | None] = [*returned, *(after.get(name) for name in written)]
    seen = [place for place, one in enumerate(results) if one is not None]
    if len(returned) != known.returns or not seen:
        return NoCase("write to memory that nothing reads while the capture can tell")

    def read() -> list[torch.Tensor | None]:
        by_name = dict(zip(names, aten_inputs(operation), strict=True))
        return [None if name in golden.fills else by_name.get(name) for name in order]

    places_written = [order.index(name) for name in written]
    return Case(
        _with_results(golden, params, places_written, seen),
        params,
        read,
        lambda: {number: one for number, place in enumerate(seen) if (one := results[place])},
        not_captured(operation),
    )


def _signature(golden: GoldenOp) -> Signature | None:
    from ait_llm.opcheck.golden.custom import signature

    try:
        return signature(golden.schema)
    except ValueError:
        return None


def _fits(known: Signature, tensors: Sequence[str | None], plain: Mapping[str, Any]) -> bool:
    """True if every recorded argument is one of the schema, of its kind, and none is missing."""
    of_tensors = {one.name for one in known.tensors}
    absent = {name for name, value in plain.items() if value is None}
    others = {one.name for one in known.arguments} - of_tensors
    return (
        set(tensors) <= of_tensors
        and len(set(tensors)) == len(tensors)
        and set(plain) - absent <= others
        and absent <= of_tensors | others
        and all(value is not None for value in known.plain(plain).values())
    )


def _with_results(
    golden: GoldenOp, params: Params, written: Sequence[int], seen: Sequence[int]
) -> GoldenOp:
    """The same, with what is written behind what is returned; results that nobody saw left out."""
    from ait_llm.opcheck.golden.functions import golden_function
    from ait_llm.opcheck.golden.modules.truncated import CUTTING, truncates

    if golden.steps is not None:
        steps = golden.steps(params)

        def found(inputs: Sequence[torch.Tensor | None]) -> list[torch.Tensor]:
            made = steps(inputs)
            return [made[one] for one in seen]

        accepts = truncates(found) if golden.name in CUTTING else None
        return golden_function(golden.name, found, accepts=accepts)
    compute = golden.compute

    def run(inputs: Sequence[torch.Tensor | None], given: Params, how: Arithmetic) -> Result:
        found = compute(inputs, given, how)
        whole = [*found.outputs, *(found.updated_inputs[place] for place in written)]
        undefined = {
            number: found.undefined[one]
            for number, one in enumerate(seen)
            if one in found.undefined
        }
        return replace(
            found,
            outputs=tuple(whole[one] for one in seen),
            updated_inputs={},
            undefined=undefined,
            dtypes=(),
        )

    return replace(golden, compute=run, rounds_last=False)
