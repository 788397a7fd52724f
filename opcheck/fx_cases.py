"""From one recorded node of an FX graph to the golden operator of the aten operator that it is.

A dump has the positional arguments of a node, numbers as arrays. Keyword arguments and what is
neither tensor nor number are only in the ``graph.json`` of our own captures, which says of those
that are tensors which node made them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.opcheck.case import Case, NoCase
from ait_llm.opcheck.graph_values import empty_value
from ait_llm.opcheck.kernel_cases import kernel_case

if TYPE_CHECKING:
    import torch

    from ait_llm.opcheck.golden.base import GoldenOp, Params

_UNKNOWN = NoCase("have arguments that such dumps do not record")
_ELSEWHERE = NoCase("read a keyword argument of which the dump has no file")
_BY_STRIDES = NoCase("look at memory by strides, which such dumps do not record")
# They decide nothing here, or follow from the type of the result.
_TYPES = frozenset(
    {
        "device",
        "dtype",
        "implicit",
        "layout",
        "memory_format",
        "non_blocking",
        "pin_memory",
        "stable",
    }
)
# Words of which there are few; the result tells which was meant.
_CHOICES: Mapping[str, tuple[Any, ...]] = {
    "approximate": ("none", "tanh"),
    "correction": (1, 0),
    "rounding_mode": (None, "floor", "trunc"),
}
# Almost always one; where they are not, the result tells.
_FACTORS = frozenset({"alpha", "beta"})
_WORD = "INPUT."


def fx_case(operation: Operation) -> Case | NoCase:
    """How a node is computed again."""
    from ait_llm.opcheck.golden.aten import (
        BY_STRIDES,
        TENSORS,
        aten_operator,
        has_statistics,
        why_unchecked,
    )
    from ait_llm.opcheck.golden.aten.calls import find_operator

    if operation.launch is not None and operation.run is not None:
        return kernel_case(operation, operation.launch, operation.run)
    golden, func = aten_operator(operation.type), find_operator(operation.type)
    if golden is None or func is None:
        return NoCase()
    if not operation.outputs:
        return NoCase("return no tensor")
    if reason := why_unchecked(operation.type):
        return NoCase(reason)
    known = operation.run is not None and operation.name in operation.run.nodes
    params: dict[str, Any] = {
        f"input_{name}": value for name, value in operation.definition.items()
    }
    if func._schema.name.partition("::")[2] in BY_STRIDES:
        return _BY_STRIDES
    tensors: dict[str, Tensor | torch.Tensor] = {}
    given = {tensor.stem: tensor for tensor in operation.inputs}
    for place, argument in enumerate(func._schema.arguments):
        kind, name = str(argument.type), argument.name
        if argument.kwarg_only:
            if not known and name in _CHOICES:
                params[f"input_{name}"] = _CHOICES[name][0]
                golden = _with_choice(golden, f"input_{name}", _CHOICES[name][1:])
            elif not known and name not in _TYPES | _FACTORS:
                return _UNKNOWN
            for label, made in _read(operation, name):
                tensor = None if operation.run is None else operation.run.tensors.get(made)
                if tensor is None:
                    return _ELSEWHERE
                tensors[f"{_WORD}{label}"] = tensor
            continue
        own = [stem for stem in given if stem == f"{_WORD}{place}" or _is_item(stem, place)]
        if "Tensor" in kind or (kind == "number" and _is_tensor(given, own)):
            tensors |= {stem: given[stem] for stem in own}
            tensors |= dict(_empty(operation, place, given))
        elif own and (not known or str(place) not in operation.definition):
            params[f"input_{place}"] = _plain(given, own, listed="List" in kind)
        elif not own and not known and "str" in kind:
            return _UNKNOWN
    if not known and any(one.name == "dtype" for one in func._schema.arguments):
        result = operation.outputs[0].dtype.torch_name
        first = next((given[stem].dtype.torch_name for stem in tensors if stem in given), None)
        if result != first:
            params["input_dtype"] = f"torch.{result}"
    params[TENSORS] = [_name(stem) for stem in tensors]
    outputs = {int(tensor.stem.split(".")[1]): tensor for tensor in operation.outputs}
    if has_statistics(operation.type):
        outputs = {0: outputs[0]} if 0 in outputs else {}
    if not known and any(one.name in _FACTORS for one in func._schema.arguments):
        golden = replace(golden, accepts=_is_scaled_sum)
    return Case(
        golden,
        params,
        lambda: [one.torch() if isinstance(one, Tensor) else one for one in tensors.values()],
        lambda: outputs,
    )


def _empty(
    operation: Operation, place: int, given: Mapping[str, Tensor]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors of an argument that have no element, and therefore no file."""
    for label, made in _read(operation, str(place)):
        stem = f"{_WORD}{label.replace('_', '.')}"
        empty = None if operation.run is None else empty_value(operation.run, made)
        if stem not in given and empty is not None:
            yield stem, empty


