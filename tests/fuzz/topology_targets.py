"""Graphs: of the graph engine, of ATB and of FX."""

from __future__ import annotations

import lzma
from pathlib import Path

import seeds
from compiled_dumps import graph_text
from engine import Target
from mutations import mutate_json, mutate_text, table_mutation

from ait_llm.dumps.graphs import graph_ids
from ait_llm.topology.proto_text import parse_message
from ait_llm.topology.sources import read_described
from ait_llm.topology.ssa import to_program

_ORIGINAL = "dynamo_original_graph_1_rank_0_pid_2194_ts_20261121091647917887.txt"
_OPTIMIZED = "dynamo_optimized_graph_1_rank_0_pid_2194_ts_20261121091648080899.txt"
_PBTXT = "dynamo_original_graph_1_rank_0_pid_2292_ts_20261121091730049323.pbtxt"
_FX_CODE = "dynamo_original_graph_1_rank_0_pid_6952_ts_20261121235103886818.py"


def _read(path: Path) -> None:
    graph, _ = read_described(path)
    to_program(graph)


def _read_atb(path: Path) -> None:
    graph_ids(path, 0)
    _read(path)


def _read_text(path: Path) -> None:
    """A message in a string, whose reader tells its caller with a ValueError."""
    try:
        parse_message(path.read_bytes().decode("utf-8", "replace"))
    except ValueError as error:
        if not str(error).startswith("line "):
            raise


def _texts() -> list[bytes]:
    one_line = (
        b'op { name: "a" type: "B" input: "c:0" attr < key: "k" value { list { i: [1,2] } } > }'
    )
    return [
        seeds.graph_text(f"{_ORIGINAL}.xz"),
        seeds.graph_text(f"{_OPTIMIZED}.xz", 6),
        graph_text().encode(),
        one_line,
    ]


def _fx_code() -> list[bytes]:
    return [lzma.decompress((seeds.DATA / "torchair" / f"{_FX_CODE}.xz").read_bytes())]


def _pbtxt() -> list[bytes]:
    return [seeds.graph_text(f"{_PBTXT}.xz")]


def _atb() -> list[bytes]:
    patterns = "topology/official/*.json", "topology/demo/*/4242/*.json", "topology/old-model.json"
    return seeds.recorded(*patterns, most=10)


def _table_of(folder: Path) -> None:
    """The topology that a table of shapes belongs to."""
    home = folder / "layer" / "4242"
    home.mkdir(parents=True)
    layer = seeds.DATA / "topology/demo/layer/4242/DecoderLayer_0.json"
    (home / layer.name).write_bytes(layer.read_bytes())


def _read_table(path: Path) -> None:
    layer = path.parents[2] / "layer" / "4242" / "DecoderLayer_0.json"
    read_described(layer, path)


TARGETS = (
    Target("ge_graph_text", _ORIGINAL, _texts, _read, mutate_text),
    Target("ge_graph_pbtxt", _PBTXT, _pbtxt, _read, mutate_text),
    Target(
        "proto_message", "attr.txt", lambda: [b's: "a"\nlist { i: 1 }'], _read_text, mutate_text
    ),
    Target("fx_code", _FX_CODE, _fx_code, _read, mutate_text),
    Target("fx_graph", "graph.json", lambda: seeds.recorded("topology/fx/*"), _read, mutate_json),
    Target("atb_topology", "layer/4242/DecoderLayer_0.json", _atb, _read_atb, mutate_json),
    Target(
        "atb_topology_table",
        "operation_io_tensors/4242/operation_tensors_0.csv",
        lambda: seeds.recorded("topology/demo/operation_io_tensors/4242/*.csv"),
        _read_table,
        table_mutation("|"),
        _table_of,
    ),
)
