"""Recorded runs of vLLM and of ``transformers`` on the same checkpoints; see tests/data/engines.

What the matcher gets ran in bfloat16. The truth is another run of both programs, in float32: it is
good to five digits, which is enough, because no two values of a layer agree that well by accident.
"""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np

from matching_truth.contents import Array
from matching_truth.program import Captured
from matching_truth.scoring import Key

DATA = Path(__file__).resolve().parents[2] / "data" / "engines"
FAMILIES = ("llama", "qwen3", "mixtral", "gemma2")
OPERATORS = ("llama",)
RANKS = ("llama", "qwen3")
LENGTHS = (5, 3, 4)
"""Tokens of the prompts, which are padded on the left."""
NEAR = 5e-5
"""How far two runs in float32 may lie apart, relative to the largest number of a tensor."""


def step_of(key: Key) -> int:
    """Logits are computed after the model's pass; the recording counts them to the next one."""
    return key.step - (key.op == "root.logits_processor")


def real(array: Array) -> Array:
    """The rows of a padded batch of ``transformers`` that are tokens; vLLM packs those."""
    if array.shape[:2] != (len(LENGTHS), max(LENGTHS)):
        return array
    tokens = np.arange(max(LENGTHS)) >= max(LENGTHS) - np.array(LENGTHS)[:, None]
    rows: Array = array[tokens]
    return rows


TRUTH = (NEAR, step_of, real)


def unpack(archive: Path, folder: Path) -> Path:
    """The contents of an archive, unpacked once; in a folder of their own."""
    place = folder / "recordings" / archive.name.partition(".")[0]
    if not place.exists():
        with tarfile.open(archive) as packed:
            packed.extractall(place, filter="data")
    return place


def recorded(family: str, library: str, folder: Path) -> Captured:
    """A recorded run of a library."""
    place = unpack(DATA / f"{family}.tar.xz", folder)
    return Captured(place / library, place / f"{library}.npz")


def recorded_operators(family: str, library: str, folder: Path) -> Captured:
    """A recorded run with operators, which is its own truth."""
    place = unpack(DATA / f"{family}-operators.tar.xz", folder)
    return Captured(place / library, place / library)


def recorded_ranks(family: str, folder: Path) -> Captured:
    """Two recorded ranks of vLLM, which are their own truth."""
    place = unpack(DATA / f"{family}-ranks.tar.xz", folder)
    return Captured(place / "vllm", place / "vllm")


def recorded_litgpt(name: str, folder: Path) -> Captured:
    """A recorded program of litgpt; its truth is in float64."""
    place = unpack(DATA / "litgpt.tar.xz", folder) / name
    return Captured(place / "dump", place / "exact.npz")