def _with_choice(golden: GoldenOp, name: str, others: Sequence[Any]) -> GoldenOp:
    """The operator, for which an argument that the dump lacks may be another one as well."""
    before = golden.alternatives

    def alternatives(params: Params) -> tuple[Params, ...]:
        return *before(params), *({**params, name: one} for one in others)

    return replace(golden, alternatives=alternatives)


def _read(operation: Operation, name: str) -> Iterator[tuple[str, tuple[str, int]]]:
    """Values that a keyword argument holds, with their places."""
    node = None if operation.run is None else operation.run.nodes.get(operation.name)
    if node is not None:
        for label, made in zip(node.labels, node.reads, strict=True):
            if label == name or (
                label.startswith(f"{name}_") and label[len(name) + 1 :].isdecimal()
            ):
                yield label, made


def _is_item(stem: str, place: int) -> bool:
    return stem.startswith(f"{_WORD}{place}.")


def _is_tensor(given: Mapping[str, Tensor], stems: Sequence[str]) -> bool:
    return any(given[stem].shape for stem in stems)


def _name(stem: str) -> str:
    """``input_1_2`` for ``INPUT.1.2``."""
    return "input_" + stem.removeprefix(_WORD).replace(".", "_")


def _plain(given: Mapping[str, Tensor], stems: Sequence[str], *, listed: bool) -> Any:
    """A number, or a list of numbers, from the array or arrays that hold it."""
    values = [given[stem].torch().tolist() for stem in stems]
    if len(values) == 1 and stems[0].count(".") == 1:
        return values[0] if not listed or isinstance(values[0], list) else [values[0]]
    return values


def _is_scaled_sum(
    inputs: Sequence[torch.Tensor | None], outputs: Sequence[torch.Tensor], params: Params
) -> bool:
    """True if factors other than one, which the dump does not have, explain a sum.

    ``beta a + alpha b`` or ``beta a + alpha b c``, with factors of few digits.
    """
    import torch

    tensors = [one.double() for one in inputs if one is not None and one.is_floating_point()]
    if len(tensors) not in (2, 3) or len(outputs) != 1 or not outputs[0].is_floating_point():
        return False
    found = outputs[0].double()
    other = tensors[1] if len(tensors) == 2 else tensors[1] @ tensors[2]
    terms = torch.stack([one.expand(found.shape).reshape(-1) for one in (tensors[0], other)], 1)
    factors = [float(one) for one in torch.linalg.lstsq(terms, found.reshape(-1, 1)).solution]
    plain = [_of_few_digits(one) for one in factors]
    near = 4 * torch.finfo(outputs[0].dtype).eps
    wanted = (terms @ torch.tensor(plain, dtype=torch.float64)).reshape(found.shape)
    return plain != [1.0, 1.0] and torch.allclose(wanted, found, rtol=near, atol=near)


def _of_few_digits(value: float) -> float:
    eighths, tenths = round(8 * value) / 8, round(10 * value) / 10
    return eighths if abs(eighths - value) < abs(tenths - value) else tenths
