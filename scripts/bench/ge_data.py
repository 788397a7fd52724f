"""Makes the dump of the graph engine that reading is timed on: layers of a decoder."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "support"))
from ge_dump_files import BF16, BOOL, FLOAT, FLOAT16, FRACTAL_NZ, INT8, INT64, Stored, write_file

_TREE = "worldsize1_global_rank0/20241125192345/0/graph_1_0/1/0"
_FIRST = 1732533825000000  # microseconds
_WIDTHS = {BF16: 2, FLOAT16: 2, FLOAT: 4, INT8: 1, INT64: 8, BOOL: 1}
_TOKENS, _HIDDEN, _INNER, _HEADS = 512, 2048, 5504, 16

_Made = tuple[int, tuple[int, ...], bool]
_X: _Made = (BF16, (_TOKENS, _HIDDEN), False)
_GATE: _Made = (BF16, (_TOKENS, _INNER), False)
_WIDE: _Made = (FLOAT, (_TOKENS, _INNER), False)
_SCORES: _Made = (FLOAT, (_HEADS, _TOKENS, _TOKENS), False)

# Operators of one layer: type, inputs, outputs.
_LAYER: tuple[tuple[str, tuple[_Made, ...], tuple[_Made, ...]], ...] = (
    ("RmsNorm", (_X, (BF16, (_HIDDEN,), False)), (_X, (FLOAT, (_TOKENS, 1), False))),
    (
        "MatMulV2",
        (_X, (BF16, (_HIDDEN, 3 * _HIDDEN), True)),
        ((BF16, (_TOKENS, 3 * _HIDDEN), False),),
    ),
    ("RotaryMul", (_X, _X, _X), (_X,)),
    ("RotaryMul", (_X, _X, _X), (_X,)),
    ("BatchMatMulV2", (_X, _X), (_SCORES,)),
    ("MaskedFill", (_SCORES, (BOOL, (_TOKENS, _TOKENS), False)), (_SCORES,)),
    ("SoftmaxV2", (_SCORES,), (_SCORES,)),
    (
        "QuantBatchMatmulV3",
        (
            (INT8, (_TOKENS, _HIDDEN), False),
            (INT8, (_HIDDEN, _HIDDEN), False),
            (FLOAT, (_HIDDEN,), False),
        ),
        ((FLOAT16, (_TOKENS, _HIDDEN), False),),
    ),
    ("Add", (_X, _X), (_X,)),
    ("MatMulV2", (_X, (FLOAT16, (_HIDDEN, _INNER), True)), (_GATE,)),
    ("Cast", (_GATE,), (_WIDE,)),
    ("AutomaticBufferFusionOp", (_WIDE, _WIDE), (_GATE,)),
    *(("GatherV2", ((INT64, (_TOKENS,), False), (INT64, (1,), False)), (_X,)) for _ in range(2)),
    *(
        (kind, ((INT64, (_TOKENS,), False), (INT64, (), False)), ((INT64, (1, _TOKENS), False),))
        for kind in ("Add", "Less", "ConcatV2D", "Range", "Pack", "StridedSliceD", "Cast", "Mul")
        for _ in range(3)
    ),
)


def write_dump(folder: Path, byte_count: int) -> tuple[int, int]:
    """Write layers until there are so many bytes.

    Returns:
        Number of files, and their bytes.
    """
    pool = np.random.default_rng(1).integers(0, 256, 64 << 20, np.uint8)
    # Finite numbers: the exponents of 16-bit floats stay below their highest.
    pool[1::2] &= 0xBB
    files = total = 0
    while total < byte_count:
        for kind, inputs, outputs in _LAYER:
            files += 1
            name = f"{kind}.{kind}_{files}.{files}.7.{_FIRST + files}"
            tensors = [[_stored(made, pool, files) for made in side] for side in (inputs, outputs)]
            path = write_file(folder / _TREE / name, *tensors, op_name=f"{kind}_{files}")
            total += path.stat().st_size
    return files, total


def _stored(made: _Made, pool: np.ndarray, seed: int) -> Stored:
    kind, logical, is_nz = made
    shape = logical
    if is_nz:
        rows, columns = logical
        shape = (math.ceil(columns / 16), math.ceil(rows / 16), 16, 16)
    length = math.prod(shape) * _WIDTHS[kind]
    start = seed * 4096 % (pool.size - length) if length < pool.size else 0
    data = pool[start : start + length].tobytes()
    return Stored(data, kind, shape, FRACTAL_NZ if is_nz else 2, logical)
