"""The weights of all experts of a layer as one tensor, where a checkpoint has each by itself.

Programs that read all of them at once, and captures of their block, name no single ones. They are
for the search of origins, which holds what an operator reads to them; matching does not see them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ait_llm.core import TensorDesc
from ait_llm.dumps.tensors import Described, Source, Tensor
from ait_llm.errors import AitError, FormatError
from ait_llm.formats.elements import Array
from ait_llm.match.checkpoint import stored_weights
from ait_llm.program.one_pass import Pass

_EXPERT = re.compile(
    r"(?:.+\.)?layers\.(?P<layer>\d+)\.(?:.+\.)?experts\.(?P<expert>\d+)\.(?P<kind>\w+)\.weight"
)
_EXPERTS = re.compile(r"(?:.+\.)?layers\.(\d+)\.(?:.+\.)?experts")


@dataclass(frozen=True, slots=True)
class _Stacked(Source):
    """Reads the weights of experts as one, the first dimension of which counts them."""

    parts: tuple[Tensor, ...]

    def header(self, tensor: Tensor) -> Described:
        """The type of the first, and how many there are."""
        first = self.parts[0]
        return Described(TensorDesc(first.dtype, (len(self.parts), *first.shape)))

    def values(self, tensor: Tensor, *, mmap: bool | None = None) -> Array:
        """All of them."""
        try:
            return np.stack([part.nd() for part in self.parts])
        except ValueError as error:
            raise FormatError(self.parts[0].path, f"cannot be joined: {error}") from None


def with_experts(run: Pass, path: Path | None) -> Pass:
    """A pass with the weights of all experts of each layer, named as those of its block of them.

    Args:
        run: a pass of modules.
        path: the checkpoint that it was run with; None if it is not known.
    """
    if path is None or not any(map(_EXPERTS.fullmatch, (each.name for each in run.operations))):
        return run
    try:
        found = dict(_stacked(run, path))
    except AitError:
        return run  # whoever reads the weights for matching says what is wrong
    return replace(run, weights={**found, **run.weights}) if found else run


def _stacked(run: Pass, path: Path) -> Iterator[tuple[str, Tensor]]:
    modules = {
        match[1]: each.name
        for each in run.operations
        if (match := _EXPERTS.fullmatch(each.name)) is not None
    }
    found: dict[tuple[str, str], dict[int, Tensor]] = {}
    for name, tensor in stored_weights(path).items():
        match = _EXPERT.fullmatch(name)
        if match is not None and match["layer"] in modules:
            experts = found.setdefault((match["layer"], match["kind"]), {})
            experts[int(match["expert"])] = tensor
    for (layer, kind), experts in found.items():
        if sorted(experts) == list(range(len(experts))):
            parts = tuple(experts[number] for number in range(len(experts)))
            name = f"{modules[layer]}.{kind}"
            source = _Stacked(parts)
            yield name, replace(parts[0], role="in", source=source, stem=name, identity=None)
