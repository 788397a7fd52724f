"""Which classes of modules have a definition, and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

Compute = Callable[[Mapping[str, Tensor]], Any]
"""What a module computes, of its tensor arguments (``0``, ``position_ids``) and its parameters."""
Rows = tuple[int, int, tuple[tuple[int, int, int], ...]]
"""First row and number of rows of one request, and which earlier call, row and number precede."""


@dataclass(frozen=True, slots=True)
class Given:
    """What is known of a module without its values.

    Attributes:
        type: name of its class.
        definition: plain attributes, and plain arguments by number or name.
        inputs: numbers and names of its tensor arguments.
        weights: own names of its parameters and buffers, with their shapes.
        outputs: shapes of what it returned.
        dequantised: names of weights that are stored in fewer bits, and given as real numbers.
        members: classes of the modules that it consists of, by their names.
        attended: of paged attention, what its rows attend to.
        types: of its tensor arguments, by their names.
    """

    type: str
    definition: Mapping[str, Any]
    inputs: tuple[str, ...]
    weights: Mapping[str, tuple[int, ...]]
    outputs: tuple[tuple[int, ...], ...]
    dequantised: frozenset[str] = frozenset()
    members: Mapping[str, str] = field(default_factory=dict)
    attended: tuple[Rows, ...] = ()
    types: Mapping[str, str] = field(default_factory=dict)

    def number(self, name: str) -> float | None:
        """A number of the definition; None where it has none of that name."""
        value = self.definition.get(name)
        return value if isinstance(value, (int, float)) and type(value) is not bool else None

    def takes(self, weights: Collection[str], optional: Collection[str] = ()) -> bool:
        """True for one input and exactly these parameters."""
        return len(self.inputs) == 1 and self.has(weights, optional)

    def has(self, weights: Collection[str], optional: Collection[str] = ()) -> bool:
        """True for exactly these parameters."""
        names = set(self.weights)
        return set(weights) <= names <= {*weights, *optional}


Definition = Callable[[Given], Compute | None]
"""What modules of a class compute; None where what is known leaves a choice."""

_KNOWN: dict[str, Definition] = {}
_WEIGHTED: set[str] = set()
_SAY_WEIGHTED = ("elementwise_affine", "affine")  # attributes of norms
_WITH_RESULTS: set[str] = set()
_WHOLE: set[str] = set()
_ENDINGS = ("RMSNorm", "RotaryEmbedding")


def module(
    *names: str, weights: bool = False, results: bool = False, whole: bool = False
) -> Callable[[Definition], Definition]:
    """Register a definition for classes of these names.

    Args:
        names: of the classes.
        weights: they always have parameters or buffers.
        results: of what they return, a part follows from another part: the definition gets all of
            it as ``output_0`` and so on, too.
        whole: they may consist of modules and are defined all the same.
    """

    def add(definition: Definition) -> Definition:
        for name in names:
            if name in _KNOWN:
                raise ValueError(f"there are two definitions of {name}")
            _KNOWN[name] = definition
        for is_so, classes in ((weights, _WEIGHTED), (results, _WITH_RESULTS), (whole, _WHOLE)):
            if is_so:
                classes.update(names)
        return definition

    return add


def definition_of(class_name: str) -> Definition | None:
    """What modules of a class compute; None where that is not known."""
    from ait_llm.opcheck.golden.modules.norms import rms_norm
    from ait_llm.opcheck.golden.modules.rotary import rotary_tables

    known = _KNOWN.get(class_name)
    if known is None and class_name.endswith("RMSNorm"):
        return rms_norm
    return rotary_tables if known is None and class_name.endswith("RotaryEmbedding") else known


def class_names() -> tuple[str, ...]:
    """All classes that have a definition by their name."""
    return tuple(sorted(_KNOWN))


def needs_results(class_name: str) -> bool:
    """True for a class whose definition gets what was returned."""
    return class_name in _WITH_RESULTS


def is_whole(class_name: str) -> bool:
    """True for a class that may consist of modules and has a definition all the same."""
    return class_name in _WHOLE or class_name.endswith("RotaryEmbedding")


def module_function(given: Given) -> Compute | None:
    """What a module computes; None where there is no definition, or it leaves a choice."""
    definition = definition_of(given.type)
    return None if definition is None else definition(given)


def why_lost(given: Given) -> str:
    """What a capture lacks of a module whose class has a definition; empty if nothing is known."""
    if given.type not in _KNOWN and not given.type.endswith(_ENDINGS):
        return ""
    if not given.definition:
        return "its attributes were not recorded; dump again with this version"
    weighted = given.type in _WEIGHTED or given.type.endswith(_ENDINGS)
    weighted |= any(given.definition.get(name) is True for name in _SAY_WEIGHTED)
    if weighted and not given.weights:
        return "its parameters were not saved; dump with --weights"
    return ""


def only(tensors: Mapping[str, Tensor], given: Given) -> Tensor:
    """The one tensor argument."""
    return tensors[given.inputs[0]]
