"""Makes the dumps that the comparison is timed on."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import torch

from ait_llm.core import DType, TensorDesc
from ait_llm.formats.pth_writer import pth_template, write_pth

PROCESS = "cpu_4242"
ELEMENTS = (4096, 65536, 1 << 20, 4 << 20, 16 << 20)
TYPES = (
    (torch.float16, np.dtype(np.float16), DType.FLOAT16),
    (torch.bfloat16, np.dtype(ml_dtypes.bfloat16), DType.BFLOAT16),
    (torch.float32, np.dtype(np.float32), DType.FLOAT32),
)
_POOL = 1 << 25  # elements of random numbers; tensors are slices of it


@dataclass(frozen=True)
class Tensor:
    """One tensor of each side.

    Attributes:
        number: its place; also decides its slice of the random numbers.
        elements: how many.
        kind: which of TYPES.
        per_step: how many tensors one forward pass makes.
    """

    number: int
    elements: int
    kind: int
    per_step: int = 1 << 60

    @property
    def step(self) -> int:
        """The forward pass that is said to have made it."""
        return self.number // self.per_step

    @property
    def module(self) -> str:
        """The torch module that is said to have returned it."""
        return f"root.layers.{self.number % self.per_step}.linear"

    @property
    def bytes(self) -> int:
        """Of one side."""
        return self.elements * TYPES[self.kind][1].itemsize


def mixed(total: int) -> list[Tensor]:
    """Tensors of all sizes and types, ``total`` bytes together."""
    tensors: list[Tensor] = []
    size = 0
    while size < total:
        # Smaller sizes come more often, as in real dumps.
        step = len(tensors) % 16
        place = 4 if step == 15 else 3 if step % 4 == 3 else step % 4
        tensors.append(Tensor(len(tensors), ELEMENTS[place], len(tensors) % 3))
        size += tensors[-1].bytes
    return tensors


def small(count: int) -> list[Tensor]:
    """Tensors of 1024 elements, a thousand in each forward pass."""
    return [Tensor(number, 1024, number % 3, per_step=1000) for number in range(count)]


def arrays(tensors: list[Tensor]) -> Iterator[tuple[Tensor, np.ndarray, np.ndarray]]:
    """Golden and mine, which differ by about one rounding."""
    random = np.random.default_rng(7)
    pool = random.standard_normal(_POOL, dtype=np.float32)
    noise = random.standard_normal(_POOL, dtype=np.float32)
    pools = {}
    for kind, (_, numpy_type, _) in enumerate(TYPES):
        unit = {0: 2.0**-11, 1: 2.0**-8, 2: 2.0**-24}[kind]
        golden = pool.astype(numpy_type)
        pools[kind] = golden, (pool + pool * noise * np.float32(unit)).astype(numpy_type)
    for tensor in tensors:
        start = tensor.number * 7919 % (_POOL - tensor.elements + 1)
        golden, mine = (side[start : start + tensor.elements] for side in pools[tensor.kind])
        yield tensor, golden, mine


def write_torch(folder: Path, tensors: list[Tensor]) -> tuple[Path, Path]:
    """Two dumps of torch modules with those outputs; returns their paths."""
    sides = folder / "golden", folder / "mine"
    names = dict.fromkeys(tensor.module for tensor in tensors)
    children = [
        {
            "name": name.rpartition(".")[0],
            "type": "Layer",
            "children": [{"name": name, "type": "Linear", "children": []}],
        }
        for name in names
    ]
    for side in sides:
        process = side / "ait_dump" / "torch_tensors" / PROCESS
        process.mkdir(parents=True)
        tree = {"name": "root", "type": "Model", "children": children}
        (process / "model_tree.json").write_text(json.dumps(tree))
    for tensor, *values in arrays(tensors):
        template = pth_template(TYPES[tensor.kind][0], (tensor.elements // 64, 64))
        for side, array in zip(sides, values, strict=True):
            path = _folder(side, tensor)
            path.mkdir(parents=True)
            write_pth(path / "output.pth", template, memoryview(array.view(np.uint8)))
    return sides


def _folder(side: Path, tensor: Tensor) -> Path:
    process = side / "ait_dump" / "torch_tensors" / PROCESS
    return process / str(tensor.step) / tensor.module


def write_atb(folder: Path, tensors: list[Tensor]) -> tuple[Path, Path]:
    """Two ATB dumps with those outputs; returns their paths."""
    sides = folder / "golden", folder / "mine"
    for tensor, *values in arrays(tensors):
        desc = TensorDesc(TYPES[tensor.kind][2], (tensor.elements // 64, 64))
        head = (
            "$Version=1.0\n$Object.Count=1\n"
            f"$Object.Length={tensor.bytes}\nformat=2\ndtype={desc.dtype.code}\n"
            f"dims={tensor.elements // 64},64\n$Object.data=0,{tensor.bytes}\n$End=1\n"
        ).encode()
        for side, array in zip(sides, values, strict=True):
            place = tensor.number % tensor.per_step
            layer = f"{place // 20}_DecoderLayer/{place % 20}_LinearOperation"
            path = side / f"ait_dump/tensors/0_4242/{tensor.step}/{layer}/after"
            path.mkdir(parents=True)
            with (path / "outtensor0.bin").open("wb") as file:
                file.write(head)
                file.write(array.view(np.uint8).data)
    return sides


def write_for_peer(sides: tuple[Path, Path], tensors: list[Tensor]) -> tuple[Path, Path]:
    """The same files, hard-linked, as msprobe's captures of the same modules."""
    found = []
    for side in sides:
        step = side.parent / f"{side.name}_peer" / "step0" / "rank0"
        data = step / "dump_tensor_data"
        data.mkdir(parents=True)
        records = {}
        for tensor in tensors:
            api = f"Functional.linear.{tensor.number}.forward"
            name = f"{api}.output.0.pt"
            os.link(_folder(side, tensor) / "output.pth", data / name)
            records[api] = {
                "input_args": [],
                "input_kwargs": {},
                "output": [
                    {
                        "type": "torch.Tensor",
                        "dtype": str(TYPES[tensor.kind][0]),
                        "shape": [tensor.elements // 64, 64],
                        "Max": 1.0,
                        "Min": -1.0,
                        "Mean": 0.0,
                        "Norm": 1.0,
                        "requires_grad": False,
                        "data_name": name,
                    }
                ],
            }
        dump = {
            "task": "tensor",
            "level": "L1",
            "framework": "pytorch",
            "dump_data_dir": str(data),
            "data": records,
        }
        (step / "dump.json").write_text(json.dumps(dump))
        (step / "stack.json").write_text("{}")
        (step / "construct.json").write_text("{}")
        found.append(step / "dump.json")
    return found[0], found[1]
