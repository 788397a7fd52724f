"""Golden, rerun and dump: which of the three is wrong."""

from __future__ import annotations

import importlib.machinery
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from operator_dumps import LINEAR, OperatorDump
from torch import Tensor

import ait_llm.hostatb as torch_atb
from ait_llm.core.comparison import Verdict
from ait_llm.errors import UsageError
from ait_llm.opcheck.atb_call import fill
from ait_llm.opcheck.outcome import Checked, Rerun
from ait_llm.opcheck.pipeline import opcheck
from ait_llm.opcheck.rerun import AtbBackend, FunctionBackend, choose_backend, function_backend

pytestmark = pytest.mark.native
X = torch.linspace(1, 2, 64).reshape(4, 16).half()
WEIGHT = torch.linspace(2, 1, 32 * 16).reshape(32, 16).half()
RIGHT = (X.double() @ WEIGHT.double().T).half()


@pytest.fixture
def dump(tmp_path: Path) -> OperatorDump:
    return OperatorDump(tmp_path / "ait_dump")


@pytest.fixture
def faulty_kernels() -> Iterator[None]:
    torch_atb.inject("scale_1pct@Linear")
    yield
    torch_atb.inject("")


# Stands in for an NPU: the same interface, computed here.
NPU = AtbBackend("torch_atb", torch_atb, lambda tensor: tensor)


def again(dump: OperatorDump) -> list[Checked]:
    return list(opcheck(dump.root, backend=NPU).items)


def test_all_three_agree(dump: OperatorDump) -> None:
    dump.add("0_LinearOperation", [X, WEIGHT], [RIGHT], LINEAR)
    (item,) = again(dump)
    assert item.verdict is Verdict.PASS
    assert item.rerun is not None
    assert (item.rerun.backend, item.rerun.verdict) == ("torch_atb", Verdict.PASS)
    assert item.rerun.same_as_dump
    assert item.rerun.rate == 100
    assert item.rerun.cause == ""


def test_a_dump_that_the_rerun_does_not_confirm_is_stale(dump: OperatorDump) -> None:
    dump.add("0_LinearOperation", [X, WEIGHT], [RIGHT * 1.5], LINEAR)
    (item,) = again(dump)
    assert item.verdict is Verdict.FAIL
    assert item.rerun is not None
    assert not item.rerun.same_as_dump
    assert item.reason.endswith(
        "the rerun is right and the dump is not: stale or overwritten memory"
    )


@pytest.mark.usefixtures("faulty_kernels")
def test_a_rerun_that_repeats_the_error_blames_the_kernel(dump: OperatorDump) -> None:
    dump.add("0_LinearOperation", [X, WEIGHT], [(RIGHT.float() * 1.01).half()], LINEAR)
    (item,) = again(dump)
    assert item.reason.endswith("the rerun is wrong in the same way: the kernel")


@pytest.mark.usefixtures("faulty_kernels")
def test_a_wrong_rerun_of_a_right_dump_fails(dump: OperatorDump) -> None:
    dump.add("0_LinearOperation", [X, WEIGHT], [RIGHT], LINEAR)
    (item,) = again(dump)
    assert item.verdict is Verdict.FAIL
    assert item.reason.startswith("the rerun is wrong: the kernel")


def test_inputs_alone_are_enough_for_a_rerun(dump: OperatorDump) -> None:
    dump.add("0_LinearOperation", [X, WEIGHT], [], LINEAR, phase="before")
    (item,) = again(dump)
    assert item.verdict is Verdict.PASS
    assert item.rerun is not None
    assert item.rerun.cause == "only the rerun was checked; the dump has no output"


def test_in_place_operators_rerun_on_copies(dump: OperatorDump) -> None:
    before, source = torch.zeros(2, 4, 4).half(), torch.ones(2, 2, 4).half()
    after = before.clone()
    after[:, 1:3] = 1
    params = {"starts": [0, 1, 0], "ends": [2, 3, 4], "strides": [1, 1, 1]}
    dump.add("0_SetValueOperation", [after, source], [], params, inputs_before=[before, source])
    (item,) = again(dump)
    assert item.output == "intensor0"
    assert item.rerun is not None
    assert (item.rerun.verdict, item.rerun.same_as_dump) == (Verdict.PASS, True)


def test_what_the_back_end_lacks_is_told_and_the_dump_still_judged(dump: OperatorDump) -> None:
    params = {"transposeA": False, "transposeB": True}
    dump.add("0_MatmulOperation", [X, WEIGHT], [RIGHT], params)
    (item,) = again(dump)
    assert item.verdict is Verdict.PASS
    assert item.rerun is not None
    assert item.rerun.verdict is Verdict.SKIPPED
    assert item.rerun.cause == "not run again: torch_atb has no MatmulParam"


def test_without_an_npu_there_is_no_independent_rerun(dump: OperatorDump) -> None:
    dump.add("0_LinearOperation", [X, WEIGHT], [RIGHT], LINEAR)
    dump.add("1_LinearOperation", [X, WEIGHT], [RIGHT * 1.5], LINEAR)
    report = opcheck(dump.root, backend=choose_backend(0))
    assert report.rerun == "none"
    right, wrong = report.items
    assert (right.verdict, wrong.verdict) == (Verdict.PASS, Verdict.FAIL)
    for item in (right, wrong):
        assert item.rerun == Rerun("none", Verdict.SKIPPED, cause="no independent rerun")
    assert wrong.reason == opcheck(dump.root).items[1].reason  # it names no cause


