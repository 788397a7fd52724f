"""Dumps of one operator of the graph engine, with the graph that says what it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from ge_dump_files import BOOL, FLOAT, FLOAT16, INT8, INT32, INT64, UINT8, Stored, of, write_file

UINT64 = 10
_TYPES = {
    np.dtype(np.float32): FLOAT,
    np.dtype(np.float16): FLOAT16,
    np.dtype(np.int8): INT8,
    np.dtype(np.uint8): UINT8,
    np.dtype(np.int32): INT32,
    np.dtype(np.int64): INT64,
    np.dtype(np.uint64): UINT64,
    np.dtype(np.bool_): BOOL,
}
Array = np.ndarray
Attribute = int | float | str | bool


def engine_dump(
    folder: Path,
    type: str,
    inputs: Mapping[str, Array | None],
    attributes: Mapping[str, Attribute],
    outputs: Sequence[Array],
    *,
    in_place: bool = False,
) -> Path:
    """Write a dump of one operator.

    Args:
        folder: where to.
        type: of the operator.
        inputs: by the names of the prototype, in its order; None for what is not fed.
        attributes: of the operator.
        outputs: what it made.
        in_place: the first output has the address of the first input.
    """
    folder.mkdir(parents=True, exist_ok=True)
    fed = [(name, array) for name, array in inputs.items() if array is not None]
    (folder / "dynamo_original_graph_1_rank_0_pid_7_ts_20241125192345000001.txt").write_text(
        _graph(type, inputs, attributes, len(outputs))
    )
    stored = [_stored(array, in_place and place == 0) for place, (_, array) in enumerate(fed)]
    made = [_stored(array, in_place and place == 0) for place, array in enumerate(outputs)]
    run = folder / "20241125192345/0/graph_1_0/1/0"
    write_file(run / f"{type}.{type}.1.6.1732533825000001", stored, made)
    return folder


def _graph(
    type: str,
    inputs: Mapping[str, Array | None],
    attributes: Mapping[str, Attribute],
    outputs: int,
) -> str:
    fed = [name for name, array in inputs.items() if array is not None]
    lines = ['name: "graph_1"']
    lines += [f'op {{ name: "{name}_in" type: "Data" output_desc {{ }} }}' for name in fed]
    edges = " ".join(f'input: "{name}_in:0"' if name in fed else 'input: ""' for name in inputs)
    values = " ".join(
        f'attr {{ key: "{name}" value {{ {_value(value)} }} }}'
        for name, value in attributes.items()
    )
    ports = " ".join(f'input_desc {{ name: "{name}" }}' for name in inputs)
    made = " ".join(["output_desc { }"] * outputs)
    lines.append(f'op {{ name: "{type}" type: "{type}" {edges} {values} {ports} {made} }}')
    last = " ".join(f'input: "{type}:{place}"' for place in range(outputs))
    lines.append(f'op {{ name: "NetOutput" type: "NetOutput" {last} }}')
    return "\n".join(lines) + "\n"


def _value(value: Attribute) -> str:
    if isinstance(value, bool):
        return f"b: {str(value).lower()}"
    if isinstance(value, str):
        return f's: "{value}"'
    return f"i: {value}" if isinstance(value, int) else f"f: {value}"


def _stored(array: Array, is_shared: bool) -> Stored:
    return of(array, _TYPES[array.dtype], address=4096 if is_shared else 0)
