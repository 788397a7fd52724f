"""A checkout of the vendor's sources of a few lines, and its suites run on one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from vendor.cases import CASES

SCRIPTS = Path(__file__).parents[2] / "scripts"
GENERATOR = """
import json
import torch
import torch_npu
from en_dtypes import hifloat8

class DataGen:
    @staticmethod
    def random(shape, datatype, format, span, params):
        return torch_npu.npu_format_cast(torch.rand(shape).half().npu(), 2)
    @staticmethod
    def case_preprocess(params, operation, inputs):
        assert torch.npu.get_device_name().startswith("Ascend910B")
    @staticmethod
    def case_postprocess(params, operation, inputs, outputs):
        pass

class CumsumOperation(DataGen):
    @staticmethod
    def golden(inputs, params):
        return [inputs[0].float().cumsum(json.loads(params)["axes"][0])]

class SoftmaxOperation(DataGen):
    @staticmethod
    def golden(inputs, params):
        return [inputs[0].float() * 2]
"""
HEAD = (
    "CaseNum|CaseName|OpName|OpParam|InNum|InDType|InFormat|InShape|OutNum|OutDType|OutFormat|"
    "OutShape|DataGenType|DataGenRange|InTensorFile|OutTensorFile|TestType|TestLevel|FromModel|"
    "SocVersion|ExpectedError"
)
LINE = "{}|x|{}|{}|1|float16|nd|4,8|1|float16|nd|4,8|random|0,1||||||Ascend910B|{}"


def checkout(folder: Path) -> Path:
    """A checkout with three cases: one agrees, one does not, one should be refused."""
    tool = folder / "tests/framework/python/CsvOpsTestTool"
    tool.mkdir(parents=True)
    (tool / "data_generation.py").write_text(GENERATOR, encoding="utf-8")
    lines = [
        LINE.format(1, "CumsumOperation", '{"axes":[1]}', "NO_ERROR"),
        LINE.format(2, "SoftmaxOperation", '{"axes":[1]}', "NO_ERROR"),
        LINE.format(3, "CumsumOperation", '{"axes":[9]}', "C:ERROR_INVALID_PARAM"),
    ]
    path = folder / CASES / "some.csv"
    path.parent.mkdir(parents=True)
    path.write_text("\n".join((HEAD, *lines)), encoding="utf-8")
    return folder


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-m", "vendor.suites", *arguments]
    env = os.environ | {"PYTHONPATH": str(SCRIPTS)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env)
