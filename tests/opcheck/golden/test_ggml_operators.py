"""Operators of ggml against independent formulas."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from ait_llm.core.comparison import Verdict
from ait_llm.judge.outputs import Produced, judge_outputs
from ait_llm.judge.standards import standards
from ait_llm.opcheck.golden.aten import TENSORS, aten_operator
from ait_llm.opcheck.golden.aten.calls import find_operator
from ait_llm.opcheck.golden.base import GoldenOp
from ait_llm.opcheck.golden.ggml_gelu import is_from_table
from ait_llm.opcheck.outcome import Checked

TABLE = Path(__file__).parents[2] / "data" / "gguf" / "gelu.npz"


def run(name: str, *args: object, **options: object) -> torch.Tensor:
    function = find_operator(f"ait_ggml.{name}.default")
    assert function is not None
    return function(*args, **options)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def angles(positions: torch.Tensor, dims: int, base: float) -> torch.Tensor:
    rates = base ** (-torch.arange(0, dims, 2, dtype=torch.float64) / dims)
    return positions[:, None, None] * rates


def test_rotary_positions_of_pairs_are_complex_products() -> None:
    x, positions = torch.randn(6, 3, 10, dtype=torch.float64), torch.arange(6) * 3
    found = run("rope", x, positions, None, dims=8, neox=False, base=1000.0, factor=2.0)
    pairs = torch.view_as_complex(x[..., :8].reshape(6, 3, 4, 2).contiguous())
    turned = pairs * torch.polar(torch.tensor(2.0, dtype=torch.float64), angles(positions, 8, 1000))
    assert torch.allclose(found[..., :8], torch.view_as_real(turned).flatten(-2), atol=1e-5)
    assert torch.equal(found[..., 8:], x[..., 8:])


def test_rotary_positions_of_halves_are_those_of_transformers() -> None:
    x, positions = torch.randn(6, 3, 8, dtype=torch.float64), torch.arange(6)
    found = run("rope", x, positions, None, dims=8, neox=True, base=1000.0, scale=0.5)
    theta = angles(positions * 0.5, 8, 1000).repeat(1, 1, 2)
    swapped = torch.cat([-x[..., 4:], x[..., :4]], -1)
    assert torch.allclose(found, x * theta.cos() + swapped * theta.sin(), atol=1e-5)


def test_factors_divide_the_angles() -> None:
    x, positions = torch.randn(4, 1, 4, dtype=torch.float64), torch.arange(4)
    once = run("rope", x, positions, torch.tensor([2.0, 2.0]), dims=4, neox=True, base=10.0)
    half = run("rope", x, positions, None, dims=4, neox=True, base=10.0, scale=0.5)
    assert torch.allclose(once, half)


def test_heads_of_the_first_serve_several_of_the_second() -> None:
    a, b = torch.randn(2, 7, 4), torch.randn(6, 5, 4)
    found = run("mul_mat", a, b)
    assert found.shape == (6, 5, 7)
    for head in range(6):
        assert torch.allclose(found[head], b[head] @ a[head // 3].T, atol=1e-6)


def test_what_is_multiplied_with_half_precision_is_rounded_to_it() -> None:
    weight, x = torch.randn(3, 4, dtype=torch.float64), torch.randn(5, 4, dtype=torch.float64)
    found = run("linear", x, weight, inner="f16")
    assert torch.equal(found, x.half().double() @ weight.T)
    assert not torch.equal(found, x @ weight.T)


def test_scores_are_scaled_before_the_mask() -> None:
    x = torch.randn(2, 3, 4, dtype=torch.float64)
    mask = torch.zeros(3, 4).masked_fill(torch.ones(3, 4).triu(1) > 0, -np.inf)
    weights = (x.numpy() * 0.5 + mask.numpy()).astype(np.float64)
    expected = np.exp(weights) / np.exp(weights).sum(-1, keepdims=True)
    assert np.allclose(run("soft_max", x, mask, scale=0.5).numpy(), expected)


@pytest.mark.parametrize("name", ["swiglu", "geglu"])
def test_gates_are_applied_to_the_first(name: str) -> None:
    gate, up = torch.randn(3, 4, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    inner = np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)
    activated = (
        gate / (1 + torch.exp(-gate)) if name == "swiglu" else gate * torch.sigmoid(2 * inner)
    )
    assert torch.allclose(run(name, gate, up), activated * up)


def test_a_cache_keeps_its_type_and_its_other_rows() -> None:
    cache, rows = torch.randn(6, 4).half(), torch.randn(2, 4)
    found = run("set_rows", cache, torch.tensor([4, 1]), rows)
    assert found.dtype == torch.float16
    assert torch.equal(found[[4, 1]], rows.half())
    assert torch.equal(found[[0, 2, 3, 5]], cache[[0, 2, 3, 5]])


def test_a_view_takes_elements_by_steps() -> None:
    x = torch.arange(24).reshape(4, 6)
    found = run("strided", x, [2, 3], [1, 6], 2)
    assert found.tolist() == [[2, 8, 14], [3, 9, 15]]


@pytest.mark.parametrize(("size", "start"), [([5, 6], 0), ([4, 6], 1), ([4, 6], -1)])
def test_a_view_stays_within_its_tensor(size: list[int], start: int) -> None:
    with pytest.raises(ValueError, match="a view of what is not there"):
        run("strided", torch.arange(24).reshape(4, 6), size, [6, 1], start)


def test_rows_of_a_table_of_halves_are_float32() -> None:
    table = torch.randn(5, 3).half()
    found = run("embedding", table, torch.tensor([4, 0], dtype=torch.int32))
    assert found.dtype == torch.float32
    assert torch.equal(found, table[[4, 0]].float())


def table_of_gelu() -> tuple[torch.Tensor, torch.Tensor]:
    """Recorded arguments and results."""
    with np.load(TABLE, allow_pickle=False) as file:
        x, y = (torch.from_numpy(file[name].astype(np.float32)) for name in "xy")
    return x, y


@pytest.mark.parametrize("gated", [False, True])
def test_gelu_may_be_looked_up_as_llama_cpp_does(gated: bool) -> None:
    x, y = table_of_gelu()
    up = torch.randn_like(x)
    inputs, found = ([x, up], y * up) if gated else ([x], y)
    assert is_from_table(inputs, [found], {})
    golden = aten_operator(f"ait_ggml.{'geglu' if gated else 'gelu'}.default")
    assert golden is not None
    assert golden.accepts is is_from_table
    judged = {
        "nudged": found * (1 + 2.0**-9),
        "one": torch.where(x == x[500], found + 1e-3, found),
        "erf": torch.nn.functional.gelu(x) * (up if gated else 1),
        "silu": torch.nn.functional.silu(x) * (up if gated else 1),
    }
    for name, wrong in judged.items():
        assert not is_from_table(inputs, [wrong], {}), name


@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (1.001, Verdict.FAIL)])
def test_a_gate_from_the_table_is_right(factor: float, verdict: Verdict) -> None:
    x, y = table_of_gelu()
    up = torch.randn_like(x)
    golden = aten_operator("ait_ggml.geglu.default")
    assert golden is not None

    def judged(by: GoldenOp) -> list[Verdict]:
        made = Produced({0: y * up * factor}, {})
        params = {TENSORS: ["input_0", "input_1"]}
        base = Checked("gate", by.name, Verdict.SKIPPED)
        found = judge_outputs(by, [x, up], params, made, standards.get("contract"), base)
        return [item.checked.verdict for item in found]

    assert judged(golden) == [verdict]
    assert judged(replace(golden, accepts=None)) == [Verdict.FAIL]


def test_beyond_its_edges_gelu_is_its_argument_or_nothing() -> None:
    x = torch.tensor([-1e5, -10.0, 10.0, 12.345678, 1e5, float("nan")])
    right = torch.tensor([0.0, 0.0, 10.0, 12.345678, 1e5, float("nan")])
    assert is_from_table([x], [right], {})
    assert not is_from_table([x], [right.half().float()], {})
    assert not is_from_table([x], [right.nan_to_num(0.0)], {})


def test_gelu_of_torch_is_not_looked_up() -> None:
    golden = aten_operator("aten.gelu.default")
    assert golden is not None
    assert golden.accepts is None


@pytest.mark.parametrize("rank", [2, 3])
def test_each_token_is_multiplied_with_the_weights_of_its_experts(rank: int) -> None:
    weights = torch.randn(4, 5, 3, dtype=torch.float64)
    experts = torch.tensor([[3, 0], [1, 3]], dtype=torch.int32)
    x = torch.randn(*((2, 3) if rank == 2 else (2, 2, 3)), dtype=torch.float64)
    found = run("mul_mat_id", weights, x, experts)
    for token in range(2):
        for place in range(2):
            row = x[token] if rank == 2 else x[token, place]
            wanted = weights.numpy()[int(experts[token, place])] @ row.numpy()
            assert np.allclose(found[token, place].numpy(), wanted)


def test_products_of_experts_in_half_precision_round_what_they_multiply() -> None:
    weights, x = torch.randn(2, 5, 3).half(), torch.randn(4, 3, dtype=torch.float64)
    experts = torch.tensor([[0], [1], [1], [0]])
    found = run("mul_mat_id", weights, x, experts, inner="f16")
    assert torch.equal(found[1, 0], (x[1:2].half().double() @ weights[1].double().T)[0])


@pytest.mark.parametrize("expert", [-1, 2])
def test_an_expert_that_is_not_there_is_refused(expert: int) -> None:
    with pytest.raises(IndexError, match="an expert that is not there"):
        run("mul_mat_id", torch.randn(2, 5, 3), torch.randn(1, 3), torch.tensor([[expert]]))


def test_rows_are_those_of_each_token_where_it_has_a_table() -> None:
    table, places = torch.randn(3, 4, 1), torch.tensor([[3, 0], [1, 2], [0, 1]])
    found = run("get_rows", table, places)
    assert found.shape == (3, 2, 1)
    for token in range(3):
        assert torch.equal(found[token], table[token][places[token]])
    assert torch.equal(run("get_rows", table[0], places[:1])[0], table[0][places[0]])


@pytest.mark.parametrize("descending", [False, True])
def test_equal_values_may_be_ordered_either_way_and_others_not(descending: bool) -> None:
    x = torch.tensor([[0.5, 2.0, 0.5, 1.0]])
    golden = aten_operator("ait_ggml.argsort.default")
    assert golden is not None
    accepts = golden.accepts
    assert accepts is not None
    right = [[1, 3, 0, 2], [1, 3, 2, 0]] if descending else [[0, 2, 3, 1], [2, 0, 3, 1]]
    params = {"input_descending": descending}
    assert run("argsort", x, descending=descending).dtype == torch.int32
    for order in right:
        assert accepts([x], [torch.tensor([order], dtype=torch.int32)], params)
    for order in ([3, 1, 0, 2], [0, 0, 3, 1], right[0][::-1]):
        assert not accepts([x], [torch.tensor([order], dtype=torch.int32)], params)
