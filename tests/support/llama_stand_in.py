"""Stands in for ``llama-cpp-python``: plays what a real one handed to the evaluation callback.

``tests/data/gguf/ORIGIN.md`` says what was recorded.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np

from ait_llm.dump.ggml.library import Library, Tensor

DATA = Path(__file__).parents[1] / "data" / "gguf"
_PARAMS = 16
Change = Callable[[Tensor, np.ndarray], np.ndarray]


class RecordedLibrary(Library):
    """Reads recorded tensors by their recorded addresses.

    Args:
        path: of the recording.
        change: makes other values of what a tensor holds.
    """

    def __init__(self, path: Path = DATA / "llama.npz", change: Change | None = None) -> None:
        with np.load(path) as file:
            self._bytes = {name: file[name] for name in file.files}
        meta = json.loads(bytes(self._bytes["meta"]))
        self.evaluations = meta["evaluations"]
        self.tokens = meta["tokens"]
        self._change = change
        self.now: dict[int, dict[str, Any]] = {}

    def begin(self, number: int) -> list[int]:
        """The addresses of one evaluation, in the order in which they are computed."""
        evaluation = self.evaluations[number]
        self.now = {each["address"]: each for each in evaluation["tensors"]}
        return list(evaluation["order"])

    def check(self, address: int) -> None:
        assert address in self.now

    def tensor(self, address: int) -> Tensor:
        fields = {name: value for name, value in self.now[address].items() if name != "data"}
        fields["params"] += [0] * (_PARAMS - len(fields["params"]))
        lists = {name: tuple(value) for name, value in fields.items() if isinstance(value, list)}
        return Tensor(**{**fields, **lists})

    def size(self, tensor: Tensor) -> int:
        return len(self._data(tensor))

    def read(self, tensor: Tensor) -> np.ndarray:
        values = self.decoded(tensor, self._data(tensor))
        return values if self._change is None else self._change(tensor, values)

    def _data(self, tensor: Tensor) -> bytes:
        return bytes(self._bytes[f"d{self.now[tensor.address]['data']}"])


CALLBACK = ctypes.CFUNCTYPE(ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p)


class LlamaCpp:
    """The functions of ``llama_cpp.llama_cpp`` that a program calls, as modules.

    Args:
        library: what is played.
    """

    def __init__(self, library: RecordedLibrary) -> None:
        self.library = library
        self.asked: list[bool] = []
        low = self.low = ModuleType("llama_cpp.llama_cpp")
        low.__dict__.update(
            ggml_backend_sched_eval_callback=CALLBACK,
            llama_model_load_from_file=lambda path, params: ctypes.c_void_p(7),
            llama_init_from_model=self._context,
            llama_decode=self._decode,
        )
        self.package = ModuleType("llama_cpp")
        self.package.__dict__.update(__version__="0.3.36", llama_cpp=low, **low.__dict__)
        self.package.__name__ = "llama_cpp"

    def install(self, patch: Any) -> None:
        """Have programs import it."""
        patch.setitem(sys.modules, "llama_cpp", self.package)
        patch.setitem(sys.modules, "llama_cpp.llama_cpp", self.low)

    def run(self, evaluations: int = 2, own: Any = None) -> SimpleNamespace:
        """What a program does that reads a prompt and chooses tokens."""
        low = self.low
        model = low.llama_model_load_from_file(b"model.gguf", None)
        params = SimpleNamespace(cb_eval=own or CALLBACK())
        context = low.llama_init_from_model(model, params)
        for number in range(evaluations):
            assert low.llama_decode(context, number) == 0
        return params

    def _context(self, model: Any, params: Any) -> Any:
        self._callback = params.cb_eval
        return ctypes.c_void_p(9)

    def _decode(self, context: Any, number: int) -> int:
        for address in self.library.begin(number):
            self.asked.append(self._callback(address, True, None))
            if self.asked[-1]:
                assert self._callback(address, False, None)
        return 0


def tensor(name: str, op: str, sizes: tuple[int, ...], **fields: Any) -> Tensor:
    """A dense tensor of float32."""
    full = (*sizes, 1, 1, 1)[:4]
    strides, step = [], 4
    for size in full:
        strides.append(step)
        step *= size
    made = Tensor(
        address=0, name=name, op=op, dtype="f32", sizes=full, strides=tuple(strides),
        params=(0,) * _PARAMS, sources=(), root=0, offset=0, place="CPU",
    )  # fmt: skip
    return replace(made, **fields)
