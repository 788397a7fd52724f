"""From one recorded call of a module to its golden operator."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from ait_llm.core import DType
from ait_llm.dumps.dequantised import dequantised
from ait_llm.dumps.model import Operation, Tensor
from ait_llm.opcheck.case import Case, NoCase

if TYPE_CHECKING:
    import torch

    from ait_llm.opcheck.golden.modules import Compute, Given
    from ait_llm.opcheck.golden.modules.table import Rows

_NUMBERS = re.compile(r"\d+")
_INPUT = "input_"
_IN_GROUPS = "qweight"  # of GPTQ and AutoAWQ
_WITH_CODES = "absmax"  # of bitsandbytes
_BYTE = 8  # bits
_MOST_ELEMENTS = 1 << 29  # of all weights of a module; they take 8 bytes each while it is judged


def module_case(operation: Operation, *, whole: bool = False) -> Case | NoCase:
    """How a module of torch is computed again, if its class and attributes leave no choice.

    Args:
        operation: its call.
        whole: a module that consists of others counts, too, if it is defined as a whole.
    """
    from ait_llm.opcheck.golden.functions import golden_function
    from ait_llm.opcheck.golden.modules import (
        is_whole,
        legal_choice,
        module_function,
        needs_results,
        why_lost,
        why_unknown,
    )
    from ait_llm.opcheck.golden.modules.engines import may_truncate
    from ait_llm.opcheck.golden.modules.paged import PagedAttention, of_known_rows
    from ait_llm.opcheck.golden.modules.quantised import Product, rounded_first
    from ait_llm.opcheck.golden.modules.truncated import truncates
    from ait_llm.opcheck.golden.modules.ways import SeveralWays, in_any_way

    inputs = [tensor for tensor in operation.inputs if tensor.stem.startswith(_INPUT)]
    if operation.is_graph and not (whole and is_whole(operation.type)):
        return NoCase()
    if len(inputs) != len(operation.inputs):
        return NoCase()
    if not operation.outputs:
        return NoCase() if operation.is_graph else NoCase("return no tensor")
    weights, quantised = _weights(operation)
    if any(0 in one.shape for one in weights.values()):
        return NoCase("hold weights that their engine keeps in a form of its own")
    if sum(prod(one.shape) for one in weights.values()) > _MOST_ELEMENTS:
        return NoCase("hold more weights than are computed with again")
    outputs = sorted(operation.outputs, key=lambda tensor: _place(tensor.stem))
    given = _given(operation, inputs, outputs, weights, quantised)
    compute = module_function(given)
    if compute is None:
        return NoCase(why_unknown(given), why_lost(given))
    results = outputs if needs_results(operation.type) else []
    if isinstance(compute, PagedAttention) and not operation.attended:
        return NoCase("read a cache of which the capture does not tell enough")
    cached = _cached(operation)
    names = [*given.inputs, *weights, *(tensor.stem for tensor in results), *cached]
    function = partial(_called, compute, names)
    golden = golden_function(
        operation.type,
        function,
        accepts=truncates(function) if may_truncate(given) else legal_choice(given),
        # A weight of few bits is rounded, or the product before it is scaled.
        roundings=getattr(compute, "roundings", 0),
        short_sums=getattr(compute, "short_sums", 0),
    )
    if isinstance(compute, Product):
        golden = rounded_first(golden, compute, names)
    if isinstance(compute, PagedAttention):
        golden = of_known_rows(golden, compute)
    if isinstance(compute, SeveralWays):
        golden = in_any_way(golden, compute, names)
    tensors = [*inputs, *weights.values(), *results, *cached.values()]
    return Case(
        golden,
        dict(operation.definition),
        lambda: [tensor.torch() for tensor in tensors],
        lambda: dict(enumerate(outputs)),
        not_captured(operation),
    )


def _weights(operation: Operation) -> tuple[dict[str, Tensor], frozenset[str]]:
    """The parameters of a module by their own names, and which were stored in fewer bits.

    What a quantised weight consists of gives way to the weight as real numbers; integers in groups
    and with codes stay: the code that multiplies with them knows what else they may mean.
    """
    own = dict(operation.parameters)
    real = dequantised(own) if any(_is_stored(one) for one in own.values()) else {}
    real = {
        name: one
        for name, one in real.items()
        if not one.parts[0].endswith(_IN_GROUPS) and not one.parts[1].endswith(_WITH_CODES)
    }
    for name, found in real.items():
        for part in found.parts:
            own.pop(part, None)
        own[name] = found.tensor
    names = frozenset(name.rpartition(".")[2] for name in real)
    return {name.rpartition(".")[2]: one for name, one in own.items()}, names


def _cached(operation: Operation) -> dict[str, Tensor]:
    """Arguments of the earlier calls whose keys and values are read: ``0.1`` is 1 of the first."""
    return {
        f"{place}.{tensor.stem.removeprefix(_INPUT)}": tensor
        for place, earlier in enumerate(_earlier(operation))
        for tensor in earlier.inputs
    }


def _earlier(operation: Operation) -> list[Operation]:
    """The earlier calls that are read, each once."""
    every = [rows.operation for one in operation.attended for rows in one.before]
    return list({id(each): each for each in every}.values())


def _attended(operation: Operation) -> tuple[Rows, ...]:
    places = {id(each): place for place, each in enumerate(_earlier(operation))}
    return tuple(
        (
            one.row,
            one.count,
            tuple((places[id(rows.operation)], rows.row, rows.count) for rows in one.before),
        )
        for one in operation.attended
    )


def _is_stored(weight: Tensor) -> bool:
    """True for what may be a part of a quantised weight."""
    return weight.dtype.bits <= _BYTE or weight.dtype is DType.INT32


def not_captured(operation: Operation) -> str:
    """Why the inputs of an operation are not all there; empty where they are."""
    for value in operation.not_captured:
        name = str(value.get("name", ""))
        if name.startswith("input"):
            return f"{name} was not captured: {value.get('reason', 'the ledger gives no reason')}"
    return ""


def _given(
    operation: Operation,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    weights: Mapping[str, Tensor],
    quantised: frozenset[str],
) -> Given:
    from ait_llm.opcheck.golden.modules import Given

    return Given(
        operation.type,
        operation.definition,
        tuple(tensor.stem.removeprefix(_INPUT) for tensor in inputs),
        {name: tensor.shape for name, tensor in weights.items()},
        tuple(tensor.shape for tensor in outputs),
        quantised,
        operation.members,
        _attended(operation),
        {tensor.stem.removeprefix(_INPUT): str(tensor.dtype.torch_name) for tensor in inputs},
    )


def _called(compute: Compute, names: Sequence[str], tensors: Sequence[torch.Tensor | None]) -> Any:
    given = zip(names, tensors, strict=True)
    return compute({name: tensor for name, tensor in given if tensor is not None})


def _place(stem: str) -> tuple[int, ...]:
    return tuple(map(int, _NUMBERS.findall(stem)))
