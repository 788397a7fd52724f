"""What captures say of the identity of values, beside what is true.

The truth is taken from a run in which every tensor is kept alive, so that an address stands for one
storage; what a storage holds is known by all of its bytes. The capture under test runs alone, holds
nothing, and sees addresses used again.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from capture_models import ledger_lines

Key = tuple[int, str, int, str]
"""Step, path, call and stem of a tensor."""
Claim = tuple[int, int, int, tuple[int, ...]]


@dataclass
class Sight:
    """A tensor as the oracle saw it: its storage, all bytes of that, and its own."""

    storage: int
    everything: bytes
    place: tuple[Any, ...]
    value: bytes


@dataclass
class Oracle:
    """Takes the place of the capture's own knowledge, and keeps all that it is shown."""

    held: list[torch.Tensor] = field(default_factory=list)
    sights: list[Sight] = field(default_factory=list)

    def __call__(self, tensor: torch.Tensor, **_: object) -> Claim:
        self.held.append(tensor)
        storage = tensor.untyped_storage()
        everything = ctypes.string_at(storage.data_ptr(), storage.nbytes())
        place = (
            tensor.storage_offset(),
            tuple(tensor.stride()),
            tuple(tensor.shape),
            str(tensor.dtype),
        )
        value = hashlib.sha1(tensor.detach().clone().contiguous().numpy().tobytes()).digest()
        digest = hashlib.sha1(everything).digest()
        self.sights.append(Sight(storage.data_ptr(), digest, place, value))
        return (len(self.sights) - 1, 0, 0, ())


def claims(out: Path) -> dict[Key, Claim]:
    """The identities in the ledgers of a dump."""
    return {
        (line["step"], line["op"], line["call"], stem): (
            entry[0],
            entry[1],
            entry[2],
            tuple(entry[3]),
        )
        for line in ledger_lines(out)
        if line["kind"] == "op"
        for stem, entry in line.get("identity", {}).items()
    }


@contextmanager
def _as_told_by(oracle: Oracle) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ait_llm.dump.pytorch.recorder.identity_of", oracle)
        patch.setattr(
            "ait_llm.dump.pytorch.recorder.ordinary_identity",
            lambda tensor, _mark, numbers: oracle(tensor, numbers=numbers),
        )
        patch.setattr("ait_llm.dump.pytorch.seen.SeenTensors.find", lambda *_: None)
        with _filled_memory():
            yield


@contextmanager
def _filled_memory() -> Iterator[None]:
    """Fresh memory holds NaN, or the highest integer.

    Else it may hold by chance the very bytes that are written into it next, left there by the step
    before, and two values look like one.
    """
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)


@dataclass(frozen=True)
class Agreement:
    """How claims and truth compare.

    Attributes:
        tensors: ordinary tensors with elements.
        told: those with an identity.
        wrong: pairs said to be one value, or parts of one, that are not.
        parted: pairs of one value that are said to be two.
    """

    tensors: int
    told: int
    wrong: list[tuple[Key, Key]]
    parted: list[tuple[Key, Key]]


def agreement(run: Callable[[Path], None], folder: Path) -> Agreement:
    """Run a program that captures itself twice, once shown to the oracle.

    Args:
        run: captures into a folder; does the same each time.
        folder: for both dumps.
    """
    oracle = Oracle()
    with _as_told_by(oracle):
        run(folder / "truth")
    truth = {key: oracle.sights[claim[0]] for key, claim in claims(folder / "truth").items()}
    truth = {key: sight for key, sight in truth.items() if sight.storage}
    oracle.held.clear()
    run(folder / "told")
    lines = {
        (line.get("step"), line.get("op"), line.get("call"))
        for line in ledger_lines(folder / "told")
    }
    truth = {key: sight for key, sight in truth.items() if key[:3] in lines}
    told = {key: claim for key, claim in claims(folder / "told").items() if key in truth}
    wrong: list[tuple[Key, Key]] = []
    parted: list[tuple[Key, Key]] = []
    by_storage: dict[int, list[Key]] = defaultdict(list)
    by_place: dict[Any, list[Key]] = defaultdict(list)
    by_truth: dict[Any, list[Key]] = defaultdict(list)
    for key, claim in told.items():
        sight = truth[key]
        assert claim[2:] == sight.place[:2]
        by_storage[claim[0]].append(key)
        by_place[claim, sight.place].append(key)
        by_truth[sight.storage, sight.everything, sight.place].append(key)
    for keys in by_storage.values():
        wrong += [(keys[0], k) for k in keys if truth[k].storage != truth[keys[0]].storage]
    for keys in by_place.values():
        wrong += [(keys[0], k) for k in keys if truth[k].value != truth[keys[0]].value]
    for keys in by_truth.values():
        parted += [(keys[0], k) for k in keys if told[k][:2] != told[keys[0]][:2]]
    return Agreement(len(truth), len(told), wrong, parted)
