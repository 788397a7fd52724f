"""``kernels.json``: which operators each kernel of a compiled graph fused (docs/formats.md).

It lies beside the steps of a graph whose operations are launches of kernels, not nodes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ait_llm.core import DType
from ait_llm.dumps.model import Role
from ait_llm.errors import FormatError
from ait_llm.formats.opening import contained_file, read_small

KERNELS_FILE = "kernels.json"
KERNELS_SCHEMA = 1
_MAX_BYTES = 256 << 20
_BY_NAME = {each.torch_name: each for each in DType if each.torch_name is not None}


@dataclass(frozen=True, slots=True)
class NodeValue:
    """A tensor of the graph before compilation.

    Attributes:
        node: its node.
        role: a result of the node, or an argument of it that comes from outside of the graph.
        index: among the results, or the positional arguments.
    """

    node: str
    role: Role
    index: int


@dataclass(frozen=True, slots=True)
class KernelBuffer:
    """A buffer that a kernel reads or stores.

    Attributes:
        buffer: its name in the compiled program.
        value: the tensor before compilation that it equals; None for what only kernels know.
        covers: nodes that were computed on the way to it and are stored nowhere.
        dtype: element type; None if it was not written down.
    """

    buffer: str
    value: NodeValue | None
    covers: tuple[str, ...]
    dtype: DType | None = None


@dataclass(frozen=True, slots=True)
class KernelLaunch:
    """One launch of a kernel.

    Attributes:
        name: as the files have it.
        kernel: name of the kernel.
        source: nodes of the graph before compilation that it fused, in order.
        fused: nodes of the compiler's own graph that it fused.
        inputs, outputs: buffers by the numbers in file names.
    """

    name: str
    kernel: str
    source: tuple[str, ...]
    fused: tuple[str, ...]
    inputs: tuple[KernelBuffer, ...]
    outputs: tuple[KernelBuffer, ...]


def read_kernels(folder: Path, root: Path) -> Mapping[str, KernelLaunch]:
    """Launches of a graph by name; empty where the folder is not of a compiled graph.

    Args:
        folder: of the graph.
        root: folder that the file must not leave.

    Raises:
        FormatError: the file is damaged.
    """
    path = folder / KERNELS_FILE
    if not path.exists():
        return {}
    text = read_small(contained_file(path, root), _MAX_BYTES, named=path)
    try:
        table = json.loads(text)
        schema = table["schema"]
        launches = [_launch(each) for each in table["launches"]] if schema == KERNELS_SCHEMA else []
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(path, "is not a table of kernels") from error
    if schema != KERNELS_SCHEMA:
        raise FormatError(path, f"has the schema {schema!r}, which a later version wrote")
    return {each.name: each for each in launches}


def buffer_types(launches: Mapping[str, KernelLaunch]) -> dict[tuple[str, str], DType]:
    """Element types of buffers by launch and ``INPUT.0``."""
    return {
        (name, f"{word}.{place}"): buffer.dtype
        for name, launch in launches.items()
        for word, buffers in (("INPUT", launch.inputs), ("OUTPUT", launch.outputs))
        for place, buffer in enumerate(buffers)
        if buffer.dtype is not None
    }


def _launch(line: Mapping[str, Any]) -> KernelLaunch:
    return KernelLaunch(
        _text(line["name"]),
        _text(line["kernel"]),
        _texts(line["source"]),
        _texts(line["fused"]),
        tuple(_buffer(each) for each in line["inputs"]),
        tuple(_buffer(each) for each in line["outputs"]),
    )


def _buffer(line: Mapping[str, Any]) -> KernelBuffer:
    value = line["value"]
    dtype = line.get("dtype")
    return KernelBuffer(
        _text(line["buffer"]),
        None if value is None else _value(value),
        _texts(line["covers"]),
        None if dtype is None else _BY_NAME.get(_text(dtype)),
    )


def _value(line: Mapping[str, Any]) -> NodeValue:
    role, index = line["role"], line["index"]
    if role not in ("in", "out") or type(index) is not int or index < 0:
        raise ValueError(f"{role!r} {index!r} is no place of a tensor")
    return NodeValue(_text(line["node"]), role, index)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list):
        raise TypeError(f"{values!r} is not a list")
    return tuple(_text(each) for each in values)
