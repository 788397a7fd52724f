"""Modules of a torch capture, each computed again in float64 from its input and its weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn
from torch.nn import functional

from ait_llm import DumpConfig, register_hook
from ait_llm.cli.main import ait
from ait_llm.core.comparison import Verdict
from ait_llm.opcheck.golden import EXACT, UnverifiableError
from ait_llm.opcheck.golden.functions import golden_function
from ait_llm.opcheck.golden.modules import Given, module_function
from ait_llm.opcheck.outcome import OpcheckReport
from ait_llm.opcheck.pipeline import opcheck

SEED = 5
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


class LlamaRMSNorm(nn.Module):
    """As in transformers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))
        self.variance_epsilon = 1e-6

    def forward(self, hidden_states: Tensor) -> Tensor:
        x = hidden_states.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * x.to(hidden_states.dtype)


class GemmaRMSNorm(nn.Module):
    """As in transformers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))
        self.eps = 1e-6

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)
        return (wide * (1.0 + self.weight.float())).type_as(x)


class MyRMSNorm(nn.Module):
    """Nobody knows whether its weight is the distance from one."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))
        self.eps = 1e-6

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * (2 + self.weight)


class NewGELUActivation(nn.Module):
    """As in transformers: in 16 bits each of its steps is rounded."""

    def forward(self, x: Tensor) -> Tensor:
        inner = 0.7978845608028654 * (x + 0.044715 * torch.pow(x, 3.0))
        return 0.5 * x * (1.0 + torch.tanh(inner))


class Conv1D(nn.Module):
    """As in transformers: the weight of GPT-2 lies the other way round."""

    def __init__(self, nf: int, nx: int) -> None:
        super().__init__()
        self.nf, self.nx = nf, nx
        self.weight = nn.Parameter(torch.randn(nx, nf))
        self.bias = nn.Parameter(torch.randn(nf))

    def forward(self, x: Tensor) -> Tensor:
        flat = torch.addmm(self.bias, x.view(-1, self.nx), self.weight)
        return flat.view(*x.shape[:-1], self.nf)


