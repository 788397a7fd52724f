"""The user's table of operator types: which torch modules an ATB operation stands for.

The file is that of the manual: an object whose keys are ATB types and whose values are one torch
type or a list of them. A suffix selects a tensor: ``CommonLayer_outtensor0``,
``GLMBlock_output_0``.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ait_llm.dumps.model import Tensor
from ait_llm.errors import AitError, FormatError
from ait_llm.formats.opening import read_small
from ait_llm.match.model import Match, MatchOptions, SideName, Unmatched, matchers
from ait_llm.match.operators import Placed, placed
from ait_llm.match.programs.shapes import make_views
from ait_llm.match.programs.tokens import Tokens, find_tokens
from ait_llm.program.describe import logical_shape
from ait_llm.program.one_pass import Pass
from ait_llm.program.program import Program

FILE_NAME = "op_mapping_file.json"
MAX_BYTES = 4 << 20
_ATB_SUFFIX = re.compile(r"(.+)_((?:in|out)tensor[0-9]{1,4})")
_TORCH_SUFFIX = re.compile(r"(.+?)_((?:input|output)(?:_[0-9]{1,4})*)")
_LAYER = re.compile(r"\.([0-9]+)(?:\.|$)")
_ADD = 8  # ElewiseOperation elewiseType
_CONFIDENCE = 0.95


def find_mapping_file(path: Path) -> Path:
    """The file itself, or ``op_mapping_file.json`` in a folder.

    Raises:
        FormatError: there is none.
    """
    if not path.is_dir():
        return path
    file = path / FILE_NAME
    if not file.is_file():
        raise FormatError(path, f"holds no {FILE_NAME}", "Give the file itself or its folder")
    return file


def read_op_mapping(path: Path) -> dict[str, tuple[str, ...]]:
    """Read and check a table: ATB types, perhaps with a tensor, to torch types.

    Args:
        path: the file, or the folder of ``op_mapping_file.json``.

    Raises:
        FormatError: there is none, or it is not such a table; the reason names the key.
    """
    path = find_mapping_file(path)
    table = read_json(path)
    if not isinstance(table, dict):
        raise FormatError(path, "is not a JSON object of ATB types and torch types")
    mapping: dict[str, tuple[str, ...]] = {}
    for key, value in table.items():
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not values or not all(map(_is_name, values)):
            raise FormatError(
                path,
                f"{key!r} has the value {json.dumps(value)[:80]}, "
                "not a torch type or a list of torch types",
            )
        if not _is_name(key):
            raise FormatError(path, f"{key!r} is not the name of an ATB type")
        mapping[key] = tuple(values)
    if not mapping:
        raise FormatError(path, "maps nothing")
    return mapping


def read_json(path: Path) -> object:
    """The content of a small JSON file; repeated keys are refused, for one of them would win.

    Raises:
        FormatError: it cannot be read or is no JSON.
    """
    text = read_small(path, MAX_BYTES)
    try:
        return json.loads(text, object_pairs_hook=lambda pairs: _object(path, pairs))
    except (ValueError, RecursionError) as error:
        raise FormatError(path, f"is not JSON: {error}") from None


def _object(path: Path, pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise FormatError(path, f"has the key {twice!r} twice")
    return found


def _is_name(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_.]{1,256}", value) is not None


@matchers.register("op_mapping")
def op_mapping(golden: Pass, mine: Pass, options: MatchOptions) -> Iterator[Match | Unmatched]:
    """Operations and modules of the types in the table, in order.

    Equal counts in the whole run, else equal counts within each layer, make pairs; other counts
    make none and are reported.
    """
    atb, torch = (golden, mine) if golden.traits.library else (mine, golden)
    pairing = _Pairing(atb, torch, "golden" if atb is golden else "mine")
    for key, kinds in (options.op_mapping or {}).items():
        yield from pairing.match(
            _parse(key, _ATB_SUFFIX), [_parse(k, _TORCH_SUFFIX) for k in kinds]
        )


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A type and which of its tensors; None for all outputs."""

    kind: str
    tensor: str | None


def _parse(text: str, suffix: re.Pattern[str]) -> _Wanted:
    match = suffix.fullmatch(text)
    return _Wanted(text, None) if match is None else _Wanted(match[1], match[2])


