"""Dims of the row-major array that a tensor stands for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from ge_dump_files import FLOAT16, FRACTAL_NZ, Stored, nz, write_file

from ait_llm.dumps import open_dump
from ait_llm.program.describe import shape_of


def test_dims_of_the_engine_are_those_of_the_array_though_they_look_like_tiles(
    tmp_path: Path,
) -> None:
    array = np.arange(4 * 32 * 16, dtype=np.float16).reshape(1, 4, 32, 16)
    tiles = nz(array, 16)
    tensor = Stored(tiles.tobytes(), FLOAT16, tiles.shape, FRACTAL_NZ, array.shape)
    folder = tmp_path / "20241125192345/0/graph_1_0/1/0"
    write_file(folder / "Add.Add.1.2.1732533825000000", [], [tensor])
    [operation] = open_dump(tmp_path).operations()
    [output] = operation.outputs
    assert shape_of(output) == output.nd().shape == array.shape
