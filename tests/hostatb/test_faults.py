"""Faults: where they are wanted, and what each does to a kernel."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import ait_llm.hostatb as torch_atb
from ait_llm.core import OpId
from ait_llm.errors import UnknownNameError, UsageError
from ait_llm.hostatb.faults import faults
from ait_llm.hostatb.injection import active_faults, parse_requests
from ait_llm.hostatb.site import Clock, Site

Elewise = torch_atb.ElewiseParam.ElewiseType
ROOT = Path(__file__).parents[2]
native = pytest.mark.usefixtures("native_library")


@pytest.fixture(autouse=True)
def no_faults_afterwards() -> Iterator[None]:
    yield
    torch_atb.inject("")


def randn(*shape: int, dtype: torch.dtype = torch.float16, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def run(param: object, *inputs: Tensor) -> Tensor:
    output: Tensor = torch_atb.Operation(param).forward(list(inputs))[0]  # type: ignore[arg-type]
    return output


def test_request_names_operation_layer_step_and_id() -> None:
    first, second = parse_requests(
        "wrong_epsilon@RmsNorm:layer=1, step=2,op=2_1_3; scale_1pct@LinearOperation ;"
    )
    assert (first.name, first.operation) == ("wrong_epsilon", "RmsNormOperation")
    assert (first.layer, first.step, first.op) == (1, 2, OpId((2, 1, 3)))
    assert (second.operation, second.layer, second.step, second.op) == (
        "LinearOperation",
        None,
        None,
        None,
    )


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("wrong_epsilom", UnknownNameError, "unknown fault .*did you mean 'wrong_epsilon'"),
        ("zzz", UnknownNameError, "known: dropped_tail, half_accumulation, inf_at_step"),
        ("scale_1pct:row=1", UsageError, "unknown option 'row'; known: layer, step, op"),
        ("scale_1pct:step=two", UsageError, "step is 'two'; it must be a number from 0"),
        ("scale_1pct:op=a", UsageError, "is not numbers joined by '_'"),
        ("scale 1pct", UsageError, "is not of the form"),
    ],
)
def test_wrong_request_is_explained(text: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        parse_requests(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("scale_1pct", True),
        ("scale_1pct@linear", True),
        ("scale_1pct@Elewise", False),
        ("scale_1pct:layer=1", True),
        ("scale_1pct:layer=0", False),
        ("scale_1pct:step=3", True),
        ("scale_1pct:step=2", False),
        ("scale_1pct:op=2", True),
        ("scale_1pct:op=2_1", True),
        ("scale_1pct:op=2_1_0", True),
        ("scale_1pct:op=2_0", False),
        ("scale_1pct:op=1", False),
    ],
)
def test_request_matches_its_places_only(text: str, expected: bool) -> None:
    site = Site("LinearOperation", OpId((2, 1, 0)), 1, Clock(3))
    assert parse_requests(text)[0].matches(site) is expected


def test_fault_of_one_element_is_applied_once_per_step() -> None:
    (request,) = parse_requests("wrong_element")
    site = Site("LinearOperation", OpId((0,)), None, Clock(0))
    assert request.matches(site)
    request.last_step = 0
    assert not request.matches(site)
    site.clock.step = 1
    assert request.matches(site)


def test_every_fault_says_what_it_does() -> None:
    assert all(faults.get(name).summary.endswith(".") for name in faults)
    assert {"wrong_epsilon", "wrong_softmax_scale", "missing_mask", "swapped_heads"} <= set(faults)
    assert {"half_accumulation", "dropped_tail", "inf_at_step"} <= set(faults)


@pytest.mark.native
@native
class TestEffects:
    """Each fault changes a kernel as its description says, and nothing else."""

    def test_wrong_epsilon(self) -> None:
        x, gamma = randn(4, 32) / 100, randn(32, seed=1)
        norm = torch_atb.RmsNormParam(layer_type=1)
        torch_atb.inject("wrong_epsilon")
        wide = x.float()
        expected = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-2) * gamma
        torch.testing.assert_close(run(norm, x, gamma).float(), expected, rtol=2e-3, atol=1e-3)

    def test_wrong_epsilon_of_layer_norm(self) -> None:
        x, gamma, beta = randn(4, 32) / 100, randn(32, seed=1), randn(32, seed=2)
        param = torch_atb.LayerNormParam(layer_type=1)
        param.norm_param.begin_norm_axis = param.norm_param.begin_params_axis = 1
        torch_atb.inject("wrong_epsilon")
        expected = functional.layer_norm(x.float(), (32,), gamma.float(), beta.float(), 1e-2)
        torch.testing.assert_close(
            run(param, x, gamma, beta).float(), expected, rtol=2e-3, atol=2e-3
        )

    def attention(self, param: torch_atb.SelfAttentionParam, masked: bool) -> Tensor:
        mask = torch.full((8, 8), -10000.0).triu(1).half()
        query, key, value = (randn(8, 4, 16, seed=seed) for seed in range(3))
        lengths = torch.tensor([8], dtype=torch.int32)
        return run(param, query, key, value, *([mask] if masked else []), lengths)

    def torch_attention(self, scale: float, masked: bool) -> Tensor:
        query, key, value = (randn(8, 4, 16, seed=seed).float() for seed in range(3))
        heads = (tensor.transpose(0, 1) for tensor in (query, key, value))
        out = functional.scaled_dot_product_attention(*heads, is_causal=masked, scale=scale)
        return out.transpose(0, 1)

    def causal(self) -> torch_atb.SelfAttentionParam:
        kinds = torch_atb.SelfAttentionParam
        return torch_atb.SelfAttentionParam(
            head_num=4,
            kv_head_num=4,
            qk_scale=0.25,
            calc_type=kinds.CalcType.PA_ENCODER,
            mask_type=kinds.MaskType.MASK_TYPE_NORM,
        )

    @pytest.mark.parametrize(
        ("fault", "scale", "masked"),
        [
            ("", 0.25, True),
            ("wrong_softmax_scale", 0.0625, True),
            ("missing_mask", 0.25, False),
            ("wrong_softmax_scale;missing_mask", 0.0625, False),
        ],
    )
    def test_attention_faults(self, fault: str, scale: float, masked: bool) -> None:
        torch_atb.inject(fault)
        output = self.attention(self.causal(), masked=True)
        torch.testing.assert_close(
            output.float(), self.torch_attention(scale, masked), rtol=2e-3, atol=2e-3
        )
        assert active_faults().unused() == []

    def test_swapped_heads(self) -> None:
        right = self.attention(self.causal(), masked=True)
        torch_atb.inject("swapped_heads")
        assert torch.equal(self.attention(self.causal(), masked=True), right[:, [1, 0, 2, 3]])

    def test_stale_padding(self) -> None:
        query, cache = randn(2, 2, 16), randn(4, 4, 2, 16, seed=1)
        table = torch.tensor([[0, 1], [2, 3]], dtype=torch.int32)
        param = torch_atb.PagedAttentionParam(head_num=2, kv_head_num=2, qk_scale=0.25)

        def attend(*lengths: int) -> Tensor:
            context = torch.tensor(lengths, dtype=torch.int32)
            return run(param, query, cache, cache, table, context)

        longer = attend(4, 8)
        torch_atb.inject("stale_padding")
        assert torch.equal(attend(3, 8), longer)  # the second has no room beyond its end

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_accumulation_equals_a_loop(self, dtype: torch.dtype) -> None:
        x, weight = randn(3, 40, dtype=dtype), randn(5, 40, dtype=dtype, seed=1)
        torch_atb.inject("half_accumulation")
        output = run(torch_atb.LinearParam(has_bias=False), x, weight)
        expected = torch.zeros(3, 5, dtype=dtype)
        for start in (0, 16, 32):
            part = x[:, start : start + 16].double() @ weight[:, start : start + 16].double().T
            expected = (expected.double() + part).to(dtype)
        torch.testing.assert_close(output, expected, rtol=0, atol=0)

    def test_half_accumulation_is_visible_in_long_sums(self) -> None:
        x, weight = torch.full((1, 4096), 1.0).half(), torch.full((1, 4096), 1.0625).half()
        exact = run(torch_atb.LinearParam(has_bias=False), x, weight)
        torch_atb.inject("half_accumulation")
        half = run(torch_atb.LinearParam(has_bias=False), x, weight)
        assert exact.item() == 4352
        assert 0 < abs(half.item() - 4352) / 4352 < 0.1

    @pytest.mark.parametrize("transposed", [False, True])
    def test_dropped_tail_of_a_product(self, transposed: bool) -> None:
        x, weight = randn(3, 40), randn(40, 5, seed=1)
        param = torch_atb.LinearParam(
            transpose_a=transposed, transpose_b=transposed, has_bias=False
        )
        torch_atb.inject("dropped_tail")
        inputs = (x.T.contiguous(), weight.T.contiguous()) if transposed else (x, weight)
        expected = x[:, :24].float() @ weight[:24].float()
        torch.testing.assert_close(run(param, *inputs).float(), expected, rtol=2e-3, atol=2e-3)

    def test_dropped_tail_of_another_operation(self) -> None:
        x = torch.ones(2, 40).half()
        torch_atb.inject("dropped_tail")
        output = run(torch_atb.ElewiseParam(elewise_type=Elewise.ELEWISE_ADD), x, x)
        assert output.tolist() == [[2.0] * 24 + [0.0] * 16] * 2

    def test_scale_of_one_percent(self) -> None:
        x = randn(4, 8, dtype=torch.float32)
        torch_atb.inject("scale_1pct@Elewise")
        output = run(torch_atb.ElewiseParam(elewise_type=Elewise.ELEWISE_ADD), x, x)
        torch.testing.assert_close(output, x * 2.02)

    def test_wrong_element(self) -> None:
        x = torch.ones(2, 4).half()
        torch_atb.inject("wrong_element")
        output = run(torch_atb.ElewiseParam(elewise_type=Elewise.ELEWISE_ADD), x, x)
        assert output.tolist() == [[2, 2, 2, 2], [-2, 2, 2, 2]]

    def test_inf_at_one_step(self) -> None:
        x = torch.ones(2, 4).half()
        add = torch_atb.Operation(torch_atb.ElewiseParam(elewise_type=Elewise.ELEWISE_ADD))
        torch_atb.inject("inf_at_step:step=1")
        infinities = [torch.isinf(add.forward([x, x])[0]).sum().item() for _ in range(3)]
        assert infinities == [0, 1, 0]

    def test_inf_at_step_changes_one_kernel_of_a_graph(self) -> None:
        builder = torch_atb.GraphBuilder("G").set_input_output(["x"], ["first", "second"])
        for name in ("first", "second"):
            param = torch_atb.ElewiseParam(elewise_type=Elewise.ELEWISE_ADD)
            builder.add_operation(torch_atb.Operation(param), ["x", "x"], [name])
        graph = builder.build()
        torch_atb.inject("inf_at_step:step=0")
        first, second = graph.forward([torch.ones(2, 4).half()])
        assert (torch.isinf(first).sum(), torch.isinf(second).sum()) == (1, 0)

    def test_integer_results_are_left_alone(self) -> None:
        x = torch.ones(2, 4, dtype=torch.int32)
        torch_atb.inject("scale_1pct")
        output = run(torch_atb.ElewiseParam(elewise_type=Elewise.ELEWISE_ADD), x, x)
        assert torch.equal(output, x * 2)
        assert [request.name for request in active_faults().unused()] == ["scale_1pct"]

    def test_fault_in_one_layer_leaves_the_other_alone(self) -> None:
        model = torch_atb.GraphBuilder("Model").set_input_output(["x"], ["first", "second"])
        for name in ("first", "second"):
            param = torch_atb.ElewiseParam(elewise_type=Elewise.ELEWISE_ADD)
            layer = torch_atb.GraphBuilder("Demo_layer").set_input_output(["x"], ["out"])
            layer.add_operation(torch_atb.Operation(param), ["x", "x"], ["out"])
            model.add_operation(layer.build(), ["x"], [name])
        graph = model.build()
        x = randn(4, 8, dtype=torch.float32)
        torch_atb.inject("scale_1pct:layer=1")
        first, second = graph.forward([x])
        assert torch.equal(first, x * 2)
        torch.testing.assert_close(second, x * 2.02)


def program(fault: str) -> subprocess.CompletedProcess[str]:
    text = (
        "import torch, ait_llm.hostatb as torch_atb\n"
        "add = torch_atb.Operation(torch_atb.ElewiseParam(elewise_type=8))\n"
        "x = torch.ones(1, 4)\n"
        "print(add.forward([x, x])[0].tolist())\n"
    )
    return subprocess.run(
        [sys.executable, "-c", text],
        env={**os.environ, "PYTHONPATH": str(ROOT), "HOSTATB_FAULT": fault},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.native
@native
def test_fault_of_the_environment_is_applied() -> None:
    done = program("wrong_element@Elewise")
    assert (done.stdout, done.stderr) == ("[[2.0, 2.0, -2.0, 2.0]]\n", "")


@pytest.mark.native
@native
def test_fault_that_matched_nothing_is_told_at_the_end() -> None:
    done = program("wrong_epsilon:layer=7;scale_1pct")
    assert done.returncode == 0
    assert done.stderr == "hostatb: fault 'wrong_epsilon:layer=7' matched no kernel of this run\n"


@pytest.mark.native
@native
def test_unknown_fault_of_the_environment_stops_the_program() -> None:
    done = program("wrong_eps")
    assert done.returncode != 0
    assert "unknown fault 'wrong_eps'; did you mean 'wrong_epsilon'?" in done.stderr