class Many(nn.Module):
    """Modules of many kinds, one of them unknown, one with a weight that is tied."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(SEED)
        self.embedding = nn.Embedding(20, 8)
        self.convolution = nn.Conv1d(8, 12, 3, padding=1)
        self.groups = nn.GroupNorm(3, 12)
        self.norm = nn.LayerNorm(12)
        self.first = Conv1D(16, 12)
        self.gelu = NewGELUActivation()
        self.dropout = nn.Dropout(0.5)
        self.second = nn.Linear(16, 8)
        self.llama = LlamaRMSNorm(8)
        self.gemma = GemmaRMSNorm(8)
        self.own = MyRMSNorm(8)
        self.softmax = nn.Softmax(-1)
        self.activations = nn.ModuleList([nn.SiLU(), nn.GELU("tanh"), nn.ReLU(), nn.Tanh()])
        self.head = nn.Linear(8, 20, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        x = self.groups(self.convolution(x.transpose(1, 2))).transpose(1, 2)
        x = self.dropout(self.gelu(self.first(self.norm(x))))
        x = self.own(self.gemma(self.llama(self.second(x))))
        for activation in self.activations:
            x = activation(3 * x)
        return self.softmax(self.head(x))


class Alone(nn.Module):
    """No module of it has a definition."""

    def __init__(self) -> None:
        super().__init__()
        self.own = MyRMSNorm(8)

    def forward(self, ids: Tensor) -> Tensor:
        return self.own(ids.float().new_ones(2, 8))


def capture(model: nn.Module, folder: Path, *, weights: bool = True) -> Path:
    ids = torch.arange(14).view(2, 7)
    config = DumpConfig(dump_path=folder, weights=weights)
    with torch.no_grad(), register_hook(model, config):
        model(ids)
    return folder / "ait_dump"


def change_output(dump: Path, module: str, change: Callable[[Tensor], Tensor]) -> None:
    (path,) = dump.glob(f"torch_tensors/*/0/{module}/output.pth")
    values = torch.load(path, weights_only=True)
    path.unlink()  # files of equal values are links to one
    torch.save(change(values), path)


def failed(report: OpcheckReport) -> list[str]:
    return [item.op_id for item in report.items if item.verdict is Verdict.FAIL]


@pytest.mark.parametrize("dtype", DTYPES)
def test_modules_of_a_healthy_run_are_right_by_their_definition_and_weights(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    dump = capture(Many().to(dtype).eval(), tmp_path)
    result = CliRunner().invoke(
        ait, ["llm", "opcheck", "-i", str(dump), "-o", str(tmp_path), "--json"]
    )
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["standard"] == "contract"
    report = opcheck(dump)
    assert [item.reason for item in report.items if item.verdict is not Verdict.PASS] == []
    assert {item.op_id for item in report.items} >= {"root.head@0", "root.first@0", "root.gelu@0"}
    assert report.operators == 16
    assert report.unchecked == {"have no golden operator: MyRMSNorm": 1}


def wrong_element(values: Tensor) -> Tensor:
    values = values.clone()
    values.view(-1)[5] += values.abs().max()
    return values


@pytest.mark.parametrize("dtype", [torch.bfloat16])
@pytest.mark.parametrize(
    ("module", "change"),
    [
        ("root.second", lambda values: values * 1.01),
        ("root.first", wrong_element),
        ("root.llama", lambda values: values * 1.01),
        ("root.gelu", lambda values: values * 1.01),
        ("root.embedding", wrong_element),
        ("root.softmax", lambda values: values.roll(1, -1)),
        ("root.dropout", lambda values: values * 1.01),
        ("root.head", wrong_element),
    ],
)
def test_a_module_that_is_wrong_is_the_only_one_named(
    module: str, change: Callable[[Tensor], Tensor], dtype: torch.dtype, tmp_path: Path
) -> None:
    dump = capture(Many().to(dtype).eval(), tmp_path)
    change_output(dump, module, change)
    report = opcheck(dump)
    assert failed(report) == [f"{module}@0"]
    assert report.exit_code() == 1


def test_dropout_that_drops_is_right_and_one_that_scales_too_much_is_not(tmp_path: Path) -> None:
    model = Many().eval()
    model.dropout.train()
    dump = capture(model, tmp_path)
    assert failed(opcheck(dump)) == []
    change_output(dump, "root.dropout", lambda values: values * 1.01)
    assert failed(opcheck(dump)) == ["root.dropout@0"]


def test_without_weights_modules_that_have_some_say_what_to_do(tmp_path: Path) -> None:
    report = opcheck(capture(Many().eval(), tmp_path, weights=False))
    skipped = {item.reason for item in report.items if item.verdict is Verdict.SKIPPED}
    assert skipped == {"its parameters were not saved; dump with --weights"}
    assert failed(report) == []
    assert report.exit_code() == 3


def test_norms_whose_weights_were_not_captured_are_not_computed_without_them(
    tmp_path: Path,
) -> None:
    model = nn.Sequential(nn.RMSNorm(8), nn.LayerNorm(8), nn.GroupNorm(2, 8))
    for norm in model:
        nn.init.normal_(norm.weight)
    model(torch.randn(5, 8))
    with torch.no_grad(), register_hook(model, DumpConfig(tmp_path)):
        model(torch.randn(5, 8))
    report = opcheck(tmp_path)
    assert [item.verdict for item in report.items] == [Verdict.SKIPPED] * 3
    reasons = {item.reason for item in report.items}
    assert reasons == {"its parameters were not saved; dump with --weights"}


class Products(nn.Module):
    """What autocast takes to 16 bits: values of float32, values of 16 bits, images, a transpose."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(256, 192), nn.Linear(192, 128, bias=False)
        self.conv, self.joined = nn.Conv1d(16, 24, 3), Conv1D(128, 192)

    def forward(self, x: Tensor) -> Tensor:
        y = functional.silu(self.first(x))
        self.conv(x.view(16, 16, -1))
        return self.second(y) + self.joined(y)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["first", "second", "conv", "joined"])
