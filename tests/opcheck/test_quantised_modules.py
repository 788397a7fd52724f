"""Products with weights of few bits in captures of modules, judged alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from ait_llm import DumpConfig, register_hook
from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.outcome import OpcheckReport
from ait_llm.opcheck.pipeline import opcheck

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
WIDTH, OUT, GROUP = 96, 40, 32


class Stored(Tensor):
    """A weight that names its parts, as those of optimum-quanto and torchao do."""

    parts: dict[str, Any]

    @staticmethod
    def __new__(cls, dtype: torch.dtype, **parts: Any) -> Stored:
        made: Stored = torch.Tensor._make_wrapper_subclass(cls, (OUT, WIDTH), dtype=dtype)
        made.parts = parts
        for name, part in parts.items():
            setattr(made, name, part)
        return made

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        return [name for name, part in self.parts.items() if isinstance(part, Tensor)], None

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return args[0] if func is torch.ops.aten.detach.default else NotImplemented


class Int8Tensor(Stored):
    """Of torchao: it says whether inputs are quantised, too."""


class Packed(Stored):
    """Bytes of four bits."""


class QLinear(nn.Linear):
    """As in optimum.quanto, with its product written out: rounded, scaled, and a bias added."""

    def __init__(self, weight: Tensor, real: Tensor, bias: Tensor | None) -> None:
        super().__init__(WIDTH, OUT, bias=bias is not None)
        self.weight = nn.Parameter(weight, requires_grad=False)
        if bias is not None:
            self.bias = nn.Parameter(bias)
        self.activation_qtype = None
        self.weight_group_size = None
        self._real = real
        self.register_buffer("input_scale", torch.ones(()))
        self.register_buffer("output_scale", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        made = (x.double() @ self._real.double().T).to(x.dtype)
        return made if self.bias is None else made + self.bias


def bytes_of_rows(dtype: torch.dtype, kind: torch.dtype, bias: bool = True) -> QLinear:
    data = torch.randn(OUT, WIDTH).mul(40).round().clamp(-127, 127).to(kind)
    scale = (torch.rand(OUT, 1) * 0.01 + 0.001).to(dtype)
    real = data.double() * scale.double()
    return QLinear(Stored(dtype, _data=data, _scale=scale), real, some_bias(dtype, bias))


def some_bias(dtype: torch.dtype, there: bool = True) -> Tensor | None:
    return torch.randn(OUT).to(dtype) if there else None


def groups(dtype: torch.dtype, bits: int, whole: bool) -> QLinear:
    """As ``qint4`` and ``qint2``: rows of groups, packed along the first axis."""
    count = OUT * WIDTH // GROUP
    data = torch.randint(0, 1 << bits, (count, GROUP))
    scale = (torch.rand(count, 1) * 0.1 + 0.01).to(dtype)
    shift = torch.randint(0, 1 << bits, (count, 1)).to(torch.int8) if whole else scale * 3
    real = (data - shift.double()) * scale if whole else data * scale.double() - shift.double()
    rows = count * bits // 8
    packed = sum(
        data[place * rows : (place + 1) * rows] << bits * place for place in range(8 // bits)
    )
    assert isinstance(packed, Tensor)
    inner = Packed(torch.uint8, _data=packed.to(torch.uint8))
    weight = Stored(dtype, _data=inner, _scale=scale, _shift=shift)
    return QLinear(weight, real.reshape(OUT, WIDTH), some_bias(dtype))


def of_torchao(dtype: torch.dtype, inputs_too: bool) -> nn.Linear:
    """A plain ``Linear`` whose weight is Int8Tensor."""

    class Linear(QLinear):
        pass

    data = torch.randint(-127, 128, (OUT, WIDTH), dtype=torch.int8)
    scale = torch.rand(OUT, 1) * 0.01
    zero = torch.zeros(OUT, 1, dtype=torch.int8)
    how = object() if inputs_too else None
    weight = Int8Tensor(dtype, qdata=data, scale=scale, zero_point=zero, act_quant_kwargs=how)
    made = Linear(weight, data.double() * scale.double(), some_bias(dtype))
    del made.input_scale, made.output_scale
    return made


def judged(module: nn.Module, dtype: torch.dtype, folder: Path) -> OpcheckReport:
    torch.manual_seed(3)
    model = nn.Sequential(module)
    with torch.no_grad(), register_hook(model, DumpConfig(dump_path=folder, weights=True)):
        model(torch.randn(6, WIDTH).to(dtype))
    return opcheck(folder / "ait_dump")


def verdicts(report: OpcheckReport) -> list[Verdict]:
    return [item.verdict for item in report.items]


MAKERS = {
    "int8": lambda dtype: bytes_of_rows(dtype, torch.int8),
    "int8 without bias": lambda dtype: bytes_of_rows(dtype, torch.int8, bias=False),
    "fp8": lambda dtype: bytes_of_rows(dtype, torch.float8_e4m3fn),
    "int4 in groups": lambda dtype: groups(dtype, 4, whole=False),
    "int4 with zero points": lambda dtype: groups(dtype, 4, whole=True),
    "int2 in groups": lambda dtype: groups(dtype, 2, whole=False),
    "Int8Tensor": lambda dtype: of_torchao(dtype, inputs_too=False),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", MAKERS)
def test_a_product_with_a_quantised_weight_is_right_by_what_is_stored(
    kind: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    torch.manual_seed(7)
    report = judged(MAKERS[kind](dtype), dtype, tmp_path)
    assert [item.reason for item in report.items if item.reason] == []
    assert verdicts(report) == [Verdict.PASS]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", MAKERS)
def test_one_wrong_scale_of_a_quantised_weight_is_found(
    kind: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    torch.manual_seed(7)
    module = MAKERS[kind](dtype)
    module._real[5] *= 1.3
    assert verdicts(judged(module, dtype, tmp_path)) == [Verdict.FAIL]


def test_a_weight_that_was_rounded_to_the_type_of_the_input_first_is_right(tmp_path: Path) -> None:
    torch.manual_seed(7)
    module = bytes_of_rows(torch.bfloat16, torch.float8_e4m3fn)
    module._real = module._real.bfloat16()
    assert verdicts(judged(module, torch.bfloat16, tmp_path)) == [Verdict.PASS]


def test_where_inputs_are_quantised_too_nothing_is_judged(tmp_path: Path) -> None:
    report = judged(of_torchao(torch.bfloat16, inputs_too=True), torch.bfloat16, tmp_path)
    assert report.items == []
    assert report.exit_code() == 3


def test_a_weight_that_is_quantised_anew_in_each_call_is_not_judged(tmp_path: Path) -> None:
    module = bytes_of_rows(torch.bfloat16, torch.int8)
    module.weight = nn.Parameter(module._real.bfloat16())
    assert judged(module, torch.bfloat16, tmp_path).items == []
