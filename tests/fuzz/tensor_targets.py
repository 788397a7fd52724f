"""Files of tensors, and the library that the probe is loaded into."""

from __future__ import annotations

from pathlib import Path

import envelopes
import numpy as np
import seeds
import torch
from elf_builder import shared_library
from engine import Target
from ge_dump_files import file_bytes, of
from mutations import mutate_bytes

from ait_llm.core import DType, TensorDesc
from ait_llm.errors import AitError
from ait_llm.formats import ge_values, npy, pth_payload, torch_file
from ait_llm.formats.atb_bin import read_header, read_tensor, write_tensor
from ait_llm.formats.ge_file import read_ge
from ait_llm.formats.load import load
from ait_llm.formats.loaded import LoadedTensor
from ait_llm.formats.locate import locate
from ait_llm.formats.payload import Payload
from ait_llm.formats.pth_header import read_pth_header
from ait_llm.formats.safetensors_file import list_safetensors, read_safetensors
from ait_llm.formats.save import save
from ait_llm.probe.elf import read_shared_library


def check_payload(path: Path, payload: Payload) -> None:
    """A place that a reader names must lie in the file: others map it without asking again."""
    size = Path(payload.path).stat().st_size
    assert 0 <= payload.offset <= payload.offset + payload.length <= size, payload
    assert Path(payload.path).resolve().parent == path.parent.resolve(), payload


def _locate(path: Path) -> None:
    for payload in (locate(path) or {}).values():
        check_payload(path, payload)


def _read_atb(path: Path) -> None:
    header = read_header(path)
    _ = header.statistics
    _locate(path)
    read_tensor(path)
    read_tensor(path, mmap=True)


def _read_ge(path: Path) -> None:
    file = read_ge(path)
    for tensor in file.tensors:
        try:
            ge_values.ge_values(file, tensor)
            check_payload(path, ge_values.ge_payload(file, tensor))
        except AitError:
            continue  # a tensor that is not there says so; the others are
    _locate(path)
    load(path, "outtensor0")


def _read_npy(path: Path) -> None:
    npy.read_npy_header(path)
    _locate(path)
    npy.read_npy(path)


def _read_torch(path: Path) -> None:
    read_pth_header(path)
    for payload in (pth_payload.pth_payloads(path) or {}).values():
        check_payload(path, payload)
    torch_file.read_torch(path)


def _read_torch_mapped(path: Path) -> None:
    torch_file.read_torch(path, mmap=True)


def _read_safetensors(path: Path) -> None:
    _locate(path)
    for name in list_safetensors(path):
        read_safetensors(path, name)


def _atb_seeds() -> list[bytes]:
    made = seeds.recorded("atb-official/**/*.bin", most=6)
    packed = TensorDesc(DType.INT4, (3, 5))
    values = np.zeros(packed.shape, packed.dtype.numpy_type)
    made.append(seeds.written(lambda path: write_tensor(path, values, packed)))
    nz = TensorDesc(DType.FLOAT16, (20, 20), 29)
    made.append(seeds.written(lambda path: write_tensor(path, None, nz, {"data": "other.bin"})))
    return made


def _ge_seeds() -> list[bytes]:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    made = file_bytes([of(array, 1)], [of(array, 1)])
    return [*seeds.recorded("ge_dump/samples/*", longest=6000), made]


def _torch_seeds() -> list[bytes]:
    tensor = torch.arange(6.0).reshape(2, 3)
    contents = [
        tensor,
        tensor.t(),
        torch.nn.Parameter(tensor.bfloat16()),
        {"a": tensor, "b": [tensor[0], (tensor.to(torch.float8_e5m2), 3, "text", None)]},
        torch.tensor(7, dtype=torch.int16),
    ]
    made = [seeds.written(lambda path, c=content: torch.save(c, path)) for content in contents]
    ours = {"": LoadedTensor(tensor.numpy(), DType.FLOAT32)}
    made.append(seeds.written(lambda path: save(path, ours, "pt")))
    old = {"x": tensor}
    legacy = lambda path: torch.save(old, path, _use_new_zipfile_serialization=False)  # noqa: E731
    return [*made, seeds.written(legacy)]


def _safetensors_seeds() -> list[bytes]:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    header = b'{"__metadata__":{"a":"b"},"x":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},'
    header += b'"y":{"dtype":"BF16","shape":[0],"data_offsets":[24,24]}}'
    two = len(header).to_bytes(8, "little") + header + array.tobytes()
    one = {"weight": LoadedTensor(array, DType.FLOAT32)}
    return [seeds.written(lambda path: save(path, one, "safetensors")), two]


TARGETS = (
    Target("atb_bin", "intensor0.bin", _atb_seeds, _read_atb),
    Target("ge_data", "Add.Add_2.3.7.1732533825146000", _ge_seeds, _read_ge, envelopes.ge_data),
    Target(
        "npy",
        "x.npy",
        lambda: [seeds.npy(array) for array in seeds.arrays()] + [seeds.npy(np.ones(3), (2, 0))],
        _read_npy,
        envelopes.npy,
    ),
    Target("torch_file", "x.pth", _torch_seeds, _read_torch, envelopes.archive),
    Target("torch_file_mapped", "x.pt", _torch_seeds, _read_torch_mapped, envelopes.archive),
    Target(
        "safetensors",
        "x.safetensors",
        _safetensors_seeds,
        _read_safetensors,
        envelopes.safetensors,
    ),
    Target(
        "elf",
        "libatb.so",
        lambda: [shared_library(["_ZN3atb5ProbeE", "a"], needed=["libc.so.6"], symbolic=True)],
        read_shared_library,
        mutate_bytes,
    ),
)