def test_products_that_autocast_takes_to_16_bits_are_judged_in_those(
    tmp_path: Path, half: torch.dtype, name: str
) -> None:
    torch.manual_seed(SEED)
    net, x = Products().eval(), torch.randn(16, 256)

    def checked(folder: Path) -> OpcheckReport:
        config = DumpConfig(str(folder), weights=True)
        with torch.no_grad(), register_hook(net, config), torch.autocast("cpu", half):
            net(x)
        return opcheck(folder, jobs=1)

    report = checked(tmp_path / "healthy")
    assert {item.verdict for item in report.items} == {Verdict.PASS}
    assert len(report.items) == 4

    def off(*call: Any) -> Tensor:
        made: Tensor = call[-1]
        return made * 1.01

    with net.get_submodule(name).register_forward_hook(off):
        report = checked(tmp_path / "faulty")
    assert [each.partition("@")[0] for each in failed(report)] == [f"root.{name}"]


class Wide(nn.Linear):
    """A product of float32, rounded at its end: no autocast."""

    def forward(self, x: Tensor) -> Tensor:
        return functional.linear(x.float(), self.weight, self.bias).bfloat16()


Wide.__name__ = Wide.__qualname__ = nn.Linear.__name__


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float32])
def test_a_product_of_float32_that_is_rounded_at_its_end_is_no_fault(
    tmp_path: Path, half: torch.dtype
) -> None:
    torch.manual_seed(SEED)
    net, x = nn.Sequential(Wide(512, 64)).eval(), torch.randn(32, 512).to(half)
    with torch.no_grad(), register_hook(net, DumpConfig(str(tmp_path), weights=True)):
        net(x)
    report = opcheck(tmp_path, jobs=1)
    assert [item.verdict for item in report.items] == [Verdict.PASS]


