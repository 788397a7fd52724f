"""FX dumps for tests: the recorded one of torchair, and small ones made here."""

from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np

SAMPLE = Path(__file__).parents[1] / "data" / "torchair" / "fx_fp16_dynamic.tar.xz"
TIME = 20240102030405000000


def unpack_sample(folder: Path) -> Path:
    """The recorded dump; three graphs, of which the third ran three times."""
    with tarfile.open(SAMPLE) as archive:
        archive.extractall(folder, filter="data")
    return folder / "fx_fp16_dynamic"


def write_node(
    folder: Path,
    node: str,
    target: str,
    inputs: dict[str, object],
    outputs: dict[str, object],
    time: int = TIME,
) -> None:
    """The files of one node, by place: ``{"0": array, "1.0": array}``."""
    folder.mkdir(parents=True, exist_ok=True)
    for word, values in (("INPUT", inputs), ("OUTPUT", outputs)):
        for place, value in values.items():
            np.save(folder / f"{node}-{target}.{word}.{place}.{time}.npy", np.asarray(value))


def write_add(folder: Path, node: str = "add", time: int = TIME, value: float = 1.0) -> None:
    """A node that adds two arrays."""
    array = np.full(4, value, dtype=np.float32)
    write_node(folder, node, "aten.add.Tensor", {"0": array, "1": array}, {"0": 2 * array}, time)
