"""What programs are given and give back beside tokens, by the names of models and their exporters.

``torch.onnx`` and ``optimum`` call caches ``past_key_values.0.key`` and ``present.0.key``, what
``transformers`` hands a model is ``past_key_values_0_key``: layer, and which of the two. Positions
and masks have one name everywhere. What is wrong with them is the fault of what gave them, and
without a pair it would look as one of what reads them first. What two graphs of one model give back
has one name on both sides, however their nodes were fused.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from ait_llm.dumps.model import Operation, Tensor
from ait_llm.match.programs.links import LIKELY, Links
from ait_llm.match.programs.tokens import Tokens
from ait_llm.program.describe import is_float
from ait_llm.program.flow import Value
from ait_llm.program.graph_names import names_of_node
from ait_llm.program.program import Program

_CACHE = re.compile(
    r"^(?:past|present)(?:_key)?(?:_values?)?[._](\d+)[._](?:self[._])?(key|value)s?$"
)
_WHOLE = ("position_ids", "attention_mask")  # integers for each token
_Key = tuple[str, ...]  # given or made, and what it is


def add_named_inputs(left: Program, right: Program, links: Links, tokens: Tokens | None) -> None:
    """Link what both programs are given and give back under names that say what it is.

    Args:
        left, right: the programs.
        links: extended.
        tokens: alignment of their rows; positions and masks are for all of them.
    """
    first, second = _named(left), _named(right)
    for key in first.keys() & second.keys():
        if key[1] in _WHOLE and (tokens is None or not tokens.is_same_layout):
            continue
        for one in first[key]:
            for other in second[key]:
                reason = f"the {' '.join(key[1:])} of both programs, by name"
                links.add(one, other, LIKELY, reason)


def _named(side: Program) -> dict[_Key, list[Value]]:
    found: dict[_Key, list[Value]] = defaultdict(list)
    for op, operation in enumerate(side.operations):
        for name, tensor in (*_of_module(operation), *names_of_node(operation)):
            cache, value = _CACHE.match(name), side.value(op, tensor)
            if value is None:
                continue
            if cache is None and tensor.role == "out" and is_float(tensor):
                if operation.run is not None:
                    found["out", "result", name].append(value)
                continue
            if cache is None and name not in _WHOLE:
                continue
            if is_float(tensor) != (cache is not None):
                continue
            about = (name,) if cache is None else ("cache of", f"{cache[2]}s", f"layer {cache[1]}")
            key: _Key = (tensor.role, *about)
            known = found[key]
            if value not in known:
                known.append(value)
    return found


def _of_module(operation: Operation) -> Iterator[tuple[str, Tensor]]:
    """What a module is given and gives back, by the names that its capture has."""
    if not operation.is_graph:
        return
    for tensor in operation.tensors:
        yield tensor.ir_name or "", tensor