class _Pairing:
    def __init__(self, atb: Pass, torch: Pass, atb_side: SideName) -> None:
        self._atb, self._torch = placed(atb), placed(torch)
        self._side = atb_side
        self._tokens = _tokens(atb, torch)
        tops: dict[str, list[int]] = defaultdict(list)
        for each in self._atb:
            if len(each.operation.op_id.parts) == 1:
                tops[each.operation.type].append(each.operation.op_id.parts[0])
        self._layers = {
            top: number
            for members in tops.values()
            if len(members) > 1
            for number, top in enumerate(members)
        }

    def match(self, atb: _Wanted, kinds: Sequence[_Wanted]) -> Iterator[Match | Unmatched]:
        """Pairs of one line of the table; of several torch types those that the model has."""
        ours = _of_type(self._atb, atb.kind)
        if not ours:
            return
        refused: list[str] = []
        done = False
        for kind in kinds:
            theirs = _of_type(self._torch, kind.kind)
            if not theirs:
                continue
            rows = self._rows(ours, theirs)
            if rows is None:
                refused.append(f"{len(ours)} {atb.kind} against {len(theirs)} {kind.kind}")
                continue
            done = True
            for one, other in rows:
                yield from self._tensors(one, atb, other, kind)
        if refused and not done:
            reason = f"the mapping file says nothing about their order: {', '.join(refused)}"
            for each in ours:
                for tensor in each.operation.outputs:
                    yield each.unmatched(self._side, tensor, reason)

    def _rows(
        self, atb: Sequence[Placed], torch: Sequence[Placed]
    ) -> list[tuple[Placed, Placed]] | None:
        if len(atb) == len(torch):
            return list(zip(atb, torch, strict=True))
        ours, theirs = self._by_layer(atb, torch)
        if -1 in ours or -1 in theirs or len(ours) != len(theirs):
            return None
        rows: list[tuple[Placed, Placed]] = []
        for one, other in zip(ours.values(), theirs.values(), strict=True):
            if len(one) != len(other):
                return None
            rows += zip(one, other, strict=True)
        return rows

    def _by_layer(
        self, atb: Sequence[Placed], torch: Sequence[Placed]
    ) -> tuple[dict[int, list[Placed]], dict[int, list[Placed]]]:
        """Operations by number of their layer, -1 outside of layers."""
        ours: dict[int, list[Placed]] = defaultdict(list)
        theirs: dict[int, list[Placed]] = defaultdict(list)
        for each in atb:
            ours[self._layers.get(each.operation.op_id.parts[0], -1)].append(each)
        for each in torch:
            match = _LAYER.search(each.operation.name)
            theirs[int(match[1]) if match is not None else -1].append(each)
        return dict(sorted(ours.items())), dict(sorted(theirs.items()))

    def _tensors(
        self, atb: Placed, wanted: _Wanted, torch: Placed, kind: _Wanted
    ) -> Iterator[Match | Unmatched]:
        atb = self._with_bias(atb) if wanted.tensor is None else atb
        ours, theirs = _atb_tensors(atb, wanted), _torch_tensors(torch, kind)
        if wanted.tensor is None and kind.tensor is None:
            count = min(len(ours), len(theirs))
            ours, theirs = ours[:count], theirs[:count]
        for one, other in zip(ours, theirs, strict=False):
            yield from self._pair((atb, one), (torch, other), f"{wanted.kind} is {kind.kind}")

    def _with_bias(self, atb: Placed) -> Placed:
        """The sum that adds the bias, where the product and it are two operations."""
        operation = atb.operation
        place = atb.order - self._atb[0].order + 1
        if operation.type != "LinearOperation" or place >= len(self._atb):
            return atb
        following = self._atb[place]
        try:
            is_sum = (
                following.operation.type == "ElewiseOperation"
                and following.operation.op_id.parent == operation.op_id.parent
                and operation.params.get("hasBias") is False
                and following.operation.params.get("elewiseType") == _ADD
            )
            if not is_sum:
                return atb
            width = logical_shape(operation.outputs[0])[-1:]
            added = [logical_shape(tensor) for tensor in following.operation.inputs]
        except (AitError, IndexError):
            return atb
        is_bias = any(tuple(dim for dim in shape if dim != 1) == width for shape in added)
        return following if is_bias else atb

    def _pair(
        self, atb: tuple[Placed, Tensor], torch: tuple[Placed, Tensor], reason: str
    ) -> Iterator[Match | Unmatched]:
        ours: tuple[SideName, SideName] = (
            ("golden", "mine") if self._side == "golden" else ("mine", "golden")
        )
        try:
            shapes = logical_shape(atb[1]), logical_shape(torch[1])
            views = make_views(*shapes, self._tokens)
        except AitError as error:
            refusal = str(error)
        else:
            if views is not None:
                one = atb[0].source(atb[1], views.left)
                other = torch[0].source(torch[1], views.right)
                golden, mine = (one, other) if self._side == "golden" else (other, one)
                yield Match(golden, mine, "op_mapping", _CONFIDENCE, f"mapping file: {reason}")
                return
            refusal = f"mapping file: {reason}, but shapes {list(shapes[0])} and {list(shapes[1])}"
        yield atb[0].unmatched(ours[0], atb[1], refusal)
        yield torch[0].unmatched(ours[1], torch[1], refusal)


def _tokens(atb: Pass, torch: Pass) -> Tokens | None:
    try:
        return find_tokens(Program(atb), Program(torch))
    except AitError:
        return None


def _of_type(operations: Sequence[Placed], kind: str) -> list[Placed]:
    """Operations of exactly that type, or of types that contain it, as the manual has it."""
    exact = [each for each in operations if each.operation.type == kind]
    return exact or [each for each in operations if kind in each.operation.type]


def _atb_tensors(each: Placed, wanted: _Wanted) -> list[Tensor]:
    if wanted.tensor is None:
        return list(each.operation.outputs)
    return [tensor for tensor in each.tensors if tensor.name == wanted.tensor]


def _torch_tensors(each: Placed, wanted: _Wanted) -> list[Tensor]:
    """Values by stem; ``output`` and ``output_0`` both mean the first one."""
    if wanted.tensor is None:
        return list(each.operation.outputs)
    stems: Mapping[str, Tensor] = {tensor.stem or tensor.name: tensor for tensor in each.tensors}
    aliases = {"output": "output_0", "output_0": "output", "input": "input_0"}
    found = stems.get(wanted.tensor) or stems.get(aliases.get(wanted.tensor, ""))
    return [] if found is None else [found]
