"""What a bug is, and what is known of it before anybody looks for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import Enum
from random import Random

import torch
from torch import nn

from bugs.places import Place, Places


class Nature(Enum):
    """Who is wrong."""

    KERNEL = "kernel fault"  # an operator computes what its arguments do not say
    DEFINITION = "definition"  # a number, weight or buffer is another
    CODE = "code"  # the program calls other operators, and no number says so
    INPUT = "input"  # the caller passes something else


@dataclass(frozen=True)
class Injected:
    """A bug in a model that can run now.

    Attributes:
        owners: modules whose own code, weights or numbers are wrong; any of them is the origin.
        operator: the one that is wrong; None where the first wrong results tell.
        attribute: name of the number, weight or buffer that is another.
        numbers: its right value and the wrong one; empty for tensors.
        right, wrong: tensors, for weights and buffers.
        words: a finding about an input must have one of these.
    """

    owners: tuple[str, ...]
    operator: Place | None = None
    attribute: str = ""
    numbers: tuple[float, ...] = ()
    right: torch.Tensor | None = None
    wrong: torch.Tensor | None = None
    words: tuple[str, ...] = ()


@dataclass(frozen=True)
class Site:
    """A call in the healthy program that a bug may be put into.

    Attributes:
        place: where.
        shapes: of the result, or of the arguments of a function.
        floating: whether its first result is of a floating type.
        numbers: arguments of a function that are no tensors.
    """

    place: Place
    shapes: tuple[tuple[int, ...], ...]
    floating: bool
    numbers: tuple[object, ...] = ()


@dataclass(frozen=True)
class Surgery:
    """What an injection works with.

    Attributes:
        model: a fresh one, changed in place.
        places: follows its calls, for changes of operators and functions.
        rng: chooses the site; the same one for each strength of one bug.
        strength: relative size of the error, for kinds that have one.
        operators, functions: sites of the healthy program.
        stack: what must stay entered while the model runs, outermost first.
    """

    model: nn.Module
    places: Places
    rng: Random
    strength: float
    operators: tuple[Site, ...]
    functions: tuple[Site, ...]
    stack: ExitStack = field(default_factory=ExitStack)


Inject = Callable[[Surgery], Injected | None]


@dataclass(frozen=True)
class Kind:
    """A kind of bug.

    Attributes:
        name: as the results page has it.
        nature: who is wrong.
        inject: puts it in; None where the model has no place for it.
        graded: how large it is can be chosen.
        large: strength of a large one.
    """

    name: str
    nature: Nature
    inject: Inject
    graded: bool = False
    large: float = 0.05


KINDS: dict[str, Kind] = {}


def kind(
    name: str, nature: Nature, *, graded: bool = False, large: float = 0.05
) -> Callable[[Inject], Inject]:
    """Register a kind of bug."""

    def register(inject: Inject) -> Inject:
        if name in KINDS:
            raise ValueError(f"two kinds of bug are called {name}")
        KINDS[name] = Kind(name, nature, inject, graded, large)
        return inject

    return register


def by_nature(kinds: Mapping[str, Kind]) -> dict[Nature, list[str]]:
    """Names of kinds."""
    return {each: [name for name, one in kinds.items() if one.nature is each] for each in Nature}
