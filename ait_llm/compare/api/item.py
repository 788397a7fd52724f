"""One record of an API-level dump to the rows that a table shows of it.

A record is one call of a function or module; a row is one tensor or scalar among its inputs,
parameters, outputs or parameter gradients, depth first in the order of the record.
"""

from __future__ import annotations

import math
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

State = Literal["input", "parameters", "output", "parameters_grad"]

NOT_AVAILABLE = "N/A"
NO_FILE = "-1"
NO_CHECKSUM = "00000000"  # CRC-32 of an empty text
_TENSOR_TYPES = frozenset(
    {
        "torch.Tensor",
        "torch.distributed.tensor.DTensor",
        "torch._subclasses.fake_tensor.FakeTensor",
        "torch.distributed._functional_collectives.AsyncCollectiveTensor",
        "torch.nested._internal.nested_tensor.NestedTensor",
        "BatchedTensor",
        "GradTrackingTensor",
        "numpy.ndarray",
    }
)
_TEXT = re.compile(r"[<>|=]?[SU]\d+")
_RANK_KEYWORDS = frozenset({"src", "dst", "group_src", "group_dst"})


class Item(NamedTuple):
    """One row's worth of one side; a tuple, because there are hundreds of thousands.

    Attributes:
        name: the item's full name, ``Functional.linear.0.forward.input.0``.
        record: name of its record, ``Functional.linear.0.forward``.
        state: part of the record that it belongs to.
        dtype, shape: as the tables show them; ``N/A`` for nothing.
        statistics: max, min, mean and norm as recorded; None where they were not.
        requires_grad: as recorded, or ``N/A``.
        md5: checksum as recorded, else the CRC-32 of its text.
        data_name: file of its values, ``-1`` without one.
        p2p: operation and peer of a point-to-point call, empty elsewhere.
    """

    name: str
    record: str
    state: State
    dtype: str
    shape: str
    statistics: tuple[Any, Any, Any, Any]
    requires_grad: Any = NOT_AVAILABLE
    md5: str = ""
    data_name: str = NO_FILE
    p2p: tuple[str, str] = ("", "")

    @property
    def is_tensor(self) -> bool:
        """True for values with an element type of their own, not for scalars."""
        return self.dtype != NOT_AVAILABLE and "class" not in self.dtype and self.shape != "(3,)"

    @property
    def is_text(self) -> bool:
        """True for an array of text, which has no numbers."""
        return _TEXT.fullmatch(self.dtype) is not None


def items_of(record: str, content: Mapping[str, Any]) -> list[Item]:
    """Rows of one record, inputs first, then parameters, outputs and parameter gradients.

    Args:
        record: its key in ``dump.json`` or ``debug.json``.
        content: its value there.
    """
    found: list[Item] = []
    if record.endswith(".debug"):
        bare = list(content) == [""]  # a variable that is no object, see content_of
        _walk(content[""] if bare else content, record, record, "output", found)
        return found
    for key in ("input_args", "input", "input_kwargs"):
        part = content.get(key)
        if part:
            _walk(part, f"{record}.input", record, "input", found)
    parameters = content.get("parameters")
    if parameters:
        _walk(parameters, f"{record}.parameters", record, "parameters", found)
    output = content.get("output")
    if output:
        _walk(output, f"{record}.output", record, "output", found)
    if ".parameters_grad" in record:
        for parameter, gradients in content.items():
            # One gradient per list; its own index is no part of the name.
            for gradient in gradients if isinstance(gradients, list) else [gradients]:
                _walk(gradient, f"{record}.{parameter}", record, "parameters_grad", found)
    return found


