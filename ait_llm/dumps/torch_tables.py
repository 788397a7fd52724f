"""Module trees and statistics tables of a torch dump."""

from __future__ import annotations

import csv
import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from ait_llm.core import DType, OpId
from ait_llm.dumps.lazy import NOTHING
from ait_llm.dumps.operations import Group
from ait_llm.dumps.tensors import Identity
from ait_llm.errors import FormatError
from ait_llm.formats import Statistics
from ait_llm.formats.opening import open_regular, read_small

Recorded = tuple[DType, tuple[int, ...], Statistics]
_MAX_TREE_BYTES = 256 << 20
_MAX_DEPTH = 128
_ROUTED = "RoutedExperts"
_OF_GPT_OSS = ("Mxfp4GptOssExperts", "GptOssTopKRouter")


class TreeModule(NamedTuple):
    """A module of a tree.

    Attributes:
        op_id: its position.
        type: class name.
        is_graph: it has children.
        definition: numbers, flags and names that decide what it computes; those of members that are
            never called, too, behind the name of the member.
        members: classes of its children by their own names.
        rounding: relative Euclidean distance that keeping its weights in few bits has cost.
    """

    op_id: OpId
    type: str
    is_graph: bool
    definition: Mapping[str, Any]
    members: Mapping[str, str] = NOTHING
    rounding: float = 0.0


def read_module_tree(path: Path) -> dict[str, TreeModule]:
    """The modules by dotted path.

    Raises:
        FormatError: the file is not a module tree.
    """
    text = read_small(path, _MAX_TREE_BYTES)
    try:
        root = json.loads(text)
    except (ValueError, RecursionError):
        raise FormatError(path, "is not JSON") from None
    return dict(_walk(path, root, (0,)))


def _walk(path: Path, node: Any, ids: tuple[int, ...]) -> Iterator[tuple[str, TreeModule]]:
    if not isinstance(node, dict) or len(ids) > _MAX_DEPTH:
        raise FormatError(path, f"node {'_'.join(map(str, ids))} is not a module")
    name, kind, children = node.get("name"), node.get("type"), node.get("children")
    if not isinstance(name, str) or not isinstance(kind, str) or not isinstance(children, list):
        raise FormatError(path, f"node {'_'.join(map(str, ids))} lacks name, type or children")
    members = _members(children)
    known = {**_definition(node), **dict(_held("", children, held(members)))} or NOTHING
    yield name, TreeModule(OpId(ids), kind, bool(children), known, members, read_rounding(node))
    for number, child in enumerate(children):
        yield from _walk(path, child, (*ids, number))


def _definition(node: Mapping[str, Any]) -> Mapping[str, Any]:
    definition = node.get("definition")
    return definition if isinstance(definition, dict) else NOTHING


def read_rounding(entry: Mapping[str, Any]) -> float:
    """What keeping weights in few bits has cost, of a module in a tree or a line of a ledger."""
    found = entry.get("rounding")
    return found if isinstance(found, float) and 0 < found < 1 else 0.0


def held(members: Mapping[str, str]) -> list[str]:
    """Names of members that are not called: the module around them computes with what they hold.

    Args:
        members: classes of them all by their names.
    """
    kinds = set(members.values())
    known = _OF_GPT_OSS if kinds.issuperset(_OF_GPT_OSS) else ()
    return [name for name, kind in members.items() if kind == _ROUTED or kind in known]


def _held(prefix: str, children: Any, names: Collection[str] = ()) -> Iterator[tuple[str, Any]]:
    """What members state that are never called, and their own members, with the classes of these.

    What they say of an object that they share with the module around them is said there.
    """
    for child in children if isinstance(children, list) else ():
        if not isinstance(child, dict):
            continue
        name = prefix + str(child.get("name")).rpartition(".")[2]
        if not prefix and name not in names:
            continue
        yield f"{name}.class", str(child.get("type"))
        own = {key: value for key, value in _definition(child).items() if "." not in key}
        yield from ((f"{name}.{key}", value) for key, value in own.items())
        if not prefix:
            yield from _held(f"{name}.", child.get("children"))


def _members(children: list[Any]) -> Mapping[str, str]:
    names = (node for node in children if isinstance(node, dict))
    return {str(node.get("name")).rpartition(".")[2]: str(node.get("type")) for node in names}


def read_group(line: Mapping[str, Any]) -> Group | None:
    """Whom a collective speaks to by its line in a ledger; None for others."""
    found = line.get("group")
    if not isinstance(found, dict):
        return None
    ranks, place, reduction = (found.get(name) for name in ("ranks", "place", "reduction"))
    if (
        not isinstance(ranks, list)
        or any(type(each) is not int for each in ranks)
        or type(place) is not int
        or not 0 <= place < len(ranks)
    ):
        return None
    return Group(tuple(ranks), place, str(reduction or ""))


def read_identities(line: Mapping[str, Any]) -> dict[str, Identity]:
    """Identities in a line of a ledger, by the name of the tensor."""
    entries = line.get("identity")
    if not isinstance(entries, dict):
        return {}
    found = {name: read_identity(entry) for name, entry in entries.items()}
    return {name: identity for name, identity in found.items() if identity is not None}


def read_identity(entry: Any) -> Identity | None:
    """What a ledger says of the storage of a tensor; None for what is no such record.

    Args:
        entry: storage, version, offset, and a list of strides.
    """
    if not isinstance(entry, list) or len(entry) != 4 or not isinstance(entry[3], list):
        return None
    storage, version, offset, strides = entry
    if any(type(each) is not int for each in (storage, version, offset, *strides)):
        return None
    return Identity(storage, version, offset, tuple(strides))


def read_statistics(path: Path) -> dict[tuple[str, int], dict[str, Recorded]]:
    """Statistics by ``(module path, call)`` and tensor name; empty if there is no table.

    Raises:
        FormatError: the table is damaged.
    """
    found: dict[tuple[str, int], dict[str, Recorded]] = {}
    if not path.exists():
        return found
    with open_regular(path) as file:
        rows = csv.DictReader(_whole_lines(file))
        try:
            for row in rows:
                key = (row["module"], int(row["call"]))
                found.setdefault(key, {})[row["tensor"]] = _recorded(row)
        except (KeyError, ValueError, TypeError, AttributeError, csv.Error):
            raise FormatError(path, f"line {rows.line_num} is damaged") from None
    return found


def _whole_lines(file: BinaryIO) -> Iterator[str]:
    """Lines of text; a process that was killed leaves half a line at the end, which is left out."""
    for line in file:
        if line.endswith(b"\n"):
            yield line.decode("utf-8", "replace")


def _recorded(row: dict[str, str]) -> Recorded:
    shape = tuple(int(size) for size in row["shape"].split(",") if size)

    def number(name: str) -> float | None:
        return None if row[name] == "N/A" else float(row[name])

    def count(name: str) -> int | None:
        return None if row[name] == "N/A" else int(row[name])

    statistics = Statistics(
        min=number("min"),
        max=number("max"),
        mean=number("mean"),
        l2norm=number("l2norm"),
        nan=count("nan"),
        inf=count("inf"),
    )
    return DType.of_torch(row["dtype"]) or DType.UNDEFINED, shape, statistics
