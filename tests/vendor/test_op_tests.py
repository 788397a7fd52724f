"""Scripts of the vendor's op tests, of which only definitions run."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from vendor.op_tests import OPERATIONS, Calls, load, quietly

SCRIPT = """
import json
import torch
import torch_npu
import operation_test
from precision_calcu import compare_cv

SIZES = (3, 4)
data = torch.zeros(1 << 50)
if data is None:
    raise RuntimeError

class Test(operation_test.OperationTest):
    def golden_calc(self, inputs):
        print("a lot")
        return [inputs[0] * SIZES[0]]

def worker():
    operation = torch.classes.OperationTorch.OperationTorch("CumsumOperation")
    operation.set_param(json.dumps({"axes": [1]}))
    operation.execute([torch.ones(SIZES).npu()])

worker()
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    (tmp_path / OPERATIONS).mkdir(parents=True)
    (tmp_path / OPERATIONS / "test_some.py").write_text(SCRIPT, encoding="utf-8")
    for name in ("torch_npu", "operation_test", "op_test", "precision_calcu"):
        monkeypatch.setitem(sys.modules, name, sys.modules.get(name))
    return load(tmp_path, "test_some.py")


def test_a_script_is_loaded_without_the_data_that_it_makes(script: object) -> None:
    assert script.SIZES == (3, 4)
    assert not hasattr(script, "data")


def test_its_golden_is_taken_without_what_it_prints(
    script: object, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    assert quietly(script.Test().golden_calc, [torch.ones(2)])[0].tolist() == [3, 3]
    assert capsys.readouterr().out == ""


def test_calls_of_operations_are_kept_with_parameters_and_tensors(script: object) -> None:
    import torch

    calls = Calls()
    with calls.taken():
        script.worker()
    assert calls.params == '{"axes": [1]}'
    assert [each.shape for each in calls.inputs] == [(3, 4)]
    assert "OperationTorch" not in vars(torch.classes)
