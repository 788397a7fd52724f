"""Passes of the graph engine, and passes of the FX nodes that its graph was made of.

Both sides know a common graph: the one before fusion, which names FX values. Its tensors are
anchors that no fault moves, and all that is known of the rest is why it has no counterpart.
"""

from __future__ import annotations

from collections.abc import Set

from ait_llm.match.model import SideName
from ait_llm.match.programs.anchors.engine_nodes import EngineNodes
from ait_llm.match.programs.anchors.engine_runs import EngineRuns
from ait_llm.match.programs.anchors.ports import Ports, key_of
from ait_llm.program.one_pass import Pass
from ait_llm.program.roles_fx import computes

_GOLDEN: SideName = "golden"
_MINE: SideName = "mine"


def ports_of_graph(golden: Pass, mine: Pass) -> Ports | None:
    """Tensors that are one tensor of the graph before fusion, whoever computed them.

    Returns:
        None unless both are passes of compiled graphs, one of the graph engine, that have names in
        common, or one knows no names at all: then nothing else is known of the engine's operators.
    """
    sides = golden.traits, mine.traits
    if not any(side.fused for side in sides) or not all(side.compiled for side in sides):
        return None
    of_fx = not all(side.fused for side in sides)
    names = _names(golden, of_fx=of_fx), _names(mine, of_fx=of_fx)
    if all(names) and names[0].isdisjoint(names[1]):
        return None
    if not of_fx:
        return EngineRuns(golden, mine)
    ge, fx, side = (mine, golden, _MINE) if mine.traits.fused else (golden, mine, _GOLDEN)
    return _nameless(ge, side) if ge.fusion is None else EngineNodes(ge, ge.fusion, fx, side)


def _nameless(ge: Pass, side: SideName) -> Ports:
    ports = Ports()
    reasons = ports.left_reasons if side == "golden" else ports.right_reasons
    for op, operation in enumerate(ge.operations):
        for tensor in operation.tensors:
            reasons[key_of(op, tensor)] = "no graph file tells which FX tensor it is"
    return ports


def _names(run: Pass, *, of_fx: bool) -> Set[str]:
    """Names of FX nodes that compute something, or of operators, that a pass knows."""
    if run.traits.fused and of_fx:
        return frozenset() if run.fusion is None else run.fusion.graph.fx_nodes
    owners = {} if run.fusion is None else run.fusion.owners
    computing = (each for each in run.operations if not of_fx or computes(each.type))
    return {*owners, *(name for each in computing for name in (each.name, *each.parts))}
