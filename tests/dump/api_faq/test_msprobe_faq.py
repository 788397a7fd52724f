"""The questions of msprobe's FAQ about capturing and comparing, each as a test.

What has no test here is answered in docs/migrating.md.
"""

from __future__ import annotations

import json
import logging
import sys
import types
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn, relu
from torch.nn import functional

from ait_llm import open_dump
from ait_llm.compare.api.functions import compare
from ait_llm.dump.api import PrecisionDebugger
from ait_llm.dumps.operations import Operation
from ait_llm.errors import UsageError

Captured = Callable[..., dict[str, Operation]]
Pair = namedtuple("Pair", ["first", "second"])


def leaf(call: Operation, label: str) -> Any:
    return next(value.recorded for value in call.values if value.label == label)


# 1 Capture


def test_1_1_why_are_there_nulls_in_dump_json(captured: Captured) -> None:
    """None, and what JSON cannot say; and the mean and norm of truth values."""
    x, odd = torch.ones(2), object()
    nothing = types.SimpleNamespace(f=lambda *values: x)

    def program() -> None:
        nothing.f(None, odd, x)
        torch.logical_not(torch.tensor([True, False]))

    nothing.__name__ = "mine"
    debugger_calls = _with_custom(captured, nothing, program)
    call = debugger_calls["mine.f.0.forward"]
    assert [value.recorded is None for value in call.values] == [True, True, False, False]
    mask = leaf(debugger_calls["Torch.logical_not.0.forward"], "input.0")
    assert (mask["Max"], mask["Min"], mask["Mean"], mask["Norm"]) == (True, False, None, None)


def _with_custom(captured: Captured, module: Any, program: Callable[[], None]) -> Any:
    """Register a function before the capture starts, which makes the debugger."""

    def starting() -> None:
        PrecisionDebugger.stop()
        PrecisionDebugger.register_custom_api(module, "f")
        PrecisionDebugger.start()
        program()

    return captured(starting, risk_level="ALL")


