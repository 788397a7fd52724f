"""From what a call takes and returns to the JSON of its record, with the names of its items.

Which value becomes which JSON is the format of msprobe; types, positional dtypes, devices, bytes
and complex numbers that it leaves out are kept here in the same form.
"""

from __future__ import annotations

import dataclasses
import re
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ait_llm.dump.pytorch.statistics import NotKept, Reduced

_MAX_DEPTH = 400
_MAX_TEXT = 1 << 16
# Longest stem of a file, with room for its ending.
_MAX_STEM = 240
_UNSAFE = re.compile(r"[/\0\n\r]")

TensorEntry = Callable[[Tensor | Reduced | NotKept, str], dict[str, Any] | None]
"""Makes the JSON of a tensor; takes the stem of its file."""
ArrayEntry = Callable[["np.ndarray[Any, Any]", str], dict[str, Any]]


def file_stem(name: str) -> str:
    """A name as the stem of a file: one path component that is not too long."""
    name = _UNSAFE.sub("_", name)
    if len(name.encode()) <= _MAX_STEM:
        return name
    mark = f"{zlib.crc32(name.encode()):08x}"
    return f"{name.encode()[: _MAX_STEM - 9].decode(errors='ignore')}.{mark}"


class Describer:
    """Walks through values and hands their tensors on.

    Args:
        tensor: makes the JSON of a tensor.
        array: makes the JSON of a NumPy array.
    """

    def __init__(self, tensor: TensorEntry, array: ArrayEntry) -> None:
        self._tensor = tensor
        self._array = array

    def arguments(self, args: Sequence[Any], name: str) -> list[Any]:
        """Positional arguments or outputs, as ``{name}.0``, ``{name}.1``, ...

        Args:
            args: the values.
            name: ``{record}.input`` or ``{record}.output``.
        """
        return [self.value(value, f"{name}.{index}") for index, value in enumerate(args)]

    def keywords(self, kwargs: Mapping[str, Any], name: str) -> dict[str, Any]:
        """Keyword arguments; their files are named ``{name}.{key}``."""
        return {
            str(key): {"type": "torch.device", "value": value}
            if key == "device" and isinstance(value, str)
            else self.value(value, f"{name}.{key}")
            for key, value in kwargs.items()
        }

    def outputs(self, output: Any, name: str) -> list[Any]:
        """What a call returned, as a list also if it is one value."""
        if isinstance(output, (tuple, list)) and not isinstance(output, torch.Size):
            return self.arguments(output, name)
        return [self.value(output, f"{name}.0")]

    def value(self, value: Any, name: str, depth: int = 0) -> Any:
        """The JSON of one value.

        Raises:
            ValueError: containers within containers, too many of them.
        """
        kind = type(value)
        if kind is Tensor or isinstance(value, (Tensor, Reduced, NotKept)):
            return self._tensor(value, name)
        if value is None:
            return None
        if kind in (int, float, bool):
            return {"type": kind.__name__, "value": value}
        if kind in (list, tuple):
            return self._items(value, name, depth)
        return self._other(value, name, depth)

    def _items(self, values: Sequence[Any], name: str, depth: int) -> list[Any]:
        if depth >= _MAX_DEPTH:
            raise ValueError(f"nested more than {_MAX_DEPTH} levels deep")
        return [self.value(item, f"{name}.{i}", depth + 1) for i, item in enumerate(values)]

    def _fields(self, fields: Mapping[Any, Any], name: str, depth: int) -> dict[str, Any]:
        if depth >= _MAX_DEPTH:
            raise ValueError(f"nested more than {_MAX_DEPTH} levels deep")
        return {
            str(key): self.value(item, f"{name}.{key}", depth + 1) for key, item in fields.items()
        }

    def _other(self, value: Any, name: str, depth: int) -> Any:
        if (plain := plain_value(value)) is not None:
            return plain
        if isinstance(value, np.ndarray):
            return self._array(value, name)
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
            if isinstance(value, Mapping):  # a ModelOutput, which leaves out fields that are None
                fields.update(value)
            return self._fields(fields, name, depth)
        if isinstance(value, Mapping):
            return self._fields(value, name, depth)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return self._fields(dict(zip(value._fields, value, strict=True)), name, depth)
        if isinstance(value, (list, tuple)):
            return self._items(value, name, depth)
        if type(value).__name__ == "P2POp":
            return {
                "class_type": "torch.distributed.P2POp",
                "tensor": self.value(value.tensor, name, depth + 1),
                "op": getattr(value.op, "__name__", str(value.op)),
                "peer": value.peer,
                "tag": value.tag,
                "group_id": _group(value.group)["group_id"],
            }
        return None


def plain_value(value: Any) -> dict[str, Any] | None:
    """The JSON of a value that holds no tensor; None if it is a container or unknown."""
    if isinstance(value, np.generic):
        return {"type": type(value).__name__, "value": _json_number(value.item())}
    if isinstance(value, (bool, int, float)):
        kind = bool if isinstance(value, bool) else int if isinstance(value, int) else float
        return {"type": type(value).__name__, "value": kind(value)}
    if isinstance(value, str):
        return {"type": type(value).__name__, "value": str(value)[:_MAX_TEXT]}
    if isinstance(value, torch.dtype):
        return {"type": "torch.dtype", "value": str(value)}
    if isinstance(value, torch.device):
        return {"type": "torch.device", "value": f"{value.type}:{value.index}"}
    if isinstance(value, torch.Size):
        return {"type": "torch.Size", "value": list(value)}
    if isinstance(value, slice):
        bounds = (value.start, value.stop, value.step)
        return {"type": "slice", "value": [x if isinstance(x, int) else None for x in bounds]}
    if value is ...:
        return {"type": "ellipsis", "value": "..."}
    if isinstance(value, torch.memory_format):
        return {
            "type": "torch.memory_format",
            "format": str(value).removeprefix("torch."),
        }
    if isinstance(value, complex):
        return {"type": "complex", "value": str(value)}
    if isinstance(value, (bytes, bytearray)):
        return {"type": "bytes", "value": bytes(value[:_MAX_TEXT]).hex()}
    return _distributed_value(value)


def _json_number(value: Any) -> Any:
    return str(value) if isinstance(value, (bytes, complex)) else value


def _distributed_value(value: Any) -> dict[str, Any] | None:
    names = {base.__name__ for base in type(value).__mro__}
    if "ProcessGroup" in names:
        return _group(value)
    if "RedOpType" in names or type(value).__name__ == "ReduceOp":
        operator = getattr(value, "op", value)
        return {"type": "torch.distributed.ReduceOp", "value": str(operator)}
    return None


def _group(group: Any) -> dict[str, Any]:
    """A process group by its ranks; its id is the same for equal ranks in every process."""
    ranks = group_ranks(group)
    return {
        "type": "torch.ProcessGroup",
        "group_ranks": ranks,
        "group_id": f"{zlib.crc32(str(ranks).encode()):08x}",
    }


def group_ranks(group: Any) -> list[int]:
    """Global ranks of a process group; of the default one for None."""
    import torch.distributed as dist

    try:
        return list(dist.get_process_group_ranks(group))
    except (RuntimeError, ValueError, KeyError, AttributeError):
        return []
