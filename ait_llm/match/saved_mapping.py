"""A mapping as a file: written after a comparison, edited by the user, and read back.

Tensors are named by what stays the same from run to run: dotted names of modules and weights,
places of ATB operations counted from the first one of their model. Process ids, execution counts
and paths do not occur, so that one file serves all steps.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ait_llm.dumps.model import Tensor
from ait_llm.errors import FormatError
from ait_llm.match.model import (
    Match,
    MatchOptions,
    SavedMapping,
    SavedPair,
    SavedTensor,
    Source,
    Unmatched,
    matchers,
)
from ait_llm.match.op_mapping import find_mapping_file, read_json, read_op_mapping
from ait_llm.match.operators import Finding, Placed, placed
from ait_llm.match.same_topology import base_of
from ait_llm.match.views import (
    Dequantise,
    FirstUse,
    Hidden,
    Part,
    Reorder,
    Repeat,
    Reshape,
    Rows,
    Shift,
    View,
    shape_after,
)
from ait_llm.program.describe import logical_shape
from ait_llm.program.run import Run

SCHEMA = "ait-llm-mapping"
VERSION = 1
_KINDS: Mapping[str, type[View]] = MappingProxyType(
    {
        kind.__name__.lower(): kind
        for kind in (Part, Rows, Reshape, Reorder, Repeat, Shift, FirstUse, Hidden, Dequantise)
    }
)
_WORDS = {kind: word for word, kind in _KINDS.items()}


def read_either(path: Path) -> tuple[dict[str, tuple[str, ...]] | None, SavedMapping | None]:
    """Read the file of ``--op-mapping-file``: a table of types, or a saved mapping.

    Returns:
        One of the two.

    Raises:
        FormatError: it is neither.
    """
    file = find_mapping_file(path)
    content = read_json(file)
    if isinstance(content, dict) and content.get("schema") == SCHEMA:
        return None, _mapping(file, content)
    return read_op_mapping(file), None


def read_mapping(path: Path) -> SavedMapping:
    """Read a mapping that :func:`write_mapping` wrote, perhaps edited.

    Raises:
        FormatError: it is none, or of a newer version; the reason names the pair.
    """
    content = read_json(path)
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        raise FormatError(path, f"is not a saved mapping, its schema is not {SCHEMA!r}")
    return _mapping(path, content)


def write_mapping(path: Path, found: Iterable[tuple[Run, Run, Iterable[Match]]]) -> None:
    """Write matches as a file for ``--op-mapping-file``.

    Args:
        path: the file; it appears complete or not at all.
        found: pairs of runs with their matches; equal lines of later steps are left out.

    Raises:
        FormatError: it cannot be written.
    """
    lines: dict[str, dict[str, Any]] = {}
    for golden, mine, matches in found:
        names = _Names(golden), _Names(mine)
        for match in matches:
            if match.is_self_check:  # has no golden tensor
                continue
            line: dict[str, Any] = {
                "golden": _side(names[0], match.golden),
                "mine": _side(names[1], match.mine),
                "rule": match.rule,
                "confidence": match.confidence,
                "reason": match.reason,
            }
            if match.alternatives:
                line["alternatives"] = list(match.alternatives)
            if names[0].model or names[1].model:
                line["models"] = [names[0].model, names[1].model]
            key = json.dumps([line["golden"], line["mine"], line.get("models")])
            lines.setdefault(key, line)
    # one line per pair: such a file is edited with grep and read with diff
    rows = ",\n".join(json.dumps(line, ensure_ascii=False) for line in lines.values())
    head = f'"schema": "{SCHEMA}",\n"version": {VERSION}'
    _write(path, f'{{\n{head},\n"pairs": [\n{rows}\n]\n}}\n')


@matchers.register("saved_mapping")
def saved_mapping(golden: Run, mine: Run, options: MatchOptions) -> Iterator[Match | Unmatched]:
    """The pairs of the user's file that these two runs have.

    Of several lines about the same two tensors the first whose views fit is taken; a file made
    from another number of tokens has views that fit no longer, and new ones are found by shape.
    """
    if options.mapping is None:
        return
    names = _Names(golden), _Names(mine)
    tensors = [
        {
            names[number].key(each, tensor): (each, tensor)
            for each in placed(run)
            for tensor in each.tensors
        }
        for number, run in enumerate((golden, mine))
    ]
    models = names[0].model, names[1].model
    groups: dict[tuple[SavedTensor, SavedTensor], list[SavedPair]] = {}
    for pair in options.mapping.pairs:
        if pair.models == models or pair.models == ("", "") or models == ("", ""):
            plain = replace(pair.golden, views=()), replace(pair.mine, views=())
            groups.setdefault(plain, []).append(pair)
    for (first, second), pairs in groups.items():
        one, other = tensors[0].get(first), tensors[1].get(second)
        if one is not None and other is not None:
            yield from _match(one, other, pairs)
            continue
        reason = "its partner in the mapping file is not in the other dump"
        if one is not None:
            yield one[0].unmatched("golden", one[1], reason)
        if other is not None:
            yield other[0].unmatched("mine", other[1], reason)


def _match(
    golden: tuple[Placed, Tensor], mine: tuple[Placed, Tensor], pairs: Sequence[SavedPair]
) -> Iterator[Match | Unmatched]:
    try:
        shapes = logical_shape(golden[1]), logical_shape(mine[1])
    except FormatError:
        shapes = None  # reading the values says what is wrong with the file
    for pair in pairs:
        views = pair.golden.views, pair.mine.views
        if shapes is None or _fit(shapes, views):
            yield Match(
                golden[0].source(golden[1], views[0]),
                mine[0].source(mine[1], views[1]),
                "saved_mapping",
                pair.confidence,
                f"mapping file: {pair.reason or pair.rule}",
            )
            return
    finding = Finding("saved_mapping", pairs[0].confidence, "mapping file, views found anew")
    yield from finding.match(golden, mine)


def _fit(
    shapes: tuple[tuple[int, ...], tuple[int, ...]],
    views: tuple[tuple[View, ...], tuple[View, ...]],
) -> bool:
    try:
        return shape_after(shapes[0], views[0]) == shape_after(shapes[1], views[1])
    except ValueError:
        return False


class _Names:
    """Names of the operations of a run that hold for every process and step."""

    def __init__(self, run: Run) -> None:
        self.model = "" if run.model is None else run.model.name
        self._is_atb = run.kind == "atb"
        tops = (each.op_id.parts[0] for each in run.operations if each.op_id.parts)
        self._base = (base_of(run) or min(tops, default=0)) if self._is_atb else 0

    def name(self, operation: str, op_id: str) -> str:
        """``Prefill_layer_8`` of a model that begins with 6 becomes ``Prefill_layer_2``."""
        if not self._is_atb:
            return operation
        top, *rest = op_id.split("_")
        kind = operation.removesuffix(f"_{op_id}")
        return "_".join([kind, str(int(top) - self._base), *rest])

    def key(self, each: Placed, tensor: Tensor) -> SavedTensor:
        """A tensor without its views."""
        operation = each.operation
        name = self.name(operation.name, str(operation.op_id))
        return SavedTensor(name, tensor.name, getattr(operation, "call", 0))


def _side(names: _Names, source: Source) -> dict[str, Any]:
    record = source.record
    side: dict[str, Any] = {"op": names.name(record.op, record.op_id), "tensor": source.tensor.name}
    if record.call:
        side["call"] = record.call
    if source.views:
        side["views"] = [{"view": _WORDS[type(view)], **asdict(view)} for view in source.views]
    return side


def _mapping(path: Path, content: Mapping[str, Any]) -> SavedMapping:
    version = content.get("version")
    if version != VERSION:
        raise FormatError(
            path, f"is of version {version!r}, this program reads {VERSION}", "Update ait-llm"
        )
    lines = content.get("pairs")
    if not isinstance(lines, list):
        raise FormatError(path, "has no list 'pairs'")
    return SavedMapping(
        str(path), tuple(_pair(path, number, line) for number, line in enumerate(lines, 1))
    )


def _pair(path: Path, number: int, line: Any) -> SavedPair:
    try:
        models = line.get("models", ["", ""])
        confidence = float(line.get("confidence", 1.0))
        if not 0 <= confidence <= 1 or len(models) != 2:
            raise ValueError
        return SavedPair(
            _tensor(line["golden"]),
            _tensor(line["mine"]),
            str(line.get("rule", "given")),
            confidence,
            str(line.get("reason", "")),
            (str(models[0]), str(models[1])),
        )
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        detail = f": {error}" if str(error) else ""
        raise FormatError(
            path, f"pair {number} does not name two tensors as 'op' and 'tensor'{detail}"
        ) from None


def _tensor(side: Any) -> SavedTensor:
    call = side.get("call", 0)
    if not (isinstance(side["op"], str) and isinstance(side["tensor"], str) and type(call) is int):
        raise ValueError("names are texts and 'call' is a number")
    return SavedTensor(
        side["op"], side["tensor"], call, tuple(_view(view) for view in side.get("views", ()))
    )


def _view(line: Any) -> View:
    """A view from its JSON form; every field is numbers or a list of numbers."""
    values = {key: value for key, value in line.items() if key != "view"}
    kind = _KINDS.get(line["view"])
    if kind is None:
        raise ValueError(f"unknown view {line['view']!r}")
    for key, value in values.items():
        numbers = value if isinstance(value, list) else [value]
        real = kind in (Dequantise, Hidden) and key != "axis"
        if not all(type(number) is int or (real and type(number) is float) for number in numbers):
            raise ValueError(f"{key!r} of view {line['view']!r} is not numbers")
        if isinstance(value, list):
            values[key] = tuple(value)
    return kind(**values)


def _write(path: Path, text: str) -> None:
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
            Path(temporary).chmod(0o640)
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise FormatError(path, f"cannot be written: {error.strerror}") from None
