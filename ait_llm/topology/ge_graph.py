"""Graphs of the graph engine (GE), as torchair and GE itself write them: types without files."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

from ait_llm.core import DType

AttrValue: TypeAlias = "int | float | bool | str | GeTensor | tuple[AttrValue, ...] | None"

ORIGIN_KEY = "_fx_tensor_name"
ORIGINAL_OPS_KEY = "_datadump_original_op_names"

_ORIGIN = re.compile(r"([^-]+)-(.+)\.OUTPUT\.(\d{1,9}(?:\.\d{1,9})*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FxOrigin:
    """The FX tensor that torchair recorded for an output.

    Attributes:
        node: name of the FX node, such as ``mul_5``.
        target: what it calls, such as ``aten.mul.Tensor``. The FX dump may say otherwise: torchair
            replaces views before it builds the graph.
        path: which result of the node: its index, then the index within it where it is a list.
    """

    node: str
    target: str
    path: tuple[int, ...]

    @classmethod
    def parse(cls, text: str) -> FxOrigin | None:
        """Read ``{node}-{target}.OUTPUT.{path}``; None for any other text."""
        found = _ORIGIN.fullmatch(text)
        if found is None:
            return None
        return cls(found[1], found[2], tuple(map(int, found[3].split("."))))

    def __str__(self) -> str:
        return f"{self.node}-{self.target}.OUTPUT.{'.'.join(map(str, self.path))}"


@dataclass(frozen=True, slots=True)
class GeTensor:
    """The description of one output, or of a constant.

    Attributes:
        name: name of the output in the operator's definition, such as ``y``; may be empty.
        dtype: element type; None where the graph does not say or names an unknown one. Types in
            torchair's *optimized* graphs are not reliable: what is undefined is ``DT_FLOAT`` there.
        dtype_name: that type as written, such as ``DT_FLOAT16``.
        shape: dimensions, -1 where dynamic; None where not recorded.
        layout: storage format as written, such as ``ND``.
        origin: the FX tensor it holds, as torchair recorded it.
        attrs: all other attributes of the description.
    """

    name: str
    dtype: DType | None
    dtype_name: str
    shape: tuple[int, ...] | None
    layout: str
    origin: FxOrigin | None
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class GeOp:
    """One operator.

    Attributes:
        name: name of its own in the graph, such as ``Cast_1``.
        type: operator type, such as ``Cast``.
        inputs: (producer, index of its output) of each input that is fed, in order.
        slots: position of each of them among all inputs, those not fed counted too.
        ports: names of all inputs in the operator's definition, by position; may be shorter than
            the positions where the graph describes none.
        controls: operators that run before this one without handing it data.
        outputs: description of each output.
        attrs: attributes by name; a constant's value is the :class:`GeTensor` that describes it.
    """

    name: str
    type: str
    inputs: tuple[tuple[str, int], ...]
    slots: tuple[int, ...]
    ports: tuple[str, ...]
    controls: tuple[str, ...]
    outputs: tuple[GeTensor, ...]
    attrs: Mapping[str, AttrValue]

    @property
    def original_ops(self) -> tuple[str, ...] | None:
        """Operators of the unfused graph that GE made this one from.

        Empty for operators that GE inserted; None where the graph does not tell, as those that
        torchair writes.
        """
        names = self.attrs.get(ORIGINAL_OPS_KEY)
        if not isinstance(names, tuple):
            return None
        return tuple(name for name in names if isinstance(name, str))


@dataclass(frozen=True)
class GeGraph:
    """All operators of one graph.

    Attributes:
        name: such as ``graph_1``; empty where the file gives none, as ``.pbtxt`` never does.
        ops: in the order of the file.
        source: the file that it was read from.
        attrs: attributes of the graph itself.
        subgraphs: further graphs of the same file (bodies of control flow in GE's own files).
    """

    name: str
    ops: tuple[GeOp, ...]
    source: Path | None = None
    attrs: Mapping[str, AttrValue] = field(default_factory=dict)
    subgraphs: tuple[GeGraph, ...] = ()

    @cached_property
    def by_name(self) -> Mapping[str, GeOp]:
        """Operators by name."""
        return {op.name: op for op in self.ops}

    @cached_property
    def consumers(self) -> Mapping[tuple[str, int], tuple[GeOp, ...]]:
        """Operators that read an output, by (producer, index); control edges do not count."""
        readers: dict[tuple[str, int], dict[str, GeOp]] = {}
        for op in self.ops:
            for edge in op.inputs:
                readers.setdefault(edge, {})[op.name] = op
        return {edge: tuple(ops.values()) for edge, ops in readers.items()}


_DTYPES = {
    "DT_FLOAT": DType.FLOAT32,
    "DT_DOUBLE": DType.FLOAT64,
    "DT_BF16": DType.BFLOAT16,
    "DT_UNDEFINED": None,
}  # all others have the names of ours


def dtype_of(name: str) -> DType | None:
    """The element type of a ``DT_*`` name of GE's graphs; None if there is no such type."""
    if name in _DTYPES:
        return _DTYPES[name]
    try:
        return DType[name.removeprefix("DT_")]
    except KeyError:
        return None
