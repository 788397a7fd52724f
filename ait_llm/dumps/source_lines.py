"""Which line of the program made a call, as far as a capture knows."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from ait_llm.dumps.model import Dump, Operation
from ait_llm.errors import AitError
from ait_llm.report.summary.record import SourceLine

_FRAME = re.compile(
    r'\s*File "?(?P<file>.+?)"?, line (?P<line>\d{1,9})(?:, in (?P<function>[^,\n]+))?'
)
# Where libraries lie: who calls them is meant.
LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib/python\d[\d.]*/|^<")


def source_lines(dump: Dump, names: Collection[str]) -> dict[str, SourceLine]:
    """The lines that made the operations of some names; those are left out of which none is known.

    The first operation of a name counts. What the capture tells of stacks may be damaged without
    harm.
    """
    found: dict[str, SourceLine] = {}
    missing = set(names)
    if not missing:
        return found
    for operation in dump.operations():
        if operation.name not in missing:
            continue
        missing.discard(operation.name)
        line = line_of(operation)
        if line is not None:
            found[operation.name] = line
        if not missing:
            break
    return found


def line_of(operation: Operation) -> SourceLine | None:
    """The line of the program that made an operation; None if the capture does not know it."""
    try:
        stack = operation.stack
    except AitError:
        stack = None
    if stack:
        return line_of_stack(stack)
    nodes = operation.run.nodes if operation.run is not None else {}
    names = (operation.name,) if operation.launch is None else operation.launch.source
    for name in names:
        node = nodes.get(name)
        if node is not None and node.source is not None:
            return SourceLine(*node.source)
    return None


def line_of_stack(frames: Iterable[str]) -> SourceLine | None:
    """The innermost frame that lies in no library; the innermost one where all do.

    Args:
        frames: ``File /repo/model.py, line 12, in forward``, innermost first.
    """
    innermost = None
    for frame in frames:
        match = _FRAME.match(frame)
        if match is None:
            continue
        line = SourceLine(match["file"], int(match["line"]), (match["function"] or "").strip())
        if not LIBRARY.search(line.file):
            return line
        innermost = innermost or line
    return innermost
