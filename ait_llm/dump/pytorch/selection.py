"""Which modules a capture covers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from ait_llm.dump.pytorch.module_paths import layer_number, matches
from ait_llm.errors import UsageError


@dataclass(frozen=True, slots=True)
class ModuleSelection:
    """A filter on modules; empty fields do not restrict.

    Attributes:
        types: module classes; a module matches if it is an instance of one.
        names: patterns on the dotted path (``root.model.layers.0.mlp``): a glob, or a regular
            expression after ``re:``. A glob that starts without ``root`` matches at the end.
        type_prefixes: starts of class names, compared without case (``-opname``).
        layers: closed intervals of layer numbers, the first number in the path.
    """

    types: tuple[type[nn.Module], ...] = ()
    names: tuple[str, ...] = ()
    type_prefixes: tuple[str, ...] = ()
    layers: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        for name in self.names:
            if name.startswith("re:"):
                try:
                    re.compile(name[3:])
                except re.error as error:
                    raise UsageError(f"module pattern {name!r}: {error}") from error

    def covers(self, path: str, module: nn.Module) -> bool:
        """True if the module at ``path`` is to be captured."""
        return (
            (not self.types or isinstance(module, self.types))
            and (not self.names or any(matches(path, name) for name in self.names))
            and (not self.type_prefixes or self._has_prefix(module))
            and (not self.layers or self._in_layers(path))
        )

    def _has_prefix(self, module: nn.Module) -> bool:
        name = type(module).__name__.lower()
        return name.startswith(tuple(prefix.lower() for prefix in self.type_prefixes))

    def _in_layers(self, path: str) -> bool:
        number = layer_number(path)
        return number is not None and any(first <= number <= last for first, last in self.layers)


def as_selection(
    module_list: Sequence[type[nn.Module]],
    names: Sequence[str] | str = (),
    layers: Sequence[int | tuple[int, int]] = (),
) -> ModuleSelection:
    """Build a selection from the arguments of ``DumpConfig``.

    Args:
        module_list: module classes.
        names: patterns, or a single one.
        layers: closed intervals of layer numbers, or single numbers.

    Raises:
        UsageError: an argument of another type, or a pattern that is no regular expression.
    """
    if not isinstance(module_list, (list, tuple)):
        raise UsageError(f"module_list is {module_list!r}; give a list of classes, [nn.Linear]")
    for entry in module_list:
        if not (isinstance(entry, type) and issubclass(entry, nn.Module)):
            raise UsageError(
                f"module_list holds {entry!r}, which is not a torch.nn.Module class; "
                "select by name with module_names=[...]"
            )
    patterns = (names,) if isinstance(names, str) else tuple(names)
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise UsageError(f"module_names holds {pattern!r}, which is not a pattern")
    return ModuleSelection(tuple(module_list), patterns, (), tuple(map(_interval, layers)))


def _interval(layer: int | tuple[int, int]) -> tuple[int, int]:
    pair = (layer, layer) if isinstance(layer, int) else tuple(layer)
    if len(pair) != 2 or not all(type(number) is int for number in pair) or pair[0] > pair[1]:
        raise UsageError(f"layers holds {layer!r}; give numbers or pairs such as (0, 3)")
    return pair[0], pair[1]