class GivesPair(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> Any:
        return Pair(self.inner(x), x * 2)


class Holds(nn.Module):
    """The captured module is a part: the outermost one is not recorded."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, x: torch.Tensor) -> Any:
        return self.part(x)


def test_1_2_what_becomes_of_a_module_that_returns_a_namedtuple(captured: Captured) -> None:
    """All its fields are recorded, and the program still gets the named tuple."""
    model = Holds(GivesPair())

    def program() -> None:
        pair = model(torch.ones(1, 2, requires_grad=True))
        assert type(pair) is Pair
        (pair.first.sum() + pair.second.sum()).backward()

    calls = captured(program, model, level="L0")
    outputs = calls["Module.part.GivesPair.forward.0"].outputs
    assert [tensor.shape for tensor in outputs] == [(1, 2), (1, 2)]
    assert len(calls["Module.part.GivesPair.backward.0"].inputs) == 2


def test_1_3_is_a_function_captured_that_was_imported_by_name(captured: Captured) -> None:
    assert "Torch.relu.0.forward" in captured(lambda: relu(torch.ones(2)))


@pytest.mark.filterwarnings("ignore:Using a non-full backward hook:FutureWarning")
def test_1_4_are_modules_with_deprecated_backward_hooks_captured(
    captured: Captured, caplog: pytest.LogCaptureFixture
) -> None:
    """Forward always, and a message says why there is no backward record where there is none."""
    model = Holds(nn.Linear(2, 2))
    seen = []
    model.part.register_backward_hook(lambda *_: seen.append(1))  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        calls = captured(lambda: model(torch.ones(1, 2)).sum().backward(), model, level="L0")
    assert "Module.part.Linear.forward.0" in calls
    assert "Module.part.Linear.parameters_grad.0" in calls
    assert seen  # the program's own hook still runs
    backward = "Module.part.Linear.backward.0" in calls
    assert backward or "has registered deprecated register_backward_hook" in caplog.text


def test_1_5_may_the_debugger_be_made_before_the_model(tmp_path: Path) -> None:
    """Nothing is wrapped before start, so factories and device contexts work as without it."""
    before = torch.Tensor.to, torch.full, functional.relu.__code__
    debugger = PrecisionDebugger(dump_path=str(tmp_path))
    assert (torch.Tensor.to, torch.full, functional.relu.__code__) == before
    with torch.device("meta"):
        model = nn.Linear(2, 2)
    debugger.start()
    with torch.device("meta"):
        assert torch.ones(2).device.type == "meta"
    debugger.stop()
    assert (torch.Tensor.to, torch.full, functional.relu.__code__) == before
    assert model.weight.device.type == "meta"


# 2 Accuracy check: the special methods of tensors and their names

A, B = torch.tensor([6.0, 3.0]), torch.tensor([2.0, 1.0])
I, J = torch.tensor([6, 3]), torch.tensor([2, 1])  # noqa: E741  integers


def _in_place(text: str, x: torch.Tensor, y: torch.Tensor) -> Callable[[], None]:
    def run() -> None:
        exec(f"x {text} y", {"x": x.clone(), "y": y})

    return run


SPECIAL: dict[str, Callable[[], Any]] = {
    "__add__": lambda: A + B,
    "__and__": lambda: I & J,
    "__bool__": lambda: bool(torch.tensor(True)),
    "__eq__": lambda: A == B,
    "__ge__": lambda: A >= B,
    "__gt__": lambda: A > B,
    "__iadd__": _in_place("+=", A, B),
    "__iand__": _in_place("&=", I, J),
    "__ifloordiv__": _in_place("//=", A, B),
    "__ilshift__": _in_place("<<=", I, J),
    "__imod__": _in_place("%=", A, B),
    "__imul__": _in_place("*=", A, B),
    "__ior__": _in_place("|=", I, J),
    "__irshift__": _in_place(">>=", I, J),
    "__isub__": _in_place("-=", A, B),
    "__ixor__": _in_place("^=", I, J),
    "__lshift__": lambda: I << J,
    "__matmul__": lambda: A @ B,
    "__mod__": lambda: A % B,
    "__mul__": lambda: A * B,
    "__or__": lambda: I | J,
    "__radd__": lambda: 1 + A,
    "__rmul__": lambda: 2 * A,
    "__rshift__": lambda: I >> J,
    "__sub__": lambda: A - B,
    "__truediv__": lambda: A / B,
    "__xor__": lambda: I ^ J,
}


def test_2_6_which_operation_is_which_special_method(captured: Captured) -> None:
    def program() -> None:
        for run in SPECIAL.values():
            run()

    calls = captured(program, risk_level="ALL")
    seen = {call.type for call in calls.values() if call.api_name.startswith("Tensor.")}
    assert not SPECIAL.keys() - seen


# 3.1 Use


def test_3_1_1_how_is_a_fused_function_of_my_own_captured(
    captured: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A YAML file names it; no file of the package is edited."""
    fused = types.ModuleType("fused_kernels")

    def npu_scaled_masked_softmax(x: torch.Tensor, scale: float) -> torch.Tensor:
        return torch.softmax(x * scale, -1)

    fused.npu_scaled_masked_softmax = npu_scaled_masked_softmax  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "fused_kernels", fused)
    path = tmp_path / "ops.yaml"
    path.write_text("fused_kernels:\n  - npu_scaled_masked_softmax\n")
    calls = captured(lambda: npu_scaled_masked_softmax(torch.ones(2, 2), 0.5), wrap_ops=str(path))
    (name,) = calls
    assert name == "fused_kernels.npu_scaled_masked_softmax.0.forward"
    assert calls[name].params == {"input.1": 0.5}


# 3.2 Frequent questions


def test_3_2_1_do_two_dumps_into_one_folder_conflict(captured: Captured) -> None:
    """The second replaces the first, with all of its files."""
    captured(lambda: torch.mul(A, B), task="tensor")
    PrecisionDebugger._reset()
    calls = captured(lambda: torch.sub(A, B), task="tensor")
    assert list(calls) == ["Torch.sub.0.forward"]
    files = {path.name for path in calls["Torch.sub.0.forward"].path.parent.rglob("*.pt")}
    assert all(name.startswith("Torch.sub") for name in files)


def test_3_2_2_how_are_kernels_captured(tmp_path: Path) -> None:
    """Not here: level L2 says what to take."""
    with pytest.raises(UsageError, match="level 'L2' captures kernels through the NPU's own dump"):
        PrecisionDebugger(dump_path=str(tmp_path), level="L2")


# 3.3 Errors


def test_3_3_3_is_a_suffix_such_as_1_0_normal(captured: Captured) -> None:
    """It is the place in a list of lists."""
    lstm = nn.LSTM(2, 2)
    calls = captured(lambda: lstm(torch.ones(1, 1, 2)), task="tensor")
    names = {tensor.path.name for tensor in calls["VF.lstm.0.forward"].inputs}
    assert {"VF.lstm.0.forward.input.1.0.pt", "VF.lstm.0.forward.input.1.1.pt"} <= names


