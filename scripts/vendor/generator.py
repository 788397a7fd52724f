"""The vendor's generator of inputs and golden outputs, imported from a checkout as it lies there.

It was written to run beside a device. What it imports of the device's libraries is given
stand-ins here, which keep everything on the CPU and answer with the name of the chip that a case
is for. A fractal weight keeps the values of its matrix, except where a case names the dims of the
blocks: there the stand-in stores them in blocks.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import random
import signal
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch import Tensor
from vendor.cases import Case

from ait_llm.opcheck.golden.layout import nd_to_nz

FOLDER = Path("tests/framework/python/CsvOpsTestTool")
NAME = "data_generation"
_SEED = "random_seed"
FRACTAL = 29
DEVICES = {
    "Ascend910B": "Ascend910B4-1",
    "Ascend310P": "Ascend310P3",
    "Ascend310B": "Ascend310B4",
    "Ascend910A": "Ascend910A",
    "Ascend950": "Ascend950PR",
}


class NotRunError(Exception):
    """The vendor's generator gives no numbers for this case."""


@dataclass
class Operation:
    """Stands in for the operation under test: it keeps what it is told.

    Attributes:
        host: the numbers that the case passes beside its tensors.
    """

    host: dict[str, Any] = field(default_factory=dict)

    def set_varaintpack_param(self, text: str) -> None:
        """Keep the host's numbers."""
        self.host.update(json.loads(text))


@dataclass(frozen=True)
class Numbers:
    """What the vendor's generator makes of a case.

    Attributes:
        inputs: tensors of the case.
        golden: its golden outputs.
        host: the numbers that it passes beside them.
        of_ranks: inputs of every rank where the generator keeps them.
    """

    inputs: list[Tensor]
    golden: list[Tensor]
    host: dict[str, Any]
    of_ranks: list[Tensor] | None = None


class _Fractal(Tensor):
    """A matrix in the device's blocks, as long as nobody looks: it has its own values."""

    def reshape(self, *shape: Any) -> Tensor:
        plain = self.as_subclass(Tensor)
        blocks = nd_to_nz(plain if plain.ndim == 3 else plain[None])
        wanted = torch.Size(shape[0] if len(shape) == 1 else shape)
        return blocks if blocks.shape == wanted else plain.reshape(wanted)


class Generator:
    """The generator of one checkout."""

    def __init__(self, checkout: Path) -> None:
        self._chip = SimpleNamespace(name="Ascend910B4-1")
        folder = str(checkout / FOLDER)
        for name, module in stand_ins(self._chip).items():
            sys.modules[name] = module
        sys.path.insert(0, folder)
        with contextlib.redirect_stdout(io.StringIO()):
            self._module = importlib.import_module(NAME)
        sys.path.remove(folder)

    def numbers(self, case: Case, chip: str, seconds: int = 60) -> Numbers:
        """Inputs and golden outputs of a case; the same every time."""
        made = self._prepare(case, chip)
        operation = Operation()
        with limit(seconds, "the generator"), contextlib.redirect_stdout(io.StringIO()):
            inputs = self._inputs(made, case)
            made.case_preprocess(case.param_text, operation, inputs)
            given = [tensor.clone() for tensor in inputs]
            outputs = [torch.zeros(each.shape) for each in case.outputs]
            made.case_postprocess(case.param_text, operation, inputs, outputs)
            ranks = getattr(made, "intensors", None)
            of_ranks = [tensor.clone() for tensor in ranks] if ranks else None
            golden = made.golden([tensor.clone() for tensor in inputs], case.param_text)
        if not golden or any(tensor is None for tensor in golden):
            raise NotRunError("the generator has no golden output")
        return Numbers(given, [_plain(tensor) for tensor in golden], operation.host, of_ranks)

    def inputs(self, case: Case, chip: str, seconds: int = 60) -> list[Tensor]:
        """Inputs of a case alone; the same every time."""
        made = self._prepare(case, chip)
        with limit(seconds, "the generator"), contextlib.redirect_stdout(io.StringIO()):
            inputs = self._inputs(made, case)
            made.case_preprocess(case.param_text, Operation(), inputs)
        return inputs

    def host(self, case: Case, chip: str, seconds: int = 60) -> dict[str, Any]:
        """The numbers that a case passes beside its tensors."""
        made, operation = self._prepare(case, chip), Operation()
        with limit(seconds, "the generator"), contextlib.redirect_stdout(io.StringIO()):
            made.case_preprocess(case.param_text, operation, self._inputs(made, case))
        return operation.host

    def _prepare(self, case: Case, chip: str) -> Any:
        """The generator's class for a case, with its chip and seed set."""
        made = getattr(self._module, case.operator, None)
        if made is None:
            raise NotRunError("the generator has no such operator")
        self._chip.name = DEVICES[chip]
        _seed(zlib.crc32(case.label.encode()))
        return made

    def _inputs(self, made: Any, case: Case) -> list[Tensor]:
        shapes = [list(each.shape) for each in case.inputs]
        found: list[Tensor] = []
        for index, (each, kind, span) in enumerate(
            zip(case.inputs, case.generators, case.ranges, strict=True)
        ):
            make = getattr(made, kind)
            if kind == "customize":
                tensor = make(shapes, index, each.dtype, each.layout, span, case.param_text)
            else:
                tensor = make(list(each.shape), each.dtype, each.layout, span, case.param_text)
            if not isinstance(tensor, Tensor):
                raise NotRunError("the generator makes no inputs for it")
            found.append(_plain(tensor))
        return found


