"""Within which module something ran, where a side shows only operators.

The name of an operator begins with the path of the module whose code called it. Where the other
side has a module of that path, or operators of it, what ran within it is nothing else's.
"""

from __future__ import annotations

import re

from ait_llm.program.program import Program, Unit

_LAYER = re.compile(r"\.\d+(?=\.|$)")


class Owners:
    """Which modules of one side may be what operators of the other one compute.

    Args:
        left, right: the programs.
    """

    def __init__(self, left: Program, right: Program) -> None:
        self._sides = left, right
        self._paths: tuple[list[str], list[str]] = ([], [])
        self._modules: frozenset[str] = frozenset()
        self._called: frozenset[str] = frozenset()
        self._common: frozenset[str] = frozenset()
        if (left.has_modules and right.has_modules) or left.is_packed or right.is_packed:
            return
        if not left.has_modules and not right.has_modules:
            self._paths = _paths(left), _paths(right)
            self._common = frozenset(self._paths[0]) & frozenset(self._paths[1])
            return
        self._whole = 0 if left.has_modules else 1
        self._paths = _paths(left), _paths(right)
        self._modules = frozenset(self._paths[self._whole])
        self._called = frozenset(
            above for path in {*self._paths[1 - self._whole]} for above in _above(path)
        )

    def paths(self, place: int, unit: Unit) -> tuple[str, ...]:
        """The paths of the modules that a unit ran in, without numbers of layers.

        Args:
            place: 0 for the left side, 1 for the right one.
            unit: of that side.
        """
        names = self._paths[place]
        return (
            tuple(dict.fromkeys(names[op] for op in self._sides[place].ops_of(unit)))
            if names
            else ()
        )

    def are_apart(self, left: Unit, right: Unit) -> bool:
        """True if a left unit ran within another module than a right one.

        What code outside of a module adds to its product, or multiplies it by, belongs to the unit.
        """
        if not self._modules and not self._common:
            return False
        paths = self.paths(0, left), self.paths(1, right)
        if self._common:
            return self._common.issuperset(paths[0] + paths[1]) and {*paths[0]}.isdisjoint(paths[1])
        (module,), owners = paths[self._whole], paths[1 - self._whole]
        if module in self._called:
            return not any(_is_within(owner, module) for owner in owners)
        return all(owner in self._modules and not _is_within(module, owner) for owner in owners)


def _paths(side: Program) -> list[str]:
    names = (
        each.name if side.has_modules else each.name.removesuffix(f".{each.type}")
        for each in side.operations
    )
    return [_LAYER.sub(".#", name, count=1) for name in names]


def _above(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _is_within(path: str, outer: str) -> bool:
    return path == outer or path.startswith(f"{outer}.")