def test_3_3_4_the_current_file_contains_stack_information(
    captured: Captured, tmp_path: Path
) -> None:
    """Stacks are shown where they are, whatever stack_mode says."""
    (call,) = captured(lambda: torch.mul(A, B)).values()
    paths = {"npu_json_path": str(call.path), "bench_json_path": str(call.path)}
    for stack_mode in (True, False):
        outcome = compare(paths, tmp_path / f"out{stack_mode}", stack_mode=stack_mode)
        (table,) = (file for file in outcome.pairs[0].files if file.suffix == ".csv")
        header, *rows = table.read_text().splitlines()
        assert "NPU_Stack_Info" in header
        assert any("test_msprobe_faq.py" in row for row in rows)


def test_3_3_5_name_torch_npu_is_not_defined(captured: Captured) -> None:
    """A capture needs no torch_npu and does not import it."""
    assert captured(lambda: torch.mul(A, B))
    assert "torch_npu" not in sys.modules


def test_3_3_6_the_file_path_contains_special_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The absolute path counts, the present folder included."""
    folder = tmp_path / "abc++"
    folder.mkdir()
    monkeypatch.chdir(folder)
    with pytest.raises(UsageError, match=r"The file path .*abc\+\+/dump contains special charact"):
        PrecisionDebugger(dump_path="./dump")


def test_3_3_7_where_is_the_gradient_of_the_weight_of_a_product(captured: Captured) -> None:
    """Not in the backward record of a product that was reshaped; level mix has it per parameter."""
    model = Holds(nn.Linear(2, 2, bias=False))
    x = torch.ones(2, 3, 2, requires_grad=True)
    calls = captured(lambda: model(x).sum().backward(), model, level="mix")
    gradients = calls["Module.part.Linear.parameters_grad.0"].tensors
    assert [tensor.ir_name for tensor in gradients] == ["weight"]
    assert gradients[0].shape == (2, 2)


def test_3_3_8_may_the_type_in_a_file_differ_from_that_in_dump_json(captured: Captured) -> None:
    """No: the files are torch's, which has all types."""
    types_ = (torch.float16, torch.bfloat16, torch.float64, torch.float8_e4m3fn)

    def program() -> None:
        for dtype in types_:
            torch.ones(3).to(dtype).to(torch.float32)

    calls = captured(program, task="tensor", risk_level="ALL")
    seen = set()
    for call in calls.values():
        recorded = {value.label: value.recorded_dtype for value in call.values}
        for tensor in call.tensors:
            assert str(tensor.torch().dtype) == recorded[tensor.ir_name]
            seen.add(tensor.torch().dtype)
    assert set(types_) <= seen


def test_3_3_9_does_a_data_loader_end_the_program(tmp_path: Path) -> None:
    """No exception ends it: after the last step that was asked for nothing more is captured."""
    loader = torch.utils.data.DataLoader(torch.arange(4.0), batch_size=1)
    debugger = PrecisionDebugger(dump_path=str(tmp_path), step=[1])
    seen = 0
    for batch in loader:
        debugger.start()
        torch.relu(batch)
        debugger.stop()
        debugger.step()
        seen += 1
    assert seen == 4
    assert open_dump(tmp_path).steps == (1,)


def test_3_3_10_activation_func_must_be_gelu(tmp_path: Path) -> None:
    """Functions stay the objects they are, before, during and after a capture."""
    functions = functional.gelu, functional.silu, torch.relu, nn.Module.__call__
    debugger = PrecisionDebugger(dump_path=str(tmp_path))
    debugger.start()
    during = functional.gelu, functional.silu, torch.relu, nn.Module.__call__
    debugger.stop()
    assert all(one is other for one, other in zip(functions, during, strict=True))


def test_3_3_11_how_are_functions_left_out_that_a_compiler_trips_over(
    captured: Captured, tmp_path: Path
) -> None:
    """The same YAML file leaves names out."""
    path = tmp_path / "ops.yaml"
    path.write_text("tensor:\n  - '!t'\n  - '!transpose'\n")
    x = torch.ones(2, 3)
    calls = captured(
        lambda: (x.t(), x.transpose(0, 1), x.mul(2)), wrap_ops=str(path), risk_level="ALL"
    )
    assert list(calls) == ["Tensor.mul.0.forward"]


# The other questions of the issue about a capture


def test_recomputed_calls_are_recorded_again_with_the_next_number(captured: Captured) -> None:
    from torch.utils.checkpoint import checkpoint

    x = torch.ones(2, requires_grad=True)

    def program() -> None:
        checkpoint(torch.exp, x, use_reentrant=False).sum().backward()

    calls = captured(program)
    assert {"Torch.exp.0.forward", "Torch.exp.1.forward"} <= calls.keys()


def test_dump_json_is_what_other_tools_parse(captured: Captured) -> None:
    calls = captured(lambda: torch.mul(A, B))
    (call,) = calls.values()
    content = json.loads(call.path.read_text())
    assert list(content) == ["task", "level", "framework", "dump_data_dir", "data"]
