"""One file, one array: readers and writers of tensor files, element types and layouts.

Nothing here knows what a dump is.
"""

from ait_llm.formats.atb_bin import read_header, read_tensor, resolve_data, write_tensor
from ait_llm.formats.atb_header import AtbHeader
from ait_llm.formats.load import load
from ait_llm.formats.loaded import LoadedTensor, dtype_of
from ait_llm.formats.names import format_code, format_name
from ait_llm.formats.npy import read_npy
from ait_llm.formats.safetensors_file import list_safetensors, read_safetensors
from ait_llm.formats.statistics import Statistics, measure
from ait_llm.formats.torch_bridge import from_torch, to_torch
from ait_llm.formats.torch_file import read_torch

__all__ = [
    "AtbHeader",
    "LoadedTensor",
    "Statistics",
    "dtype_of",
    "format_code",
    "format_name",
    "from_torch",
    "list_safetensors",
    "load",
    "measure",
    "read_header",
    "read_npy",
    "read_safetensors",
    "read_tensor",
    "read_torch",
    "resolve_data",
    "to_torch",
    "write_tensor",
]