def _plain(tensor: Tensor) -> Tensor:
    return tensor.detach().as_subclass(Tensor)


def _seed(seed: int) -> None:
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002 the generator draws from it
    torch.manual_seed(seed)
    os.environ[_SEED] = str(seed % 1000 + 1)  # as its runner does for all ranks


@contextlib.contextmanager
def limit(seconds: int, what: str) -> Iterator[None]:
    """Some cases take minutes in plain Python: raise NotRunError after so much processor time."""

    def stop(number: int, frame: object) -> None:
        raise NotRunError(f"{what} takes more than {seconds} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def stand_ins(chip: SimpleNamespace) -> dict[str, ModuleType]:
    """Modules of the device's libraries, on the CPU."""

    def cast(tensor: Tensor, layout: int, *rest: Any) -> Tensor:
        return tensor.as_subclass(_Fractal) if layout == FRACTAL else tensor

    npu = ModuleType("torch_npu")
    npu.npu_format_cast = cast  # type: ignore[attr-defined]
    npu.npu_dtype_cast = lambda tensor, dtype: tensor.to(dtype)  # type: ignore[attr-defined]
    npu.get_npu_format = lambda tensor: SimpleNamespace(name="ND")  # type: ignore[attr-defined]
    device = ModuleType("torch.npu")
    device.get_device_name = lambda *rest: chip.name  # type: ignore[attr-defined]
    device.current_device = lambda: 0  # type: ignore[attr-defined]
    device.device_count = lambda: 1  # type: ignore[attr-defined]
    device.config = SimpleNamespace(allow_internal_format=True)  # type: ignore[attr-defined]
    npu.npu = device  # type: ignore[attr-defined]
    torch.npu = device  # type: ignore[attr-defined]
    Tensor.npu = lambda self, *rest, **options: self  # type: ignore[attr-defined]
    Tensor.is_npu = True  # type: ignore[attr-defined]
    types = ModuleType("en_dtypes")
    types.hifloat8 = np.dtype(np.uint8)  # type: ignore[attr-defined]
    bfloat16 = ModuleType("bfloat16ext")
    bfloat16.bfloat16 = ml_dtypes.bfloat16  # type: ignore[attr-defined]
    return {
        "torch_npu": npu,
        "torch.npu": device,
        "en_dtypes": types,
        "bfloat16ext": bfloat16,
    }