class Widening(nn.Sigmoid):
    """As autocast of some devices lets functions return more digits than they are given."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.sigmoid(x.float())


Widening.__name__ = Widening.__qualname__ = nn.Sigmoid.__name__


def test_functions_in_types_that_were_chosen_from_outside_are_not_judged(tmp_path: Path) -> None:
    net, x = Widening(), torch.randn(4, 8, dtype=torch.bfloat16)
    with register_hook(net, DumpConfig(str(tmp_path))):
        net(x)
    (item,) = opcheck(tmp_path, jobs=1).items
    assert item.verdict is Verdict.SKIPPED
    assert "as by autocast" in item.reason


def test_modules_are_chosen_by_the_name_of_their_class(tmp_path: Path) -> None:
    dump = capture(Many().eval(), tmp_path)
    arguments = ["llm", "opcheck", "-i", str(dump), "-o", str(tmp_path), "--json"]
    result = CliRunner().invoke(ait, [*arguments, "-opname", "linear,softmax"])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(ait, [*arguments, "-opname", "myrms"])
    assert result.exit_code == 3, result.output


def test_a_dump_of_modules_that_nobody_knows_passes_nothing(tmp_path: Path) -> None:
    report = opcheck(capture(Alone(), tmp_path))
    assert report.exit_code() == 3


def given(
    kind: str, weights: dict[str, tuple[int, ...]], inputs: Sequence[str] = ("0",), **plain: object
) -> Given:
    return Given(kind, plain, tuple(inputs), weights, ((2, 4),))


@pytest.mark.parametrize(
    "ambiguous",
    [
        given("Linear", {"weight": (4, 4), "lora_A": (4, 2)}, in_features=4, out_features=4),
        given("Linear", {"weight": (4, 4)}, in_features=4, out_features=8),
        given("Linear", {"weight": (4, 4)}, in_features=4, out_features=4, bias=True),
        given("Embedding", {"weight": (4, 4)}, max_norm=1.0),
        given("OwnRMSNorm", {"weight": (4,)}, eps=1e-6),
        given("LlamaRMSNorm", {"weight": (4,)}, ["0", "residual"], variance_epsilon=1e-6),
        given("Conv2d", {"weight": (4, 4, 1, 1)}, padding_mode="reflect"),
        given("CohereRotaryEmbedding", {"inv_freq": (2,)}, ["0", "1"], rope_type="default"),
        given("GELUActivation", {}, act="mine"),
    ],
    ids=lambda each: each.type,
)
def test_what_leaves_a_choice_has_no_definition(ambiguous: Given) -> None:
    assert module_function(ambiguous) is None


def test_rotary_tables_are_cosines_of_positions_times_frequencies() -> None:
    known = Given(
        "LlamaRotaryEmbedding",
        {"rope_type": "default", "attention_scaling": 2.0},
        ("0", "position_ids"),
        {"inv_freq": (2,)},
        ((1, 3, 4), (1, 3, 4)),
    )
    compute = module_function(known)
    assert compute is not None
    x, ids = torch.zeros(1, 3, 8), torch.tensor([[0, 1, 5]])
    cos, sin = compute({"0": x, "position_ids": ids, "inv_freq": torch.tensor([1.0, 0.5])})
    wanted = torch.tensor([[p * f for f in (1.0, 0.5, 1.0, 0.5)] for p in (0, 1, 5)])
    torch.testing.assert_close(cos[0], 2 * wanted.cos())
    torch.testing.assert_close(sin[0], 2 * wanted.sin())


@pytest.mark.parametrize("dtype", DTYPES)
def test_rotary_tables_of_olmo_are_float32_whatever_the_model_is(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_attention_heads": 2, "num_hidden_layers": 1}
    config = transformers.Olmo2Config(vocab_size=20, intermediate_size=16, **sizes)
    report = opcheck(capture(transformers.Olmo2ForCausalLM(config).to(dtype).eval(), tmp_path))
    assert [item.reason for item in report.items if item.verdict is not Verdict.PASS] == []
    assert "Olmo2RotaryEmbedding" in {item.op_type for item in report.items}


def test_a_function_is_run_in_float64_whatever_types_it_names() -> None:
    x = torch.randn(3, 8).bfloat16()

    def function(tensors: Sequence[Tensor | None]) -> Tensor:
        (given,) = tensors
        assert given is not None
        return (functional.softmax(given, -1, torch.float32) + 1).to(torch.bfloat16) * 0.1

    golden = golden_function("own", function)
    (found,) = golden.compute([x], {}, EXACT).outputs
    assert found.dtype is torch.float64
    torch.testing.assert_close(found, (x.double().softmax(-1) + 1) * 0.1, rtol=1e-12, atol=0)
    assert golden.kernel({}).roundings == 1


def test_a_result_that_was_rounded_before_it_was_widened_may_be_off_by_that_rounding() -> None:
    x = torch.randn(4, 8).bfloat16()

    def function(tensors: Sequence[Tensor | None]) -> Tensor:
        (given,) = tensors
        assert given is not None
        return (given * given).float()

    golden = golden_function("own", function)
    golden.compute([x], {}, EXACT)
    assert golden.kernel({}).roundings == 1


@pytest.mark.parametrize("draw", [torch.rand_like, torch.empty_like])
def test_what_does_not_follow_from_inputs_cannot_be_checked(
    draw: Callable[[Tensor], Tensor],
) -> None:
    def function(tensors: Sequence[Tensor | None]) -> Tensor:
        (given,) = tensors
        assert given is not None
        return draw(given)

    with pytest.raises(UnverifiableError):
        golden_function("own", function).compute([torch.ones(3)], {}, EXACT)
