"""Kernels as people write them, with bugs planted: a C++ library and a Triton kernel."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor

from ait_llm.core.comparison import Verdict
from ait_llm.opcheck import check, sweep

KERNELS = Path(__file__).with_name("kernels")
EPS = 1e-5
Norm = Callable[..., Tensor]


def golden_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS) * weight


@pytest.fixture(scope="module")
def rms_norm(tmp_path_factory: pytest.TempPathFactory) -> Norm:
    """The compiled kernel behind a function of tensors."""
    compiler = shutil.which("c++") or shutil.which("g++")
    if compiler is None:
        pytest.skip("there is no C++ compiler")
    library = tmp_path_factory.mktemp("kernel") / "librms_norm.so"
    words = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library)]
    subprocess.run([*words, str(KERNELS / "rms_norm.cpp")], check=True)
    function = ctypes.CDLL(str(library)).rms_norm
    numbers = [ctypes.c_int64, ctypes.c_int64, ctypes.c_float, ctypes.c_int]
    function.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, *numbers]
    function.restype = None

    def kernel(x: Tensor, weight: Tensor, fault: int = 0) -> Tensor:
        if x.dtype != torch.float32 or not (x.is_contiguous() and weight.is_contiguous()):
            raise NotImplementedError("contiguous rows of float32 only")
        result = torch.zeros_like(x)
        pointers = [one.data_ptr() for one in (x, weight, result)]
        rows = x.numel() // max(1, x.shape[-1])
        function(*pointers, rows, x.shape[-1], EPS, fault)
        return result

    return kernel


SHAPES = [[(6, 64), (64,)], [(5, 37), (37,)]]


def test_a_right_cpp_kernel_passes(rms_norm: Norm) -> None:
    report = sweep(rms_norm, shapes=SHAPES, golden=golden_norm, batched=[0], batch_invariant=True)
    assert report, str(report)
    refused = [one for one in report.cases if one.kind == "refused"]
    assert {one.case.layout for one in refused} >= {"transposed", "strided"}
    assert {one.case.dtypes[0] for one in refused} >= {"float16", "bfloat16"}
    assert report.speeds
    assert "times that of golden" in str(report)


@pytest.mark.parametrize(
    ("fault", "smallest"),
    [
        (1, ((1, 1), (1,))),  # a tail is what is left of a vector of 8
        (2, ((4, 1), (1,))),  # the first three rows are right
        (4, ((1, 1), (1,))),
    ],
)
def test_bugs_of_a_cpp_kernel_are_found_and_shrunk(
    rms_norm: Norm, fault: int, smallest: tuple[tuple[int, ...], ...]
) -> None:
    wrong = partial(rms_norm, fault=fault)
    report = sweep(wrong, shapes=SHAPES, dtypes=["float32"], layouts=(), golden=golden_norm)
    assert report.verdict is Verdict.FAIL
    assert report.smallest is not None
    assert report.smallest.case.shapes == smallest
    assert "normal, seed 0" in str(report.smallest.case)
    inputs = report.smallest.case.inputs()
    assert not check(wrong, inputs, golden=golden_norm)


def test_a_wrong_epsilon_shows_where_values_are_tiny(rms_norm: Norm) -> None:
    wrong = partial(rms_norm, fault=3)
    report = sweep(wrong, shapes=SHAPES, dtypes=["float32"], layouts=(), golden=golden_norm)
    assert {one.case.values for one in report.cases if one.verdict is Verdict.FAIL} >= {"tiny"}


TRITON = """
import sys
sys.path.insert(0, sys.argv[1])
from functools import partial
import torch
from triton_softmax import softmax
from ait_llm.opcheck import sweep

def golden(x):
    powers = torch.exp(x - x.amax(-1, keepdim=True))
    return powers / powers.sum(-1, keepdim=True)

# the interpreter of Triton 3.9 cuts off what bfloat16 cannot hold, which a sweep finds
right = sweep(softmax, shapes=[(3, 37)], dtypes=["float32", "float16"], layouts=["misaligned"],
              golden=golden, seeds=[0])
print(right)
assert right
for fault in (1, 2, 3, 4):
    kinds = ["float32"] if fault == 3 else ["float16"]
    wrong = sweep(partial(softmax, fault=fault), shapes=[(3, 37)], dtypes=kinds, golden=golden,
                  seeds=[0], speed=False)
    print(wrong)
    assert not wrong, fault
print("all found")
"""


def test_a_triton_kernel_in_its_interpreter() -> None:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("triton is not installed; it is 286 MB, so it is no requirement of the tests")
    ran = subprocess.run(
        [sys.executable, "-c", TRITON, str(KERNELS)],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "all found" in ran.stdout, ran.stdout + ran.stderr
