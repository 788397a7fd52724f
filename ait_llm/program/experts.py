"""Experts that are modules of their own: ``mlp.experts.3.gate_proj``.

Each of them sees the tokens that were routed to it, which no ATB tensor shows in this form. The
block around them answers the sum over the experts, if nothing but a router stands beside them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from ait_llm.dumps.model import Operation
from ait_llm.program.roles import Role

_EXPERT = re.compile(r"(.+\.[0-9]+\..+)\.[0-9]+")  # a numbered module within a numbered layer


def find_experts(
    operations: Sequence[Operation],
    roles: Sequence[Role],
    parents: Sequence[int | None],
) -> Mapping[int, list[int]]:
    """Experts by the block around them: numbered modules of one class, within a numbered layer."""
    rows: dict[tuple[int, str, str], list[int]] = {}
    for op, operation in enumerate(operations):
        parent = parents[op]
        match = _EXPERT.fullmatch(operation.name)
        if parent is not None and match is not None and roles[op] is Role.CONTAINER:
            rows.setdefault((parent, match[1], operation.type), []).append(op)
    found: dict[int, list[int]] = {}
    for (parent, _, _), members in rows.items():
        if len({operations[op].name for op in members}) > 1:
            found.setdefault(parent, []).extend(members)
    return found
