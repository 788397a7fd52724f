"""One call while it is captured, and its line in the ledger."""

from __future__ import annotations

import functools
import itertools
import json
from typing import Any

from ait_llm.dump.pytorch.identity import Identity
from ait_llm.dump.pytorch.ledger import CallLine, json_text
from ait_llm.dump.pytorch.tensor_jobs import Outcome

# Type name of the unit that holds a model's parameters and buffers.
WEIGHTS = "weights"
# Entries of a kind in one ledger line, whose length readers limit.
_MAX_ENTRIES = 500
_MAX_NAME = 180


class Unit:
    """One call of a module or operator while it is being captured.

    There is one for each call, so that it is made by plain assignments.

    Attributes:
        path: dotted path, such as ``root.model.layers.0.mlp``.
        type_name: class or operator name.
        step: generation step.
        generation: number of the generation that the step belongs to.
        call: how often this path was called in the step before.
        order: position among all calls of the process, counted at entry.
        folder: where its files go.
        layer: layer whose part of a cache object belongs to this call, if it has one.
        in_graph: it is an operator of a compiled graph.
        group: of a collective, whom it speaks to; empty for others.
    """

    __slots__ = (
        *("call", "described", "folder", "generation", "group", "identities", "in_graph", "layer"),
        *("linked",),
        *("lost_tensors", "missed", "names", "notes", "order", "outcome", "path", "row", "step"),
        *("type_name", "values", "weights"),
    )

    def __init__(
        self,
        path: str,
        type_name: str,
        step: int,
        generation: int,
        call: int,
        order: int,
        folder: str,
        layer: int | None = None,
    ) -> None:
        self.path = path
        self.type_name = type_name
        self.step = step
        self.generation = generation
        self.call = call
        self.order = order
        self.folder = folder
        self.layer = layer
        self.in_graph = False
        self.group: dict[str, Any] = {}
        self.outcome = Outcome()
        self.values: dict[str, Any] = {}
        self.missed: list[dict[str, str]] = []
        self.notes: dict[str, str] = {}
        self.weights: dict[str, dict[str, Any]] = {}
        self.identities: dict[str, Identity] = {}
        self.names: set[str] = set()
        self.described = 0
        self.linked = 0
        self.lost_tensors = 0
        self.row = ""

    def unique(self, name: str) -> str:
        """A file stem that no other value of this call has, not longer than files allow."""
        if name not in self.names and len(name) <= _MAX_NAME:
            self.names.add(name)
            return name
        short = name[:_MAX_NAME]
        found, number = short, 1
        while found in self.names:
            number += 1
            found = f"{short}-{number}"
        self.names.add(found)
        return found

    def miss(self, name: str, reason: str, *, tensor: bool = False) -> None:
        """Note a value of which nothing is captured."""
        self.lost_tensors += tensor
        self.missed.append({"name": name, "reason": reason})


def op_line(unit: Unit, failure: str, above: int) -> CallLine:
    """The ledger line of a finished call, put together from texts that most calls share.

    Args:
        unit: the call.
        failure: why it did not complete, if it did not.
        above: characters of the path of the ``torch_tensors`` folder, with the separator.
    """
    outcome = unit.outcome
    lost = outcome.lost
    if failure or lost:
        state = "failed"
    elif outcome.tensors:
        state = "saved"
    elif unit.described:
        state = "described"
    elif unit.lost_tensors:
        state = "dropped"
    else:
        state = "empty"
    text = (
        f'{{"kind":"op","op":{_text(unit.path)},"type":{_text(unit.type_name)},'
        f'"path":{json.dumps(unit.folder[above:])},"step":{unit.step},'
        f'"generation":{unit.generation},"call":{unit.call},"order":{unit.order},'
        f'"state":"{state}","tensors":{outcome.tensors},"bytes":{outcome.bytes}'
    )
    if unit.in_graph:
        text += ',"in_graph":true'
    if unit.linked:
        text += f',"linked":{unit.linked}'
    if unit.group:
        text += f',"group":{json_text(unit.group)}'
    if failure or lost:
        reason = json.dumps(failure or outcome.reason)
        text += f',"errno":{outcome.errno},"reason":{reason},"lost":{lost}'
    elif state == "dropped":
        text += f',"reason":{json.dumps(unit.missed[0]["reason"])},"lost":{unit.lost_tensors}'
    if unit.identities:  # of those beyond the limit nothing is lost but who they are
        # a parameter without one lies in order
        limit = None if unit.type_name == WEIGHTS else _MAX_ENTRIES
        told = itertools.islice(unit.identities.items(), limit)
        text += f',"identity":{{{",".join([_told(name, each) for name, each in told])}}}'
    left_out = 0
    entries = (("weights", unit.weights), ("values", unit.values), ("notes", unit.notes))
    for key, found in entries:
        if found:
            text += f',"{key}":{json_text(dict(itertools.islice(found.items(), _MAX_ENTRIES)))}'
            left_out += max(0, len(found) - _MAX_ENTRIES)
    if unit.missed:
        text += f',"not_captured":{json_text(unit.missed[:_MAX_ENTRIES])}'
        left_out += max(0, len(unit.missed) - _MAX_ENTRIES)
    if left_out:
        text += f',"left_out":{left_out}'
    return state, outcome.tensors, outcome.bytes, f"{text}}}\n"


_text = functools.lru_cache(maxsize=1 << 14)(json.dumps)


def _told(name: str, identity: Identity) -> str:
    storage, version, offset, strides = identity
    return f"{_text(name)}:[{storage},{version},{offset},{_strides(strides)}]"


@functools.lru_cache(maxsize=1 << 12)
def _strides(strides: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, strides))}]"
