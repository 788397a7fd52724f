"""The vendor's own tests of single operators, of which only the definitions are taken.

They were written to run beside a device, and most make their data as they are imported, hundreds
of megabytes of it. So functions, classes and constants of a script are run and nothing else, with
stand-ins for the device's libraries and for the vendor's base class of tests.
"""

from __future__ import annotations

import ast
import contextlib
import io
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from vendor.generator import stand_ins

from ait_llm.opcheck.selftest.recorded import Recorded

OPERATIONS = Path("tests/apitest/opstest/python/operations")
KERNELS = Path("tests/apitest/kernelstest")
_KEPT = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
_CHIP = "Ascend910B4-1"
Made = Iterator[Recorded]


def load(checkout: Path, script: str) -> Any:
    """A script of the vendor's as a module; of those in ``kernelstest``, ``script`` says so."""
    path = checkout / (KERNELS if script.startswith("mix/") else OPERATIONS) / script
    tree = ast.parse(path.read_text(), str(path))
    tree.body = [each for each in tree.body if isinstance(each, _KEPT) or _is_constant(each)]
    module = ModuleType(path.stem)
    sys.modules.update(_modules())
    exec(compile(tree, str(path), "exec"), module.__dict__)
    return module


def quietly(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """What a function returns, without what it prints."""
    with contextlib.redirect_stdout(io.StringIO()):
        return function(*args, **options)


def int32(values: Iterable[Any]) -> Tensor:
    """A tensor of whole numbers, or of rows of them."""
    return torch.tensor(list(values), dtype=torch.int32)


class Calls:
    """Stands in for the device: what operations were called with."""

    def __init__(self) -> None:
        self.inputs: list[Tensor] = []
        self.params = ""

    @contextlib.contextmanager
    def taken(self) -> Iterator[None]:
        """Operations of the vendor's binding are these calls for a while."""
        classes = torch.classes
        classes.OperationTorch = SimpleNamespace(OperationTorch=lambda name: self)  # type: ignore[assignment]
        try:
            yield
        finally:
            del classes.OperationTorch

    def set_param(self, text: str) -> None:
        """Keep the parameters."""
        self.params = text

    def set_varaintpack_param(self, text: str) -> None:
        """Numbers of the host are among the tensors, too."""

    def setup(self, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """Nothing to set up."""

    def execute(self, inputs: list[Tensor]) -> list[Tensor]:
        """Keep the tensors and compute nothing."""
        self.inputs = [each.clone() for each in inputs]
        return self.inputs[:1]


def _is_constant(statement: ast.stmt) -> bool:
    """An assignment of something that is written out."""
    if not isinstance(statement, ast.Assign):
        return False
    try:
        ast.literal_eval(statement.value)
    except ValueError:
        return False
    return True


def _modules() -> dict[str, ModuleType]:
    found = stand_ins(SimpleNamespace(name=_CHIP))
    device: Any = found["torch.npu"]
    device.set_device = device.synchronize = lambda *rest: None
    kernels: Any = ModuleType("op_test")
    kernels.OpTest, kernels.only_910b = _Test, lambda function: function
    operations: Any = ModuleType("operation_test")
    operations.OperationTest = _Test
    compared: Any = ModuleType("precision_calcu")
    compared.compare_cv = compared.data_compare = lambda *rest: True
    named = {"tensor_file": ModuleType("tensor_file")}
    named["tensor_file"].read_tensor = None  # type: ignore[attr-defined]
    named |= {"op_test": kernels, "operation_test": operations}
    return found | named | {"precision_calcu": compared, "precision_compare": compared}


class _Test:
    """Stands in for the vendor's base class: data and goldens need nothing of it."""
