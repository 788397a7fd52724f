"""Operators of other libraries in captures of operators, vLLM's above all, judged alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from matching_truth.recordings import DATA, unpack
from torch import Tensor, nn
from torch.nn import functional

from ait_llm import DumpConfig, register_hook
from ait_llm.core.comparison import Verdict
from ait_llm.opcheck import check
from ait_llm.opcheck.golden import Result, golden_op, golden_ops
from ait_llm.opcheck.golden.custom import signature
from ait_llm.opcheck.outcome import OpcheckReport
from ait_llm.opcheck.pipeline import opcheck

DTYPES = [torch.float32, torch.bfloat16, torch.float16]
WIDTH, TOKENS, HEADS, SIZE = 64, 6, 4, 16
wrong: dict[str, float] = {}
cuts: list[str] = []  # operators that cut what they store
"""By how much the kernel of an operator is off, by its name."""


def off(name: str, value: Tensor) -> Tensor:
    return value * wrong.get(name, 1.0)


def norm(x: Tensor, weight: Tensor, epsilon: float) -> Tensor:
    """In float64: an oracle of its own."""
    wide = x.double()
    return wide / (wide.square().mean(-1, keepdim=True) + epsilon).sqrt() * weight.double()


def silu_and_mul(result: Tensor, input: Tensor) -> None:
    gate, up = input.double().chunk(2, -1)
    result.copy_(off("silu_and_mul", gate * gate.sigmoid() * up))


def gelu_new(out: Tensor, input: Tensor) -> None:
    x = input.double()
    out.copy_(off("gelu_new", functional.gelu(x, approximate="tanh")))


def rms_norm(result: Tensor, input: Tensor, weight: Tensor, epsilon: float) -> None:
    result.copy_(off("rms_norm", norm(input, weight, epsilon)))


def fused_add_rms_norm(input: Tensor, residual: Tensor, weight: Tensor, epsilon: float) -> None:
    residual.add_(input)
    input.copy_(off("fused_add_rms_norm", norm(residual, weight, epsilon)))


def rotary_embedding(
    positions: Tensor,
    query: Tensor,
    key: Tensor | None,
    head_size: int,
    cos_sin_cache: Tensor,
    is_neox: bool,
) -> None:
    """Each pair of numbers is a complex one that is multiplied by one of size one."""
    cos, sin = cos_sin_cache[positions].double().chunk(2, -1)
    turn = torch.complex(cos, sin)[:, None]
    for x in (query, key):
        if x is None:
            continue
        heads = x.double().reshape(len(positions), -1, head_size)
        parts = heads.chunk(2, -1) if is_neox else (heads[..., ::2], heads[..., 1::2])
        made = torch.complex(*parts) * turn
        whole = (made.real, made.imag)
        joined = torch.cat(whole, -1) if is_neox else torch.stack(whole, -1).flatten(-2)
        made = off("rotary_embedding", joined).reshape(x.shape)
        if "rotary_embedding" in cuts:
            made = (made.float().view(torch.int32) & ~0xFFFF).view(torch.float32)
        x.copy_(made)


def add_scaled(x: Tensor, y: Tensor, by: float = 2.0) -> Tensor:
    return off("add_scaled", x + by * y)


SCHEMAS: dict[Callable[..., object], str] = {
    silu_and_mul: "_C::silu_and_mul(Tensor(a!) result, Tensor input) -> ()",
    gelu_new: "_C::gelu_new(Tensor(a!) out, Tensor input) -> ()",
    rms_norm: "_C::rms_norm(Tensor(a!) result, Tensor input, Tensor weight, float epsilon) -> ()",
    fused_add_rms_norm: "_C::fused_add_rms_norm(Tensor(a!) input, Tensor(b!) residual, "
    "Tensor weight, float epsilon) -> ()",
    rotary_embedding: "_C::rotary_embedding(Tensor positions, Tensor(a!) query, "
    "Tensor(b!)? key, int head_size, Tensor cos_sin_cache, bool is_neox) -> ()",
    add_scaled: "company::add_scaled(Tensor x, Tensor y, float by=2.0) -> Tensor",
}


@pytest.fixture(scope="module", autouse=True)
def libraries() -> Iterator[None]:
    made = {name: torch.library.Library(name, "FRAGMENT") for name in ("_C", "company")}
    for function, schema in SCHEMAS.items():
        space, _, rest = schema.partition("::")
        made[space].define(rest)
        made[space].impl(rest.partition("(")[0], function, "CompositeExplicitAutograd")
    yield
    for library in made.values():
        library._destroy()


@pytest.fixture(autouse=True)
def right() -> Iterator[None]:
    wrong.clear()
    cuts.clear()
    yield
    wrong.clear()
    cuts.clear()


class Engine(nn.Module):
    """A layer as an engine writes it: operators that write to memory they are given."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.weight = nn.Parameter(torch.randn(WIDTH))
        angles = torch.outer(torch.arange(32.0), 100 ** -(torch.arange(0, SIZE, 2) / SIZE))
        self.register_buffer("table", torch.cat((angles.cos(), angles.sin()), -1))

    def forward(self, x: Tensor, key: Tensor, positions: Tensor) -> Tensor:
        ops = torch.ops._C
        normed = torch.full_like(x, float("nan"))  # memory that nobody has written holds anything
        ops.rms_norm(normed, x, self.weight, 1e-5)
        query = normed * 1.5
        ops.rotary_embedding(positions, query, key, SIZE, self.table, True)
        residual = query.view(TOKENS, HEADS, SIZE).reshape(TOKENS, WIDTH) + x
        given = key + 1.0
        ops.fused_add_rms_norm(given, residual, self.weight, 1e-5)
        gated = torch.full_like(given[:, : WIDTH // 2], float("nan"))
        ops.silu_and_mul(gated, given)
        activated = torch.full_like(gated, float("nan"))
        ops.gelu_new(activated, gated)
        return activated + residual[:, : WIDTH // 2]


def judged(dtype: torch.dtype, folder: Path) -> OpcheckReport:
    model = Engine().to(dtype)
    config = DumpConfig(dump_path=folder, weights=True, operators=True, modules=False)
    torch.manual_seed(4)
    x, key = torch.randn(TOKENS, WIDTH).to(dtype), torch.randn(TOKENS, WIDTH).to(dtype)
    with torch.no_grad(), register_hook(model, config):
        model(x, key, torch.arange(3, 3 + TOKENS))
    return opcheck(folder / "ait_dump")


def operators(report: OpcheckReport, verdict: Verdict) -> Counter[str]:
    found = (item.op_type for item in report.items if item.verdict is verdict)
    return Counter(name.split(".")[1] for name in found)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_operators_of_vllm_write_is_right_by_what_they_were_given(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    report = judged(dtype, tmp_path)
    assert [item.reason for item in report.items if item.verdict is not Verdict.PASS] == []
    own = Counter(rms_norm=1, rotary_embedding=2, fused_add_rms_norm=2, silu_and_mul=1, gelu_new=1)
    assert operators(report, Verdict.PASS) >= own


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "name", ["rms_norm", "rotary_embedding", "fused_add_rms_norm", "silu_and_mul", "gelu_new"]
)
def test_the_operator_of_vllm_that_is_wrong_is_the_only_one_named(
    name: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    wrong[name] = 1.03
    assert set(operators(judged(dtype, tmp_path), Verdict.FAIL)) == {name}


@pytest.mark.parametrize(("factor", "named"), [(1.0, set()), (0.99, {"rotary_embedding"})])
def test_rotary_positions_that_are_cut_to_bfloat16_are_right(
    factor: float, named: set[str], tmp_path: Path
) -> None:
    cuts.append("rotary_embedding")
    wrong["rotary_embedding"] = factor
    assert set(operators(judged(torch.bfloat16, tmp_path), Verdict.FAIL)) == named


def test_operators_of_a_recorded_vllm_are_right(tmp_path: Path) -> None:
    place = unpack(DATA / "llama-operators.tar.xz", tmp_path)
    report = opcheck(place / "vllm" / "ait_dump")
    assert operators(report, Verdict.FAIL) == Counter()
    assert operators(report, Verdict.PASS)["rotary_embedding"] == 12
    assert report.unchecked["work on a cache that no argument names"] == 12
    assert report.exit_code() == 0


@pytest.fixture
def registered() -> Iterator[None]:
    schema = "(Tensor x, Tensor y, float by=2.0) -> Tensor"

    @golden_op("company::add_scaled", schema=schema, infer_shape=lambda descs, params: (descs[0],))
    def golden(inputs, params, arithmetic):  # type: ignore[no-untyped-def]
        x, y = (arithmetic.widen(each) for each in inputs)
        return Result((arithmetic.round(x + params["by"] * y, inputs[0].dtype),))

    yield
    golden_ops._entries.pop("company::add_scaled", None)


class Own(nn.Module):
    """Calls an operator of a library of one's own, with and without its default."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.ops.company.add_scaled(torch.ops.company.add_scaled(x, x), x, by=0.5)


def own(folder: Path) -> OpcheckReport:
    config = DumpConfig(dump_path=folder, operators=True, modules=False)
    model = Own()
    with torch.no_grad(), register_hook(model, config):
        model(torch.randn(4, 8))
    return opcheck(folder / "ait_dump")


@pytest.mark.usefixtures("registered")
@pytest.mark.parametrize(("factor", "verdict"), [(1.0, Verdict.PASS), (1.001, Verdict.FAIL)])
def test_operators_of_ones_own_are_judged_by_a_golden_one_with_their_schema(
    factor: float, verdict: Verdict, tmp_path: Path
) -> None:
    wrong["add_scaled"] = factor
    assert operators(own(tmp_path), verdict) == Counter(add_scaled=2)


def test_operators_of_ones_own_without_a_golden_one_are_missing(tmp_path: Path) -> None:
    assert own(tmp_path).exit_code() == 3


def test_the_schema_says_what_is_a_tensor_what_is_written_and_what_may_be_left_out() -> None:
    known = signature("(Tensor! out, Tensor? x, float by=2.0, bool flag=False) -> ()")
    assert [one.name for one in known.tensors] == ["out", "x"]
    assert [one.is_written for one in known.arguments] == [True, False, False, False]
    assert known.plain({"by": 3.0}) == {"by": 3.0, "flag": False}
    assert known.named("2") == "by"
    with pytest.raises(ValueError, match="no schema"):
        signature("Tensor x")


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_kernel_for_pages_is_attention_over_the_tokens_in_them(dtype: torch.dtype) -> None:
    torch.manual_seed(9)
    heads, kv_heads, size, page, x = 4, 2, 16, 8, 4
    lengths = [13, 5]
    tables = torch.tensor([[5, 2], [0, 0]], dtype=torch.int32)
    keys = torch.randn(7, page, kv_heads, size).to(dtype)
    values = torch.randn(7, page, kv_heads, size).to(dtype)
    query = torch.randn(2, heads, size).to(dtype)
    wanted = []
    for request, length in enumerate(lengths):
        at = [(int(tables[request, token // page]), token % page) for token in range(length)]
        for head in range(heads):
            key = torch.stack([keys[one][head // 2] for one in at]).double()
            value = torch.stack([values[one][head // 2] for one in at]).double()
            shares = ((key @ query[request, head].double()) * 0.25).softmax(0)
            wanted.append(shares @ value)
    made = torch.stack(wanted).view(2, heads, size).to(dtype)
    key_cache = keys.permute(0, 2, 3, 1).reshape(7, kv_heads, size // x, x, page).transpose(3, 4)
    inputs = [
        torch.full_like(query, float("nan")),
        query,
        key_cache.contiguous(),
        values.permute(0, 2, 3, 1).contiguous(),
        tables,
        torch.tensor(lengths, dtype=torch.int32),
        None,
        torch.ones(()),
        torch.ones(()),
    ]
    params = {
        "num_kv_heads": kv_heads,
        "scale": 0.25,
        "block_size": page,
        "max_seq_len": 13,
        "kv_cache_dtype": "auto",
    }

    def kernel(out: Tensor, *rest: object, factor: float = 1.0, **params: object) -> None:
        out.copy_(made * factor)

    assert check("_C::paged_attention_v1", inputs, params, outputs=kernel)

    def bad(out: Tensor, *rest: object, **params: object) -> None:
        kernel(out, factor=1.05)

    assert not check("_C::paged_attention_v1", inputs, params, outputs=bad)
