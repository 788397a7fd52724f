"""Operators of the graph engine as golden operators.

Each is defined by what its prototype says, with the attributes that the graph before fusion has for
it; an operator that the engine fused is what its parts make together. Source: the prototypes of
CANN (``REG_OP``) as torchair lists them, and what torchair's converters make of aten operators.
Nothing here knows what a dump is.
"""

from ait_llm.opcheck.golden.engine import elements, moves, reductions
from ait_llm.opcheck.golden.engine.composite import Composite
from ait_llm.opcheck.golden.engine.table import Part, is_defined, part_function

__all__ = [
    "Composite",
    "Part",
    "elements",
    "is_defined",
    "moves",
    "part_function",
    "reductions",
]
