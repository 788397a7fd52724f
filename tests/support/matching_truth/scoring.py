"""Counts what the matcher got right, wrong, and missed."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ait_llm.core import TensorRecord
from ait_llm.dumps import Dump, Operation, Tensor, TorchDump, open_dump
from ait_llm.dumps.dequantised import dequantised
from ait_llm.formats.torch_bridge import from_torch
from ait_llm.match.choose import match_runs
from ait_llm.match.model import Match, MatchOptions, Source
from ait_llm.match.pairing import pair_runs
from ait_llm.match.scenario import find_scenario
from ait_llm.match.views import Plus, View, apply
from ait_llm.program.adapted import adapted
from matching_truth.contents import HUGE, Array, shared
from matching_truth.program import Captured

SUM = -1
"""Process of a key that stands for the sum over all processes."""
EXACT = 1e-9
"""How far two runs in float64 may lie apart, relative to the largest number of a tensor."""


STATE = re.compile(r"past_key_values|layer_past|cache_params|^input_\d+_(key|value)$")
"""Arguments and results that hold what earlier passes made; they are compared, but not counted.

The last are those of a cache that was handed on by position, as GPT-2 does.
"""


class Key(NamedTuple):
    """Where a tensor of a dump stands, whichever capture of the program it is from."""

    process: int
    step: int
    op: str
    call: int
    tensor: str

    def __str__(self) -> str:
        call = f"@{self.call}" if self.call else ""
        rank = f" of process {self.process}" if self.process else ""
        return f"{self.op}{call} {self.tensor}, step {self.step}{rank}"


StepOf = Callable[[Key], int]
Real = Callable[[Array], Array]


def own_step(key: Key) -> int:
    """The step under which a tensor was captured."""
    return key.step


def whole(array: Array) -> Array:
    """A tensor without padding."""
    return array


@dataclass(frozen=True)
class Score:
    """How well a pair of programs was matched.

    Attributes:
        right: tensors of both sides that the other holds and that are in a right pair.
        wrong: pairs whose values differ in a healthy run.
        missed: tensors of both sides that the other holds and that are in no right pair.
        seconds: for pairing the passes and matching them.
        details: a line for each wrong pair and each missed tensor.
    """

    right: int
    wrong: int
    missed: int
    seconds: float
    details: tuple[str, ...]

    @property
    def total(self) -> int:
        """Tensors of both sides that the other holds in some form."""
        return self.right + self.missed

    @property
    def recall(self) -> float:
        """Share of them that was found, in [0, 1]."""
        return self.right / self.total if self.total else 1.0


@dataclass(frozen=True)
class _Twin:
    """The true values of a tensor, where a view asks for the tensor."""

    array: Array

    def nd(self) -> Array:
        return self.array


class Side:
    """One side of a pair: the processes of its dump, and the truth about each tensor."""

    def __init__(self, captured: Captured) -> None:
        self._processes = _processes(captured.dump)
        self.arrays = _arrays(captured.exact)
        has_weights = captured.exact.suffix != ".npz"  # else those of the run are exact too
        saved = captured.exact if has_weights else captured.dump
        self._weights = _weights(saved, captured.dump)
        tensors = dict(_tensors(captured.dump))
        self._state = {key for key, each in tensors.items() if STATE.search(each.stem)}
        plain = {key: tensor.shape for key, tensor in tensors.items()}
        exact = {key: array.shape for key, array in self.arrays.items()}
        if plain != exact:
            odd = next(
                key for key in plain.keys() | exact.keys() if plain.get(key) != exact.get(key)
            )
            raise AssertionError(
                f"{captured.dump}: {odd} is {plain.get(odd)} as run and {exact.get(odd)} in float64"
            )

    def counted(self) -> Iterator[tuple[Key, Array]]:
        """Tensors that can be missed: all but caches, which hold what earlier passes made."""
        return ((key, array) for key, array in self.arrays.items() if key not in self._state)

    def key(self, record: TensorRecord) -> Key:
        """Of a tensor in a match."""
        process = self._processes[record.pid]
        return Key(process, record.step, record.op, record.call, record.name)

    def values(self, source: Source) -> Array:
        """The true values of one side of a match, after its views."""
        return apply(self._array(self.key(source.record)), self._true(source.views))

    def _array(self, key: Key) -> Array:
        if key in self.arrays:
            return self.arrays[key]
        return np.asarray(self._weights[key.process, f"{key.op}.{key.tensor}"].nd())

    def _true(self, views: Sequence[View]) -> list[View]:
        """Views that take other tensors along take the true values of those."""
        return [
            replace(
                view, tensor=_Twin(self._array(self.key(view.record))), views=self._true(view.views)
            )
            if isinstance(view, Plus)
            else view
            for view in views
        ]


@lru_cache(maxsize=8)  # pairs in a row share captures, and several questions are asked of each
def _opened(folder: Path) -> tuple[Dump, tuple[Operation, ...]]:
    dump = open_dump(folder)
    return dump, tuple(dump.operations())


@lru_cache(maxsize=3)
def _side(captured: Captured) -> Side:
    return Side(captured)


def _processes(folder: Path) -> dict[int, int]:
    """Number of each process by its id: its rank, else its place."""
    found = {}
    for place, process in enumerate(_opened(folder)[0].processes):
        rank = (process.header.get("environment") or {}).get("RANK")
        found[process.pid] = place if rank is None else int(rank)
    return found


def _weights(folder: Path, run: Path) -> dict[tuple[int, str], Tensor]:
    """Parameters and buffers of each process by their dotted names, also those stored in parts.

    Args:
        folder: where they are saved.
        run: whose modules say how they put parts together.
    """
    dump, captured = _opened(folder)
    assert isinstance(dump, TorchDump)
    operations = list(_opened(run)[1])
    names = _processes(folder)
    found: dict[tuple[int, str], Tensor] = {}
    for pid, process in names.items():
        weights = {tensor.stem: tensor for tensor in dump.weights(pid=pid)}
        weights |= {name: each.tensor for name, each in dequantised(weights).items()}
        weights |= adapted(weights, operations)
        found |= {(process, name): tensor for name, tensor in weights.items()}
    for operation in captured:  # a parameter that modules share has all of their names
        for name, tensor in operation.parameters.items():
            found.setdefault((names[operation.pid], name), tensor)
    return found


def _arrays(path: Path) -> dict[Key, Array]:
    if path.suffix == ".npz":
        with np.load(path) as saved:
            return {Key(*json.loads(name)): saved[name] for name in saved}
    unwritten = _unwritten(path)
    return {
        key: np.full(tensor.shape, np.nan) if key in unwritten else _values(tensor)
        for key, tensor in _tensors(path)
    }


def _values(tensor: Tensor) -> Array:
    """Those of a capture of PyTorch, read where they lie: ``torch.load`` takes most of the time."""
    return from_torch(tensor.torch())[0]


def _unwritten(folder: Path) -> set[Key]:
    """Memory that was handed out and not written yet.

    What it held before would pass for a value. ``UnwrittenIsNaN`` fills it in runs of our own;
    recordings of engines that are their own truth were made without it.
    """
    fresh: set[tuple[int, int, int, int]] = set()
    found = set()
    for key, operation, tensor in _uses(folder):
        identity = tensor.identity
        if identity is None:
            continue
        place = (key.process, key.step, identity.storage, identity.version)
        if tensor.role == "out" and operation.type.startswith(_UNWRITTEN):
            fresh.add(place)
        if place in fresh and _values(tensor).dtype.kind == "f":
            found.add(key)
    return found


_UNWRITTEN = ("aten.empty", "aten.new_empty")


def _tensors(folder: Path) -> Iterator[tuple[Key, Tensor]]:
    return ((key, tensor) for key, _, tensor in _uses(folder))


def _uses(folder: Path) -> Iterator[tuple[Key, Operation, Tensor]]:
    processes = _processes(folder)
    for operation in _opened(folder)[1]:
        for tensor in operation.tensors:
            key = Key(
                processes[operation.pid],
                operation.step,
                operation.name,
                operation.call,
                tensor.name,
            )
            yield key, operation, tensor


def score_captures(
    golden: Captured,
    mine: Captured,
    tolerance: float = EXACT,
    step_of: StepOf = own_step,
    real: Real = whole,
) -> Score:
    """Match two captures as ``compare`` does and hold the pairs against the truth.

    Args:
        golden, mine: the captures.
        tolerance: how far equal numbers may lie apart, relative to the largest of the tensor.
        step_of: the forward pass of a tensor of mine.
        real: what of a golden tensor is no padding.
    """
    sides = _side(golden), _side(mine)
    start = time.perf_counter()
    pairing = pair_runs(find_scenario(golden.dump, mine.dump))
    options = MatchOptions()
    pairs = [
        each
        for pair in pairing.pairs
        for each in match_runs(pair.golden, pair.mine, options)
        if isinstance(each, Match) and not each.is_self_check
    ]
    seconds = time.perf_counter() - start
    held = _held(sides, tolerance, step_of, real)
    answered: tuple[set[Key], set[Key]] = (set(), set())
    details = []
    for pair in pairs:
        keys = sides[0].key(pair.golden.record), sides[1].key(pair.mine.record)
        problem = difference(sides[0], sides[1], pair, tolerance)
        if problem:
            details.append(f"WRONG  {keys[0]}  <->  {keys[1]}: {problem} ({pair.reason})")
        else:
            answered[0].add(keys[0])
            answered[1].add(keys[1])
            for side, record in pair.uses:
                place = int(side == "mine")
                answered[place].add(sides[place].key(record))
    wrong = len(details)
    right = 0
    for name, keys, found in zip(("golden", "mine"), held, answered, strict=True):
        right += len(keys.keys() & found)
        details += [
            f"missed {name} {key}, held by {keys[key]}" for key in sorted(keys.keys() - found)
        ]
    return Score(right, wrong, len(details) - wrong, seconds, tuple(details))


def _held(
    sides: tuple[Side, Side], tolerance: float, step_of: StepOf, real: Real
) -> tuple[dict[Key, Key], dict[Key, Key]]:
    """Tensors that the other side has in some form in the same pass, sums over ranks included."""
    result: tuple[dict[Key, Key], dict[Key, Key]] = ({}, {})
    steps = {key.step for key in sides[0].arrays}
    for step in sorted(steps):
        golden = {key: real(each) for key, each in sides[0].counted() if key.step == step}
        mine = {key: each for key, each in sides[1].counted() if step_of(key) == step}
        sums = _summed(golden), _summed(mine)
        found = shared({**golden, **sums[0]}, {**mine, **sums[1]}, tolerance)
        for place, own in enumerate((golden, mine)):
            for key, holder in found[place].items():
                if key.process != SUM:
                    result[place].setdefault(key, holder)
                elif holder.process != SUM:
                    for rank in (each for each in own if each._replace(process=SUM) == key):
                        result[place].setdefault(rank, holder)
    return result


def _summed(arrays: Mapping[Key, Array]) -> dict[Key, Array]:
    """The sum over processes of each tensor that all of them have in the same shape."""
    groups: dict[Key, list[Array]] = {}
    for key, array in arrays.items():
        groups.setdefault(key._replace(process=SUM), []).append(array)
    count = len({key.process for key in arrays})
    with np.errstate(over="ignore", invalid="ignore"):  # what masks and unused memory hold
        return {
            key: np.sum(parts, axis=0)
            for key, parts in groups.items()
            if len(parts) == count > 1
            and len({part.shape for part in parts}) == 1
            and parts[0].dtype.kind == "f"
        }


_FLOAT32 = 1e-6  # weights that are computed when they are read are rounded to it


def difference(golden: Side, mine: Side, pair: Match, tolerance: float) -> str:
    """Why a pair is wrong; empty for a right one."""
    try:
        first, second = golden.values(pair.golden), mine.values(pair.mine)
    except ValueError as error:
        return f"the views do not fit: {error}"
    shapes = [[length for length in each.shape if length != 1] for each in (first, second)]
    if shapes[0] != shapes[1]:
        return f"shapes {list(first.shape)} and {list(second.shape)}"
    one, other = (_plain(each) for each in (first, second))
    if np.isnan(one).any() or np.isnan(other).any():
        return "some of it was never written"
    with np.errstate(invalid="ignore"):
        distance = np.where(one == other, 0, np.abs(one - other))
    if pair.golden.tensor.stored_as or pair.mine.tensor.stored_as:  # what it was rounded from
        rounding = max(_FLOAT32, pair.golden.tensor.rounding, pair.mine.tensor.rounding)
        off = float(np.linalg.norm(distance) / np.linalg.norm(one))
        return f"{off / rounding:.1f} times what rounding costs" if off > 1.5 * rounding else ""
    scale = max(float(np.abs(each[np.isfinite(each)]).max(initial=0)) for each in (one, other))
    if (distance > tolerance * scale).any():
        share = float((~(distance <= tolerance * scale)).mean())
        return f"{100 * share:.0f} % of the numbers differ"
    return ""


def _plain(array: Array) -> Array:
    """Numbers in float64; whatever hides a place in a mask is an infinity."""
    numbers = array.astype(np.float64).reshape(-1)
    return np.where(np.abs(numbers) >= HUGE, np.copysign(np.inf, numbers), numbers)
