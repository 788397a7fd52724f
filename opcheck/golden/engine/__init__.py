"""Operators of the graph engine as golden operators.

Each is defined by what its prototype says, with the attributes that the graph before fusion has for
it; an operator that the engine fused is what its parts make together. Source: the prototypes of
CANN (``REG_OP``) as torchair lists them, and what torchair's converters make of aten operators.
Nothing here knows what a dump is.
"""

from ait_llm.opcheck.golden.engine import (
    attention,
    elements,
    moves,
    quantised,
    reductions,
    written,
)
from ait_llm.opcheck.golden.engine.composite import Composite
from ait_llm.opcheck.golden.engine.table import Part, is_defined, part_function
from ait_llm.opcheck.golden.engine.written import WRITING

__all__ = [
    "WRITING",
    "Composite",
    "Part",
    "attention",
    "elements",
    "is_defined",
    "moves",
    "part_function",
    "quantised",
    "reductions",
    "written",
]
