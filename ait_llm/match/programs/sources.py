"""Tensors of a program as the sources of matches."""

from __future__ import annotations

from ait_llm.match.model import Source
from ait_llm.match.views import View
from ait_llm.program.flow import Use
from ait_llm.program.program import Program


def source_of(side: Program, use: Use, views: tuple[View, ...] = ()) -> Source:
    """What one side of a match is taken from, and what is done to it."""
    first = side.run.first_order
    order = first + use.op if first else use.op  # which is a number that is there already
    return Source(side.operations[use.op], use.tensor, order, views)
