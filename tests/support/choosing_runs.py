"""Dumps of a tiny program that chooses tokens, as ATB, the graph engine and FX nodes leave them.

The program looks up ids, and multiplies by the table again: ``logits = table[ids] @ table.T``. Two
requests are decoded, one token each per step, packed for ATB and ``[2, 1]`` elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from ge_dump_files import FLOAT, INT64, of, write_file

from ait_llm.core import DType, TensorDesc
from ait_llm.formats import write_tensor

WIDTH, VOCABULARY = 4, 8
GRAPH = """name: "graph_1"
op { name: "arg0_1" type: "Data" output_desc { } }
op { name: "arg1_1" type: "Data" output_desc { } }
op { name: "GatherV2" type: "GatherV2" input: "arg0_1:0" input: "arg1_1:0" output_desc {
 attr { key: "_fx_tensor_name" value { s: "embedding-aten.embedding.default.OUTPUT.0" } } } }
op { name: "MatMul" type: "MatMul" input: "GatherV2:0" input: "arg0_1:0" output_desc {
 attr { key: "_fx_tensor_name" value { s: "mm-aten.mm.default.OUTPUT.0" } } } }
op { name: "NetOutput" type: "NetOutput" input: "MatMul:0" }
"""

Array = np.ndarray


def table() -> Array:
    """The embedding, ``[VOCABULARY, WIDTH]`` float32."""
    return np.random.default_rng(0).normal(size=(VOCABULARY, WIDTH)).astype(np.float32)


def values(ids: Sequence[int]) -> tuple[Array, Array]:
    """Hidden states and logits of some ids."""
    weights = table()
    hidden = weights[list(ids)]
    return hidden, hidden @ weights.T


def atb(root: Path, steps: Sequence[Sequence[int]]) -> Path:
    """A dump of the acceleration library: each step reads these ids."""
    for step, ids in enumerate(steps):
        hidden, logits = values(ids)
        names = {
            "0_GatherOperation": (table(), np.int64(ids), hidden),
            "1_LinearOperation": (hidden, table(), logits),
        }
        for name, (first, second, out) in names.items():
            folder = root / "ait_dump/tensors/0_42" / str(step) / name / "after"
            folder.mkdir(parents=True)
            for stem, array in (("intensor0", first), ("intensor1", second), ("outtensor0", out)):
                kind = DType.INT64 if array.dtype == np.int64 else DType.FLOAT32
                write_tensor(folder / f"{stem}.bin", array, TensorDesc(kind, array.shape))
            (folder.parent / "op_param.json").write_text("{}\n")
    return root


def fx(root: Path, steps: Sequence[Sequence[int]]) -> Path:
    """A dump of FX nodes."""
    for step, ids in enumerate(steps):
        hidden, logits = values(ids)
        folder = root / f"worldsize1_global_rank0/graph_1/{step}"
        folder.mkdir(parents=True)
        column = np.int64(ids).reshape(-1, 1)
        nodes = {
            "embedding-aten.embedding.default": (table(), column, hidden[:, None]),
            "view-aten.view.default": (hidden[:, None], np.int64([len(ids), WIDTH]), hidden),
            "mm-aten.mm.default": (hidden, np.ascontiguousarray(table().T), logits),
        }
        for place, (name, (first, second, out)) in enumerate(nodes.items()):
            stamp = f"202411251923{step:02}{place:06}"
            for word, array in (("INPUT.0", first), ("INPUT.1", second), ("OUTPUT.0", out)):
                np.save(folder / f"{name}.{word}.{stamp}.npy", array)
    return root


def ge(root: Path, steps: Sequence[Sequence[int]]) -> Path:
    """A dump of the graph engine."""
    root.mkdir(parents=True)
    graph = root / "dynamo_original_graph_1_rank_0_pid_7_ts_20241125192345000001.txt"
    graph.write_text(GRAPH)
    for step, ids in enumerate(steps):
        hidden, logits = values(ids)
        folder = root / f"20241125192345/0/graph_1_0/1/{step}"
        column = np.int64(ids).reshape(-1, 1)
        files = {
            "GatherV2.GatherV2": (of(table(), FLOAT), of(column, INT64), of(hidden, FLOAT)),
            "MatMul.MatMul": (of(hidden, FLOAT), of(table(), FLOAT), of(logits, FLOAT)),
        }
        for place, (name, (first, second, out)) in enumerate(files.items()):
            moment = 1732533825000000 + 1000 * step + place
            write_file(folder / f"{name}.{place}.6.{moment}", [first, second], [out])
    return root
