"""The adapter of each kind of pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ait_llm.match.by_fusion.as_program import program_of_graph
from ait_llm.program.adapt_api import program_of_calls
from ait_llm.program.adapt_fx import program_of_nodes
from ait_llm.program.adapt_operators import has_operators_alone, program_of_operators
from ait_llm.program.one_pass import Pass
from ait_llm.program.program import Program


def _program_of_torch(run: Pass) -> Program:
    return program_of_operators(run) if has_operators_alone(run) else Program(run)


_ADAPTERS: Mapping[str, Callable[[Pass], Program | None]] = {
    "atb": Program,
    "torch": _program_of_torch,
    "fx": program_of_nodes,
    "ge": program_of_graph,
    "api": program_of_calls,
}


def program_of(run: Pass) -> Program | None:
    """A pass as a program; None if its kind has no adapter, or its graph is not known."""
    adapter = _ADAPTERS.get(run.kind)
    return None if adapter is None else adapter(run)
