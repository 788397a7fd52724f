"""In which modules the calls of a program lie."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

from ait_llm.program.flow import Flow


def modules_around(found: Flow) -> Sequence[int | None]:
    """The innermost module around each operation, where modules are listed when they end, too."""
    operations = found.run.operations
    if not found.run.traits.finished:
        return found.parents
    around: list[int | None] = [None] * len(operations)
    begun: list[int] = []
    for op in reversed(range(len(operations))):
        while begun and operations[begun[-1]].op_id.parts > operations[op].op_id.parts:
            begun.pop()  # it began when this one, and all before it, had ended
        around[op] = begun[-1] if begun else None
        if operations[op].is_graph:
            begun.append(op)
    return around


class CallModules:
    """The modules of one program.

    Args:
        found: its flow.
    """

    def __init__(self, found: Flow) -> None:
        self._flow = found
        self._around = modules_around(found)

    def around(self, op: int) -> Iterator[int]:
        """The modules around an operation, the innermost first."""
        module = self._around[op]
        while module is not None:
            yield module
            module = self._around[module]

    @cached_property
    def paths(self) -> Sequence[str]:
        """Of each call of the API the path of its module, which a call of a module is itself.

        Without the module's class, which an adapter changes, say; "" where there is none, and for
        what is no call of the API.
        """
        operations = self._flow.run.operations
        if not self._flow.run.traits.finished:
            return [""] * len(operations)
        own = (
            op if each.is_graph else module
            for op, (each, module) in enumerate(zip(operations, self._around, strict=True))
        )
        return ["" if op is None else operations[op].api_name.rpartition(".")[0] for op in own]

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.paths)

    def are_others(self, op: int, theirs: CallModules, partner: int) -> bool:
        """True for calls within two modules both of which both programs have.

        Args:
            op: a call of this program.
            theirs: the modules of another program.
            partner: a call of that one.
        """
        names = self.paths[op], theirs.paths[partner]
        return names[0] != names[1] and all(
            name in known for name in names for known in (self._known, theirs._known)
        )
