"""Where calls of a torch dump stand: their ids, and the order in which they are listed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from ait_llm.core import OpId
from ait_llm.dumps.lazy import NOTHING
from ait_llm.dumps.ledger import LedgerEntry
from ait_llm.dumps.torch_tables import TreeModule

_NATURAL = re.compile(r"([0-9]+)")
# Operators come behind the children that a module may have.
_FIRST_OPERATOR = 10000


class Positions:
    """Positions of modules, and of operators below them in the order of their calls."""

    def __init__(self, modules: Mapping[str, TreeModule]) -> None:
        self._modules = modules
        self._operators: Counter[str] = Counter()

    def only_of(self, kind: str) -> str:
        """The path of the module of a class; empty where there is none, or several."""
        paths = [path for path, module in self._modules.items() if module.type == kind]
        return paths[0] if len(paths) == 1 else ""

    def of(self, path: str, entry: LedgerEntry | None) -> TreeModule:
        """The module, or an operator as a module without children and with the weights of its own.

        Args:
            path: dotted path of a module or operator.
            entry: its line in the ledger, if there is one.
        """
        if path in self._modules:
            return self._modules[path]
        parent = path
        while parent and parent not in self._modules:
            parent = parent.rpartition(".")[0]
        module = self._modules.get(parent)
        above = module.op_id.parts if module else ()
        number = self._operators[parent]
        self._operators[parent] += 1
        kind = entry.type if entry is not None else path.rpartition(".")[2]
        place = OpId((*above, _FIRST_OPERATOR + number))
        of_module = module.rounding if module else 0.0
        return TreeModule(place, kind, False, NOTHING, rounding=of_module)


def call_order(
    call: tuple[str, int],
    step: int,
    lines: dict[tuple[int, str, int], LedgerEntry],
    modules: Mapping[str, TreeModule],
) -> tuple[int, tuple[int, ...], str, int]:
    """A key that sorts the calls of a step: as the ledger has them, else by position."""
    entry = lines.get((step, *call))
    rank = entry.line.get("order") if entry is not None else None
    position = modules[call[0]].op_id.parts if call[0] in modules else ()
    return (rank if isinstance(rank, int) else 1 << 62, position, *call)


def natural(stem: str) -> list[tuple[int, str]]:
    """A key that sorts ``output_10`` behind ``output_9``."""
    parts = (part for part in _NATURAL.split(stem) if part)
    return [(0, _padded(part)) if _NATURAL.fullmatch(part) else (1, part) for part in parts]


def _padded(digits: str) -> str:
    """Digits so that texts sort as the numbers do, however long."""
    significant = digits.lstrip("0")
    return f"{len(significant):09}{significant}"
