"""Whole dumps in which one file is damaged: opened, listed and read as the commands do."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import seeds
from capture_models import Decoder, capture, ids
from engine import Target
from fx_dumps import write_add
from graph_dumps import GraphDump
from mutations import mutate_json, mutate_json_lines, mutate_text

from ait_llm import open_dump
from ait_llm.compare.api.run import compare_api_dumps
from ait_llm.compare.api.settings import ApiOptions
from ait_llm.dumps.api_json import read_members, read_value
from ait_llm.dumps.describe import describe
from ait_llm.dumps.model import Dump
from ait_llm.errors import AitError

_STEP = "step0/rank0"
_OPERATIONS = 4  # whose values are read; all are listed
_GRAPH = "worldsize1_global_rank0/graph_1"


def walk(folder: Path) -> None:
    """Ask a dump for all it has. Parts that are damaged say so, and the others are still read.

    Raises:
        AitError: the first of those that were raised.
    """
    dump: Dump = open_dump(folder)
    raised: list[AitError] = []

    def ask(question: Callable[[], object]) -> None:
        try:
            question()
        except AitError as error:
            raised.append(error)

    ask(lambda: [process.problem for process in dump.processes])
    ask(lambda: (dump.steps, dump.layers, dump.models))
    ask(lambda: list(describe(dump, tensors=True)))
    operations: list[Any] = []
    ask(lambda: operations.extend(dump.operations()))
    for operation in operations[:_OPERATIONS]:
        ask(lambda each=operation: (each.op_id, each.type, each.params, each.kernels, each.phases))
        ask(lambda each=operation: each.path)
        tensors: list[Any] = []
        ask(lambda each=operation, found=tensors: found.extend((*each.inputs, *each.outputs)))
        for tensor in tensors:
            for name in ("dtype", "shape", "format", "has_data", "statistics"):
                ask(lambda each=tensor, name=name: getattr(each, name))
            for name in ("payload", "numpy", "nd"):
                ask(lambda each=tensor, name=name: getattr(each, name)())
    if raised:
        raise raised[0]


@functools.cache
def _kept(make: Callable[[Path], object]) -> Path:
    """A dump that was made once, to be copied; it lies where temporary files do."""
    folder = Path(tempfile.mkdtemp(prefix="ait-fuzz-seed-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    make(folder / "out")
    return folder / "out"


def _copied(make: Callable[[Path], object]) -> Callable[[Path], object]:
    return lambda folder: shutil.copytree(_kept(make), folder, dirs_exist_ok=True)


def _content(make: Callable[[Path], object], pattern: str) -> Callable[[], list[bytes]]:
    return lambda: [path.read_bytes() for path in sorted(_kept(make).glob(pattern))]


def _api(folder: Path) -> None:
    """The smallest records of a recorded capture, with their files."""
    name = "zoo_tensor/target/step0/rank0"
    files = seeds.unpacked("msprobe/zoo_tensor.tar.xz")
    rank = folder / _STEP
    (rank / "dump_tensor_data").mkdir(parents=True)
    kept = seeds.small_dump("msprobe/zoo_tensor.tar.xz", f"{name}/dump.json")
    (rank / "dump.json").write_bytes(kept)
    records = json.loads(kept)["data"]
    for path, content in files.items():
        file = path.removeprefix(f"{name}/dump_tensor_data/")
        if path != file and any(file.startswith(record) for record in records):
            (rank / "dump_tensor_data" / file).write_bytes(content)
    construct = dict.fromkeys(records) | {next(iter(records)): "Module.a.A.forward.0"}
    (rank / "construct.json").write_text(json.dumps(construct))
    stacks = {"0": [list(records)[:2], ["File a.py, line 1, in f, \n x()", "File b.py"]]}
    (rank / "stack.json").write_text(json.dumps(stacks))
    (folder / "ledger").mkdir()
    entries: list[Any] = [{"kind": "header", "schema": 1, "producer": "api", "device": "rank0"}]
    for record in records:
        entries.append(
            {
                "kind": "op",
                "op": record,
                "type": "x",
                "path": _STEP,
                "phase": "after",
                "step": 0,
                "state": "saved",
                "tensors": 1,
                "bytes": 4,
            }
        )
    entries.append({"kind": "seal", "end": "exit"})
    (folder / "ledger" / "rank0_7.jsonl").write_bytes(seeds.json_bytes(entries))


def _walk_api(path: Path) -> None:
    folder = next(each.parent for each in path.parents if each.name == "step0")
    walk(folder)


def _compare_api(path: Path) -> None:
    output = path.parents[2] / "output"
    shutil.rmtree(output, ignore_errors=True)
    options = ApiOptions(style="release", stack=True)
    compare_api_dumps(path.parents[1], path.parents[1], output, "1", options, formats=["csv"])


def _read_members(path: Path) -> None:
    for opened in ((), ("data",)):
        for number, member in enumerate(read_members(path, opened)):
            if number < 4:
                assert repr(read_value(path, member.offset, member.length)) == repr(member.value)


def _debug() -> list[bytes]:
    files = seeds.unpacked("msprobe/debug_stat.tar.xz")
    return [content for name, content in files.items() if name.endswith("debug.json")]


def _ptdbg(folder: Path) -> None:
    rank = folder / "ptdbg_dump_v2.0" / "rank0"
    (rank / "npu_dump").mkdir(parents=True)
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    for name in ("input.0", "output"):
        np.save(rank / "npu_dump" / f"Tensor_add_1_forward_{name}.npy", values)
    lines = [
        ["Tensor_add_1_forward_input.0", 1, [], "torch.float32", [2, 3], [5.0, 0.0, 2.5]],
        ["Tensor_add_1_forward_output", 1, [], "torch.float32", [2, 3], [5.0, 0.0, 2.5]],
        ["Tensor_add_1_forward_stack_info", [["a.py", "3", "f", "x + y"]]],
    ]
    (rank / "npu_dump.pkl").write_bytes(seeds.json_bytes(lines))


def _torch(folder: Path) -> None:
    """A capture, as if process 7 had made it."""
    with tempfile.TemporaryDirectory() as name:
        capture(Decoder(1), Path(name), ids(), token_range=[0])
        for path in Path(name).rglob("*"):
            if path.is_file():
                place = folder / str(path.relative_to(name)).replace(str(os.getpid()), "7")
                place.parent.mkdir(parents=True, exist_ok=True)
                content = path.read_bytes()
                if path.suffix != ".pth":
                    content = content.replace(str(os.getpid()).encode(), b"7")
                place.write_bytes(content)


def _fx(folder: Path) -> None:
    graph = folder / "ait_dump" / "fx_tensors" / _GRAPH
    write_add(graph / "0")
    nodes = json.loads((seeds.DATA / "topology" / "fx" / "graph.json").read_text())
    nodes["nodes"] = nodes["nodes"][:12]
    (graph / "graph.json").write_text(json.dumps(nodes))
    buffer = {"buffer": "buf0", "covers": [], "dtype": "float32"}
    value = {"node": "add", "role": "out", "index": 0}
    launch = {
        "name": "add",
        "kernel": "k",
        "source": ["add"],
        "fused": ["add"],
        "inputs": [{**buffer, "value": None}],
        "outputs": [{**buffer, "value": value}],
    }
    (graph / "kernels.json").write_text(json.dumps({"schema": 1, "launches": [launch]}))


def _atb(folder: Path) -> None:
    root = folder / "ait_dump"
    GraphDump(root).write()
    entries: list[Any] = [{"kind": "header", "schema": 1, "device": "0", "pid": 4242}]
    for path in ("0_Layer", "0_Layer/0_LinearOperation", "1_Layer"):
        numbers = "_".join(part[0] for part in path.split("/"))
        entries.append(
            {
                "kind": "op",
                "op": numbers,
                "type": path.rpartition("_")[2],
                "path": f"0_4242/0/{path}",
                "phase": "after",
                "step": 0,
                "state": "saved",
                "tensors": 3,
                "bytes": 512,
            }
        )
    (root / "ledger").mkdir()
    (root / "ledger" / "0_4242.jsonl").write_bytes(
        seeds.json_bytes([*entries, {"kind": "seal", "end": "exit"}])
    )


def _in(root: str) -> Callable[[Path], None]:
    """Walk the dump whose folder has that name, or lies around it."""

    def read(path: Path) -> None:
        walk(next(each.parent for each in path.parents if each.name == root))

    return read


def _dump(
    name: str, file: str, make: Callable[[Path], object], root: str, mutate: Any, pattern: str = ""
) -> Target:
    return Target(
        name, file, _content(make, pattern or file), _in(root), mutate, _copied(make), True
    )


def _targets() -> Iterable[Target]:
    dump, members = f"{_STEP}/dump.json", _content(_api, f"{_STEP}/*.json")
    yield Target("json_members", "dump.json", members, _read_members, mutate_json)
    for name, file in (
        ("api_dump", dump),
        ("api_construct", f"{_STEP}/construct.json"),
        ("api_stacks", f"{_STEP}/stack.json"),
    ):
        yield Target(name, file, _content(_api, file), _walk_api, mutate_json, _copied(_api), True)
    yield Target(
        "api_compare", dump, _content(_api, dump), _compare_api, mutate_json, _copied(_api), True
    )
    yield Target(
        "api_ledger",
        "ledger/rank0_7.jsonl",
        _content(_api, "ledger/*"),
        lambda path: walk(path.parents[1]),
        mutate_json_lines,
        _copied(_api),
        True,
    )
    debug = f"{_STEP}/debug.json"
    yield Target("api_debug", debug, _debug, _walk_api, mutate_json, names_folder=True)
    pkl = "ptdbg_dump_v2.0/rank0/npu_dump.pkl"
    yield _dump("ptdbg_dump", pkl, _ptdbg, "ptdbg_dump_v2.0", mutate_json_lines)
    graph = f"ait_dump/fx_tensors/{_GRAPH}"
    yield _dump("fx_types", f"{graph}/graph.json", _fx, "ait_dump", mutate_json)
    yield _dump("fx_kernels", f"{graph}/kernels.json", _fx, "ait_dump", mutate_json)
    step = "ait_dump/tensors/0_4242/0/0_Layer/0_LinearOperation"
    yield _dump("atb_params", f"{step}/op_param.json", _atb, "ait_dump", mutate_json)
    yield _dump("atb_tensor", f"{step}/after/outtensor0.bin", _atb, "ait_dump", mutate_text)
    yield _dump("atb_ledger", "ait_dump/ledger/0_4242.jsonl", _atb, "ait_dump", mutate_json_lines)
    yield _dump("atb_layer", "ait_dump/layer/4242/Layer_0.json", _atb, "ait_dump", mutate_json)
    yield _dump(
        "torch_tree",
        "ait_dump/torch_tensors/cpu_7/model_tree.json",
        _torch,
        "ait_dump",
        mutate_json,
    )
    yield _dump(
        "torch_dump_ledger", "ait_dump/ledger/cpu_7.jsonl", _torch, "ait_dump", mutate_json_lines
    )


TARGETS = tuple(_targets())
