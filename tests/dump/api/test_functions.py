"""Level L1: which calls are seen, under which name, and that the program is left as it was."""

from __future__ import annotations

import operator
import threading
import types
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from api_captures import Debug, Read
from torch import nn
from torch import relu as imported_relu
from torch.nn.functional import softmax as imported_softmax
from torch.utils._python_dispatch import TorchDispatchMode


class PassingOn(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch is untyped here
    """A mode of the program that changes nothing."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return func(*args, **(kwargs or {}))


def names(captured: Read, step: int = 0) -> list[str]:
    return [name.removesuffix(".forward") for name in captured(step).data]


def record(debug: Debug, captured: Read, program: Callable[[], object]) -> list[str]:
    debugger = debug()
    debugger.start()
    program()
    debugger.stop()
    return names(captured)


def test_function_imported_by_name_before_the_capture_is_recorded(
    debug: Debug, captured: Read
) -> None:
    x = torch.randn(4)

    def program() -> None:
        imported_relu(x)
        imported_softmax(x, -1)

    assert record(debug, captured, program) == ["Torch.relu.0", "Functional.softmax.0"]


def test_operators_are_recorded_under_their_special_method(debug: Debug, captured: Read) -> None:
    x = torch.randn(3, 3)

    def program() -> None:
        y = x + 1
        1 + x
        y += x
        x.add(1)
        torch.add(x, 1)
        2 - x
        x @ x
        x**2
        operator.eq(x, x)
        operator.mul(x, x)

    assert record(debug, captured, program) == [
        "Tensor.__add__.0",
        "Tensor.__radd__.0",
        "Tensor.__iadd__.0",
        "Tensor.add.0",
        "Torch.add.0",
        "Tensor.__rsub__.0",
        "Tensor.__matmul__.0",
        "Tensor.__pow__.0",
        "Tensor.__eq__.0",
        "Tensor.__mul__.0",
    ]


def test_operator_that_is_not_listed_is_no_call_of_a_listed_method(
    debug: Debug, captured: Read
) -> None:
    x = torch.randn(3)

    def program() -> None:
        _ = -x
        abs(x)
        x.neg()

    assert record(debug, captured, program) == ["Tensor.neg.0"]


def test_one_object_under_two_names_is_recorded_under_the_name_that_was_called(
    debug: Debug, captured: Read
) -> None:
    x, weight = torch.randn(1, 2, 4), torch.randn(2, 2, 1)

    def program() -> None:
        F.conv1d(x, weight)
        torch.conv1d(x, weight)

    assert record(debug, captured, program) == ["Functional.conv1d.0", "Torch.conv1d.0"]


def test_functions_called_inside_modules_are_recorded(debug: Debug, captured: Read) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.LayerNorm(4))

    assert record(debug, captured, lambda: model(torch.randn(2, 4))) == [
        "Functional.linear.0",
        "Functional.gelu.0",
        "Functional.layer_norm.0",
    ]


def test_only_the_outermost_of_nested_calls_is_recorded(debug: Debug, captured: Read) -> None:
    x = torch.randn(2, 3)

    assert record(debug, captured, lambda: F.normalize(x)) == ["Functional.normalize.0"]


def test_calls_within_functions_that_are_not_listed_are_recorded(
    debug: Debug, captured: Read
) -> None:
    x = torch.randn(3, requires_grad=True)

    def program() -> None:
        nn.init.constant_(torch.empty(2), 1.0)
        torch.meshgrid(torch.ones(2), torch.ones(2), indexing="ij")
        torch.autograd.grad(_Twice.apply(x).sum(), x)

    assert record(debug, captured, program) == [
        "Tensor.fill_.0",
        "Tensor.__mul__.0",
        "Tensor.sum.0",
        "Tensor.sum.0.backward",
        "Tensor.mul.0",
    ]


class _Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: object, grad: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return grad.mul(2)


def test_arguments_are_recorded_as_they_were_passed(debug: Debug, captured: Read) -> None:
    x = torch.randn(2, 3)
    debugger = debug()
    debugger.start()
    F.softmax(x, -1)
    F.softmax(x, dim=1)
    debugger.stop()

    first, second = captured().data.values()
    assert first["input_args"][1:] == [{"type": "int", "value": -1}]
    assert first["input_kwargs"] == {}
    assert second["input_kwargs"] == {"dim": {"type": "int", "value": 1}}
    assert len(second["input_args"]) == 1


def test_calls_of_other_threads_are_recorded(debug: Debug, captured: Read) -> None:
    x = torch.randn(3)
    waiting, go = threading.Event(), threading.Event()
    model = nn.Linear(3, 3)

    def old() -> None:
        waiting.set()
        go.wait()
        model(x)

    there = threading.Thread(target=old)
    there.start()
    waiting.wait()
    debugger = debug()
    debugger.start()
    new = threading.Thread(target=lambda: torch.tanh(x))
    new.start()
    new.join()
    go.set()
    there.join()
    debugger.stop()

    assert names(captured) == ["Torch.tanh.0", "Functional.linear.0"]


def test_everything_is_as_before_after_stop(debug: Debug) -> None:
    softmax, code = F.softmax, F.softmax.__code__
    gelu, conv = F.gelu, torch.conv1d
    methods = dict(vars(torch.Tensor))
    debugger = debug(level="mix")
    model = nn.Sequential(nn.Linear(2, 2))
    debugger.start(model)
    assert F.softmax is softmax
    assert F.gelu is gelu
    debugger.stop()

    assert F.softmax.__code__ is code
    assert torch.conv1d is conv
    assert dict(vars(torch.Tensor)) == methods
    assert torch._C._len_torch_function_stack() == 0
    assert not model[0]._forward_hooks
    assert not model[0]._forward_pre_hooks
    assert threading.Thread.start.__module__ == "threading"


def test_function_that_the_program_replaces_between_windows_is_seen_and_stays(
    debug: Debug, captured: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    debugger = debug()
    debugger.start()
    F.silu(torch.ones(1))
    debugger.stop()
    monkeypatch.setattr(F, "silu", lambda x: x * torch.sigmoid(x))
    mine = F.silu
    debugger.start()
    F.silu(torch.ones(1))
    debugger.stop()

    assert F.silu is mine
    assert names(captured) == ["Functional.silu.0", "Functional.silu.1"]


def test_nothing_is_recorded_outside_the_window(debug: Debug, captured: Read) -> None:
    x = torch.randn(3, requires_grad=True)
    debugger = debug()
    debugger.start()
    y = torch.exp(x)
    debugger.stop()
    torch.sin(y).sum().backward()
    debugger.start()
    torch.cos(x)
    debugger.stop()

    assert names(captured) == ["Torch.exp.0", "Torch.cos.0"]


def test_a_mode_of_the_program_that_ends_after_stop_is_not_disturbed(debug: Debug) -> None:
    debugger = debug()
    debugger.start()
    with torch.device("meta"):
        debugger.stop()
        assert torch.zeros(1).is_meta
    assert torch._C._len_torch_function_stack() == 0


def test_operators_within_a_recorded_call_run_as_without_a_capture(debug: Debug) -> None:
    modes: list[int] = []
    kernels = types.SimpleNamespace(fused=lambda x: modes.append(_dispatch_modes()) or x)
    debugger = debug()
    debugger.register_custom_api(kernels, "fused", "mine")
    debugger.start()
    with PassingOn():  # one of the program's own is there as ever
        kernels.fused(torch.ones(2))
    kernels.fused(torch.ones(2))
    modes.append(_dispatch_modes())
    debugger.stop()

    assert modes == [2, 0, 1]
    assert _dispatch_modes() == 0


def test_capture_that_ends_within_a_recorded_call_leaves_no_mode(debug: Debug) -> None:
    debugger = debug()
    kernels = types.SimpleNamespace(
        last=lambda x: debugger.stop() or x, anew=lambda x: debugger.stop() or debugger.start() or x
    )
    for name in ("last", "anew"):
        debugger.register_custom_api(kernels, name, "mine")
    debugger.start()
    kernels.last(torch.ones(2))
    assert _dispatch_modes() == torch._C._len_torch_function_stack() == 0

    debugger.start()
    kernels.anew(torch.ones(2))
    assert _dispatch_modes() == 1
    debugger.stop()
    assert _dispatch_modes() == torch._C._len_torch_function_stack() == 0


def _dispatch_modes() -> int:
    return int(torch._C._len_torch_dispatch_stack())


def test_steps_have_folders_and_counters_of_their_own(debug: Debug, captured: Read) -> None:
    debugger = debug(step=[0, "2-3"])
    for _ in range(4):
        debugger.start()
        torch.exp(torch.ones(2))
        debugger.stop()
        debugger.step()

    assert names(captured, 0) == names(captured, 2) == names(captured, 3) == ["Torch.exp.0"]
    with pytest.raises(FileNotFoundError):
        captured(1)


def test_list_selects_by_parts_of_names(debug: Debug, captured: Read) -> None:
    debugger = debug(section={"list": ["exp", "sin.1"]})
    debugger.start()
    for _ in range(2):
        torch.exp(torch.ones(2))
        torch.sin(torch.ones(2))
    debugger.stop()

    assert names(captured) == ["Torch.exp.0", "Torch.exp.1", "Torch.sin.1"]


def test_scope_selects_from_the_first_to_the_last_name(debug: Debug, captured: Read) -> None:
    x = torch.ones(2, requires_grad=True)
    debugger = debug(section={"scope": ["Torch.sin.0.forward", "Torch.cos.0.forward"]})
    debugger.start()
    y = torch.cos(torch.sin(torch.exp(x)))
    torch.tan(y).sum().backward()
    debugger.stop()

    assert names(captured) == ["Torch.sin.0", "Torch.cos.0"]


def test_scope_may_lie_in_the_backward_pass(debug: Debug, captured: Read) -> None:
    x = torch.ones(2, requires_grad=True)
    debugger = debug(section={"scope": ["Torch.cos.0.backward", "Torch.sin.0.backward"]})
    debugger.start()
    torch.tan(torch.cos(torch.sin(torch.exp(x)))).sum().backward()
    debugger.stop()

    assert names(captured) == ["Torch.cos.0.backward", "Torch.sin.0.backward"]


def test_data_mode_leaves_out_what_was_not_asked_for(debug: Debug, captured: Read) -> None:
    x = torch.ones(2, requires_grad=True)
    debugger = debug(section={"data_mode": ["backward", "input"]})
    debugger.start()
    torch.exp(x).sum().backward()
    debugger.stop()

    assert {name: list(record) for name, record in captured().data.items()} == {
        "Tensor.sum.0.backward": ["input"],
        "Torch.exp.0.backward": ["input"],
    }


@pytest.mark.parametrize(
    ("risk_level", "expected"),
    [
        ("ALL", ["Functional.linear.0", "Torch.cat.0", "Torch.exp.0"]),
        ("FOCUS", ["Functional.linear.0", "Torch.exp.0"]),
        ("CORE", ["Functional.linear.0"]),
    ],
)
def test_risk_level_filters_functions_and_core_has_linear(
    debug: Debug, captured: Read, risk_level: str, expected: list[str]
) -> None:
    x = torch.ones(2, 2)
    debugger = debug(risk_level=risk_level)
    debugger.start()
    F.linear(x, x)
    torch.cat((x, x))
    torch.exp(x)
    debugger.stop()

    assert names(captured) == expected


def test_function_of_the_users_own_is_recorded_when_registered(
    debug: Debug, captured: Read
) -> None:
    debugger = debug()
    debugger.register_custom_api(operator, "neg", "mine")
    debugger.start()
    operator.neg(torch.ones(2))
    debugger.stop()
    debugger.restore_custom_api(operator, "neg")
    debugger.start()
    operator.neg(torch.ones(2))
    debugger.stop()

    assert names(captured) == ["mine.neg.0"]
    assert operator.neg.__module__ == "_operator"


def test_operators_of_a_named_namespace_are_recorded(debug: Debug, captured: Read) -> None:
    library = torch.library.Library("ait_test_ops", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x * 2, "CompositeImplicitAutograd")
    debugger = debug(custom_op_namespaces=["ait_test_ops"])
    debugger.start()
    torch.ops.ait_test_ops.twice(torch.ones(2))
    debugger.stop()

    assert names(captured) == ["ait_test_ops.twice.0"]


def test_products_of_quantised_modules_are_recorded(debug: Debug, captured: Read) -> None:
    library = torch.library.Library("quantized", "FRAGMENT")
    library.define("ait_twice(Tensor x) -> Tensor")
    library.impl("ait_twice", lambda x: x * 2, "CompositeImplicitAutograd")
    debugger = debug()
    debugger.start()
    torch.ops.quantized.ait_twice(torch.ones(2))
    debugger.stop()

    assert names(captured) == ["quantized.ait_twice.0"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.skipif(torch.backends.quantized.engine == "none", reason="no engine of quantisation")
def test_a_dynamically_quantised_linear_module_is_recorded(debug: Debug, captured: Read) -> None:
    model = torch.ao.quantization.quantize_dynamic(
        nn.Sequential(nn.Linear(8, 8)), {nn.Linear}, torch.qint8
    )
    debugger = debug()
    debugger.start()
    model(torch.ones(2, 8))
    debugger.stop()

    assert names(captured)[0] == "quantized.linear_dynamic.0"


def test_stacks_name_the_line_of_the_call_and_are_shared(debug: Debug, captured: Read) -> None:
    x = torch.ones(2)
    debugger = debug()
    debugger.start()
    for _ in range(2):
        torch.exp(x)
    F.softmax(x, 0)
    debugger.stop()

    groups = captured().json("stack.json")
    assert [group[0] for group in groups.values()] == [
        ["Torch.exp.0.forward", "Torch.exp.1.forward"],
        ["Functional.softmax.0.forward"],
    ]
    for group, line in zip(groups.values(), ("torch.exp(x)", "F.softmax(x, 0)"), strict=True):
        assert group[1][0].startswith(f"File {__file__}, line ")
        assert group[1][0].endswith(f"_and_are_shared, \n {line}")


def test_stacks_have_no_frames_that_only_listening_makes(debug: Debug, captured: Read) -> None:
    x = torch.ones(2)
    debugger = debug()
    debugger.start()
    _ = 1 / x
    debugger.stop()

    (group,) = captured().json("stack.json").values()
    assert [frame.split(", ")[2] for frame in group[1][:2]] == ["in __rdiv__", "in wrapped"]
    assert group[1][2].startswith(f"File {__file__}")
    assert not [frame for frame in group[1] if "overrides.py" in frame]


def test_compiled_code_is_recorded(debug: Debug, captured: Read) -> None:
    @torch.compile(backend="eager")
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.exp(x))

    x = torch.ones(2)
    function(x)
    assert record(debug, captured, lambda: function(x)) == ["Torch.exp.0", "Torch.relu.0"]


def test_calls_from_script_are_recorded(debug: Debug, captured: Read) -> None:
    with pytest.warns(DeprecationWarning, match="script"):
        function = torch.jit.script(_scripted)

    assert record(debug, captured, lambda: function(torch.ones(2))) == ["Torch.sigmoid.0"]


def _scripted(x: torch.Tensor) -> torch.Tensor:
    return torch.sigmoid(x)