OTHER = """
import torch

def right(operator, inputs, params):
    if operator != "LinearOperation":
        return NotImplemented
    x, weight = inputs
    assert params["transposeB"]
    return torch.nn.functional.linear(x.float(), weight.float()).half()

def wrong(operator, inputs, params):
    return right(operator, inputs, params) * 1.5

def in_place(operator, inputs, params):
    inputs[0][:, 1:3] = inputs[1]

def nothing(operator, inputs, params):
    return None

def broken(operator, inputs, params):
    raise KeyError("x")
"""


@pytest.fixture
def other(tmp_path: Path) -> Callable[[str], FunctionBackend]:
    file = tmp_path / "other.py"
    file.write_text(OTHER)
    return lambda name: function_backend(f"{file}:{name}")


def test_another_implementation_is_the_rerun(
    dump: OperatorDump, other: Callable[[str], FunctionBackend]
) -> None:
    dump.add("0_LinearOperation", [X, WEIGHT], [RIGHT], LINEAR)
    dump.add("1_LinearOperation", [X, WEIGHT], [RIGHT * 1.5], LINEAR)
    dump.add("2_ElewiseOperation", [X, X], [X + X], {"elewiseType": 8})
    report = opcheck(dump.root, backend=other("right"))
    assert report.rerun.endswith("other.py:right")
    right, stale, lacking = report.items
    assert right.rerun is not None
    assert (right.rerun.verdict, right.rerun.same_as_dump) == (Verdict.PASS, True)
    assert stale.reason.endswith("stale or overwritten memory")
    assert lacking.verdict is Verdict.PASS
    assert lacking.rerun is not None
    assert "other.py:right does not have ElewiseOperation" in lacking.rerun.cause
    repeated = opcheck(dump.root, backend=other("wrong")).items
    assert repeated[0].reason.startswith("the rerun is wrong: the kernel")
    assert repeated[1].reason.endswith("the rerun is wrong in the same way: the kernel")


def test_another_implementation_may_write_to_its_inputs(
    dump: OperatorDump, other: Callable[[str], FunctionBackend]
) -> None:
    before, source = torch.zeros(2, 4, 4).half(), torch.ones(2, 2, 4).half()
    after = before.clone()
    after[:, 1:3] = 1
    params = {"starts": [0, 1, 0], "ends": [2, 3, 4], "strides": [1, 1, 1]}
    dump.add("0_SetValueOperation", [after, source], [], params, inputs_before=[before, source])
    (item,) = opcheck(dump.root, backend=other("in_place")).items
    assert item.rerun is not None
    assert (item.rerun.verdict, item.rerun.same_as_dump) == (Verdict.PASS, True)
    for name, cause in (("nothing", "makes nothing of"), ("broken", "fails: KeyError('x')")):
        (item,) = opcheck(dump.root, backend=other(name)).items
        assert item.verdict is Verdict.PASS
        assert item.rerun is not None
        assert item.rerun.verdict is Verdict.SKIPPED
        assert cause in item.rerun.cause


@pytest.mark.parametrize(
    "text", ["nowhere", "no_such_module:f", "os:no_such_function", ":f", "os:"]
)
def test_an_implementation_that_is_not_there_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--rerun-with"):
        function_backend(text)


def test_parameters_of_every_printed_kind_reach_the_back_end() -> None:
    params = {
        "layerType": 1,  # RMS_NORM_NORM
        "normParam": {"epsilon": 0.5, "quantType": 0, "modelType": 0, "rstd": False},
        "unknown": 1,
    }
    made = torch_atb.RmsNormParam()
    fill(made, params)
    assert made.layer_type is torch_atb.RmsNormParam.RmsNormType.RMS_NORM_NORM
    assert made.norm_param.epsilon == 0.5


def test_an_npu_is_used_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[tuple[str, torch.dtype]] = []
    chosen: list[int] = []

    def module(name: str, **members: Any) -> None:
        made = ModuleType(name)
        made.__spec__ = importlib.machinery.ModuleSpec(name, None)
        made.__dict__.update(members)
        monkeypatch.setitem(sys.modules, name, made)

    npu = SimpleNamespace(is_available=lambda: True, set_device=chosen.append)
    module("torch_npu", npu=npu)
    module("torch_atb", **{name: getattr(torch_atb, name) for name in torch_atb.__all__})
    backend = choose_backend(3)
    assert isinstance(backend, AtbBackend)
    assert (backend.name, chosen) == ("torch_atb", [3])

    def to_npu(tensor: Tensor) -> Tensor:
        moved.append(("npu", tensor.dtype))
        return tensor

    simulated = AtbBackend("torch_atb", backend.module, to_npu)
    query = torch.rand(4, 1, 16).half()
    length = torch.tensor([4], dtype=torch.int32)
    params = {"headNum": 1, "kvHeadNum": 1, "calcType": 3, "qkScale": 1.0, "maskType": 0}
    made = simulated.run("SelfAttentionOperation", params, [query, query, query, length])
    assert made.outputs[0].shape == (4, 1, 16)
    assert moved == [("npu", torch.float16)] * 3  # sequence lengths stay on the host