def _walk(value: Any, name: str, record: str, state: State, found: list[Item]) -> None:
    """Rows of a value, its members depth first; nothing for an empty container."""
    if type(value) is list:  # the common case: tensors and scalars, nothing within
        for place, member in enumerate(value):
            kind = member.get("type") if type(member) is dict else None
            if kind == "torch.Tensor":
                found.append(_tensor(member, f"{name}.{place}", record, state))
            else:
                found += _walk_deep(member, f"{name}.{place}", record, state)
    else:
        found += _walk_deep(value, name, record, state)


def _walk_deep(value: Any, name: str, record: str, state: State) -> Iterator[Item]:
    stack: list[tuple[Any, str]] = [(value, name)]
    while stack:
        value, name = stack.pop()
        if value is None:
            yield Item(name, record, state, NOT_AVAILABLE, NOT_AVAILABLE, _NONE, md5=NOT_AVAILABLE)
        elif isinstance(value, list):
            stack += [(member, f"{name}.{place}") for place, member in _reversed(value)]
        elif isinstance(value, Mapping):
            kind = value.get("type")
            if isinstance(kind, str):
                yield _leaf(value, kind, name, record, state)
            elif isinstance(value.get("class_type"), str) and "tensor" in value:
                yield from _point_to_point(value, name, record, state)
            else:
                members = [(member, f"{name}.{key}") for key, member in value.items()]
                stack += reversed(members)


_NONE = (None, None, None, None)


def _reversed(members: list[Any]) -> Iterator[tuple[int, Any]]:
    return ((place, members[place]) for place in range(len(members) - 1, -1, -1))


def _leaf(value: Mapping[str, Any], kind: str, name: str, record: str, state: State) -> Item:
    if kind in _TENSOR_TYPES:
        return _tensor(value, name, record, state)
    content = value.get("value")
    keyword = name.rpartition(".")[2]
    if kind == "torch.ProcessGroup":
        ranks = str(value.get("group_ranks"))
        return Item(name, record, state, kind, "[]", (ranks,) * 4, md5=ranks)
    if keyword in _RANK_KEYWORDS:
        text = str(content)
        return Item(name, record, state, kind, "[]", (text,) * 4, md5=text)
    checksum = _crc(str(content)) if "value" in value else _crc("")
    if kind == "torch.Size":
        shape = str(content)
        return Item(name, record, state, kind, shape, _NONE, md5=checksum)
    if kind == "slice":
        return Item(name, record, state, kind, "(3,)", _NONE, md5=checksum)
    if kind == "ellipsis":
        return Item(name, record, state, kind, "[]", (content,) * 4, md5=checksum)
    shown = f"<class '{type(content).__name__}'>"
    return Item(name, record, state, shown, "[]", (content,) * 4, md5=checksum)


def _tensor(
    value: Mapping[str, Any],
    name: str,
    record: str,
    state: State,
    p2p: tuple[str, str] = ("", ""),
) -> Item:
    get = value.get
    data_name = get("data_name")
    if not isinstance(data_name, str) or not data_name:
        data_name = NO_FILE
    else:
        name = data_name.rpartition(".")[0] or data_name
    checksum = get("md5")
    return Item(
        name,
        record,
        state,
        str(get("dtype")),
        str(get("shape")),
        (get("Max"), get("Min"), get("Mean"), get("Norm")),
        get("requires_grad", NOT_AVAILABLE),
        checksum if isinstance(checksum, str) else NO_CHECKSUM,
        data_name,
        p2p,
    )


def _point_to_point(
    value: Mapping[str, Any], name: str, record: str, state: State
) -> Iterator[Item]:
    tensor = value["tensor"]
    if isinstance(tensor, Mapping):
        p2p = str(value.get("op", "")), str(value.get("peer", ""))
        yield _tensor(tensor, name, record, state, p2p)


def _crc(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def is_nan(value: Any) -> bool:
    """True for a NaN among recorded statistics."""
    return isinstance(value, float) and math.isnan(value)


def is_number(value: Any) -> bool:
    """True for a finite or infinite number, not for a truth value or text."""
    return isinstance(value, int | float) and not isinstance(value, bool)
