"""GE graph files: which there are, and reading them as a whole or operator by operator."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ait_llm.errors import FormatError
from ait_llm.formats.opening import open_regular
from ait_llm.topology.ge_graph import AttrValue, GeGraph, GeOp
from ait_llm.topology.ge_pbtxt import NODE_DECODERS, op_from_node
from ait_llm.topology.ge_text import OP_DECODERS, entry_of, op_from_text
from ait_llm.topology.proto_text import Field, read_fields, text_of

_OPENED = frozenset({"graph"})  # GE's own files are a ModelDef with its graphs inside
_DECODERS = {"op": OP_DECODERS, "node": NODE_DECODERS}
_NAME = re.compile(
    r"dynamo_(original|optimized)_graph_"
    r"(?:(\d{1,9})_rank_(\d{1,9})_pid_(\d{1,19})_ts_)?(\d{20})\.(txt|pbtxt|py)"
)


@dataclass(frozen=True, slots=True)
class GeGraphFile:
    """What the name of a graph file of torchair says.

    Attributes:
        stage: ``original`` for the graph as built from FX, ``optimized`` after torchair's passes.
        number: N of ``graph_N``; None in files of torchair before 7.1.0, like ``rank`` and ``pid``.
        rank: rank of the process.
        pid: its process id.
        stamp: time of writing, 20 digits down to microseconds.
        extension: ``txt``, ``pbtxt`` or ``py``.
    """

    stage: Literal["original", "optimized"]
    number: int | None
    rank: int | None
    pid: int | None
    stamp: str
    extension: str

    @classmethod
    def parse(cls, name: str) -> GeGraphFile | None:
        """Read a file name; None for a file that torchair did not name so."""
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        number, rank, pid = (int(text) if text else None for text in found.group(2, 3, 4))
        stage: Literal["original", "optimized"] = (
            "original" if found[1] == "original" else "optimized"
        )
        return cls(stage, number, rank, pid, found[5], found[6])


def stream_ge_ops(path: Path | str) -> Iterator[GeOp]:
    """The operators of a graph file one by one, in the order of the file.

    Memory does not follow the size of the file: values of constants are not kept.

    Args:
        path: text format with ``op`` (torchair's ``.txt``, GE's ``ge_proto_*.txt``) or with
            ``node`` (``.pbtxt``). The content decides, not the name.

    Raises:
        FormatError: the file cannot be read, is malformed or cut; the reason names the line.
    """
    path = Path(path)
    for field in _fields(path):
        op = _op(path, field)
        if op is not None:
            yield op


def read_ge_graph(path: Path | str) -> GeGraph:
    """A whole graph; of a file with several, the first with the others as subgraphs.

    Raises:
        FormatError: as :func:`stream_ge_ops`; or two operators of one graph have the same name, or
            the file holds no operator.
    """
    path = Path(path)
    ops: dict[int, dict[str, GeOp]] = {}
    names: dict[int, str] = {}
    attrs: dict[int, dict[str, AttrValue]] = {}
    for field in _fields(path):
        op = _op(path, field)
        if op is not None:
            known = ops.setdefault(field.scope, {})
            if op.name in known:
                raise FormatError(
                    path, f"line {field.line}: {op.name!r} is the name of two operators"
                )
            known[op.name] = op
        elif field.name == "name":
            names[field.scope] = text_of(field.value)
        elif field.name == "attr" and isinstance(field.value, dict):
            try:
                key, value = entry_of(field.value)
            except ValueError as error:
                raise FormatError(path, f"line {field.line}: attribute {error}") from None
            attrs.setdefault(field.scope, {})[key] = value
    if not ops:
        raise FormatError(path, "holds no operator of a GE graph")
    graphs = [
        GeGraph(names.get(scope, ""), tuple(ops[scope].values()), path, attrs.get(scope, {}))
        for scope in sorted(ops)
    ]
    root = graphs[0]
    return GeGraph(root.name, root.ops, path, root.attrs, tuple(graphs[1:]))


def _fields(path: Path) -> Iterator[Field]:
    with open_regular(path) as file:
        yield from read_fields(file.read, path, _OPENED, _DECODERS)


def _op(path: Path, field: Field) -> GeOp | None:
    if isinstance(field.value, dict):
        if field.name == "op":
            return op_from_text(path, field.line, field.value)
        if field.name == "node":
            return op_from_node(path, field.line, field.value)
    return None
