"""Operators of a torch capture, each computed again in float64 from its own inputs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ait_llm import DumpConfig, register_hook
from ait_llm.core.comparison import Verdict
from ait_llm.errors import UsageError
from ait_llm.opcheck.golden import EXACT, UnverifiableError
from ait_llm.opcheck.golden.aten import TENSORS, aten_operator
from ait_llm.opcheck.outcome import OpcheckReport
from ait_llm.opcheck.pipeline import opcheck

SEED = 11


class Many(nn.Module):
    """Operators of many kinds: products, sums, in-place writes, orders, draws, fresh memory."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(SEED)
        self.embedding = nn.Embedding(20, 8)
        self.first = nn.Linear(8, 12)
        self.norm = nn.LayerNorm(12)
        self.second = nn.Linear(12, 8)

    def forward(self, ids: Tensor) -> Tensor:
        x = torch.relu(self.second(self.norm(self.first(self.embedding(ids)))))
        state = torch.zeros_like(x)
        state[:, 1] = x[:, 0]
        state.add_(0.3).masked_fill_(x > 1, float("-inf"))
        state = torch.where(state.isfinite(), state, 2 * x)
        values, places = torch.topk(state, 3)
        chances = torch.softmax(state / 0.7, -1).cumsum(-1)
        both = torch.stack([chances, state]).mean(0).pow(3)
        scores = torch.einsum("bsd,btd->bst", both, state)
        drawn = torch.rand_like(x) + torch.empty_like(x).fill_(1.0)
        heads = torch.stack(torch.split(both, [3, 5], -1)[1:]).unsqueeze(1)
        attended = nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
        torch._foreach_add_([state], [x])  # returns nothing
        return attended.sum() + scores.argmax() + places.max() + values.var() + drawn.sum()


def capture(model: nn.Module, folder: Path, *, weights: bool = True) -> Path:
    ids = torch.arange(10).view(2, 5)
    config = DumpConfig(dump_path=folder, operators=True, weights=weights)
    with torch.no_grad(), register_hook(model, config):
        model(ids)
    return folder / "ait_dump"


def failed(report: OpcheckReport) -> list[str]:
    return [item.op for item in report.items if item.verdict is Verdict.FAIL]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_each_operator_of_a_healthy_run_is_right(dtype: torch.dtype, tmp_path: Path) -> None:
    report = opcheck(capture(Many().to(dtype).eval(), tmp_path))
    assert [item.reason for item in report.items if item.verdict is not Verdict.PASS] == []
    assert report.exit_code() == 0
    assert report.standard == "contract"
    assert report.operators > 35
    assert set(report.unchecked) >= {
        "draw random numbers",
        "hand out memory that nobody has written",
        "return no tensor",
    }


@pytest.mark.parametrize(
    "operator", ["aten.addmm.default", "aten.native_layer_norm.default", "aten._softmax.default"]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_operator_that_is_one_percent_off_is_the_only_one_named(
    operator: str, dtype: torch.dtype, tmp_path: Path
) -> None:
    dump = capture(Many().to(dtype).eval(), tmp_path)
    change_output(dump, operator, lambda values: values * 1.01)
    names = failed(opcheck(dump))
    assert len(names) == 1
    assert operator in names[0]


def test_one_wrong_element_of_a_copy_is_found(tmp_path: Path) -> None:
    dump = capture(Many().eval(), tmp_path)

    def wrong(values: Tensor) -> Tensor:
        values = values.clone()
        values.view(-1)[3] += 1e-6
        return values

    change_output(dump, "aten.stack.default", wrong, otherwise="aten.cat.default")
    assert len(failed(opcheck(dump))) == 1


def test_parameters_that_do_not_lie_in_order_are_read_as_they_lay(tmp_path: Path) -> None:
    model = Many().eval()
    model.first.weight = nn.Parameter(torch.randn(8, 12).t())
    model.second.weight = nn.Parameter(torch.randn(200)[50:146].view(8, 12))
    report = opcheck(capture(model, tmp_path))
    assert failed(report) == []
    assert report.exit_code() == 0


def test_without_parameters_the_operators_that_read_them_are_skipped(tmp_path: Path) -> None:
    report = opcheck(capture(Many().eval(), tmp_path, weights=False))
    skipped = {item.reason for item in report.items if item.verdict is Verdict.SKIPPED}
    assert failed(report) == []
    # parameters that are not saved once are saved with each operator that reads them
    assert all("--weights" in reason for reason in skipped)


def test_a_table_of_the_acceleration_library_is_refused(tmp_path: Path) -> None:
    dump = capture(Many().eval(), tmp_path)
    table = tmp_path / "operators.csv"
    table.write_text("")
    with pytest.raises(UsageError, match="leave out -c"):
        opcheck(dump, table=table)


@pytest.mark.parametrize(
    "name",
    [
        "aten.save.default",
        "aten.from_file.default",
        "aten.set_.source_Storage",
        "aten._print.default",
        "prims.device_put.default",
        "c10d.allreduce_.default",
    ],
)
def test_what_a_dump_names_is_never_run_unless_it_only_computes(name: str) -> None:
    assert aten_operator(name) is None


def test_no_memory_is_reserved_for_sizes_that_a_dump_invents() -> None:
    zeros = aten_operator("aten.zeros.default")
    assert zeros is not None
    with pytest.raises(UnverifiableError, match="1152921504606846976 elements"):
        zeros.compute([], {TENSORS: [], "input_0": [1 << 30, 1 << 30]}, EXACT)


def test_running_again_is_refused(tmp_path: Path) -> None:
    class Backend:
        name = "torch_atb"

        def run(self, *_: object) -> object:
            raise AssertionError

    dump = capture(Many().eval(), tmp_path)
    with pytest.raises(UsageError, match="--rerun-with MODULE:FUNCTION"):
        opcheck(dump, backend=Backend())  # type: ignore[arg-type]


def change_output(
    dump: Path, operator: str, change: Callable[[Tensor], Tensor], *, otherwise: str = ""
) -> None:
    """Replace the first output of the first such operator; no other file changes."""
    folders = sorted(
        folder
        for folder in dump.glob("torch_tensors/*/0/*")
        if folder.name.endswith(operator) or (otherwise and folder.name.endswith(otherwise))
    )
    path = next(p for p in (folders[0] / "output.pth", folders[0] / "output_0.pth") if p.exists())
    values = torch.load(path, weights_only=True)
    path.unlink()  # files of equal values are links to one
    torch.save(change(values), path)


def evaluated(operator: str, **given: object) -> Tensor:
    """What the definition of an operator makes of tensors and plain arguments, in float64."""
    golden = aten_operator(operator)
    assert golden is not None
    tensors = {f"input_{n}": v for n, v in given.items() if isinstance(v, Tensor)}
    plain = {f"input_{n}": v for n, v in given.items() if not isinstance(v, Tensor)}
    params = {**plain, TENSORS: list(tensors)}
    return golden.compute(list(tensors.values()), params, EXACT).outputs[0]


def test_grouped_products_are_those_of_each_group() -> None:
    draw = torch.Generator().manual_seed(SEED)
    rows = torch.randn(7, 16, generator=draw)
    weights = torch.randn(3, 16, 8, generator=draw)
    ends = torch.tensor([2, 2, 7], dtype=torch.int32)  # the second group is empty
    found = evaluated("aten._grouped_mm.default", self=rows, mat2=weights, offs=ends)
    native = torch.ops.aten._grouped_mm.default(rows, weights, ends)
    torch.testing.assert_close(found.float(), native)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("has_biases", [False, True])
def test_a_recurrent_layer_is_that_of_torch(has_biases: bool, reverse: bool) -> None:
    torch.manual_seed(SEED)
    net = torch.nn.LSTM(8, 5, bias=has_biases).double()
    steps = torch.randn(7, 2, 8, dtype=torch.float64)
    weights = [*net.parameters()] if has_biases else [*net.parameters(), *torch.zeros(2, 20)]
    with torch.no_grad():
        native, _ = net(steps.flip(0) if reverse else steps)
    found = evaluated(
        "aten.mkldnn_rnn_layer.default",
        input=steps,
        **{f"weight{n}": one.detach() for n, one in enumerate(weights)},
        hx_=torch.zeros(2, 5, dtype=torch.float64),
        cx_=torch.zeros(2, 5, dtype=torch.float64),
        reverse=reverse,
        batch_sizes=[],
        mode=2,
        hidden_size=5,
        num_layers=1,
        has_biases=has_biases,
        bidirectional=reverse,
        batch_first=False,
        train=False,
    )
    torch.testing.assert_close(found, native.flip(0) if reverse else native)


@pytest.mark.parametrize("kind", ["none", "causal", "flags", "numbers"])
def test_fused_attention_is_that_of_torch(kind: str) -> None:
    causal = kind == "causal"
    draw = torch.Generator().manual_seed(SEED)
    query, key, value = (torch.randn(2, 3, 5, 8, generator=draw) for _ in range(3))
    keep = torch.ones(5, 5, dtype=torch.bool).tril()
    masks = {
        "none": None,
        "causal": None,
        "flags": keep,
        "numbers": torch.randn(5, 5, generator=draw),
    }
    mask = masks[kind]
    given = {} if mask is None else {"attn_mask": mask}
    found = evaluated(
        "aten._scaled_dot_product_flash_attention_for_cpu.default",
        query=query,
        key=key,
        value=value,
        is_causal=causal,
        scale=0.3,
        **given,
    )
    right = nn.functional.scaled_dot_product_attention(
        query.double(),
        key.double(),
        value.double(),
        mask if mask is None or mask.dtype == torch.bool else mask.double(),
        is_causal=causal,
        scale=0.3,
    )
    torch.testing.assert_close(found, right)


def test_scaled_products_of_fp8_apply_the_scales_of_rows_and_columns() -> None:
    draw = torch.Generator().manual_seed(SEED)
    left = torch.randn(4, 16, generator=draw).to(torch.float8_e4m3fn)
    right = torch.randn(8, 16, generator=draw).to(torch.float8_e4m3fn)
    rows, columns = torch.rand(4, 1, generator=draw), torch.rand(1, 8, generator=draw)
    found = evaluated(
        "aten._scaled_mm.default",
        self=left,
        mat2=right.t(),
        scale_a=rows,
        scale_b=columns,
        out_dtype="torch.bfloat16",
    )
    wanted = torch.zeros(4, 8, dtype=torch.float64)
    for i in range(4):
        for j in range(8):
            terms = [float(a) * float(b) for a, b in zip(left[i], right[j], strict=True)]
            wanted[i, j] = sum(terms) * float(rows[i, 0]) * float(columns[0, j])
    torch.testing.assert_close(found, wanted)


def test_equal_values_may_be_ordered_either_way() -> None:
    golden = aten_operator("aten.topk.default")
    assert golden is not None
    assert golden.accepts is not None
    given = torch.tensor([[1.0, 3.0, 3.0, 2.0]])
    values, others = torch.tensor([[3.0, 3.0]]), torch.tensor([[2, 1]])
    params = {"input_1": 2, TENSORS: ["input_0"]}
    assert golden.accepts([given], [values, others], params)
    assert not golden.accepts([given], [values, torch.tensor([[2, 3]])], params)
    assert not golden.accepts([given], [values, torch.tensor([[2, 9]])], params)


class OfNan(nn.Module):
    """Exact operators on a part of a row, of which not all units make the same NaN."""

    def forward(self, x: Tensor) -> Tensor:
        made = (x * float("nan"))[..., 20:44]
        return torch.stack([-made, made.abs(), made.clamp(max=2.0), torch.maximum(made, -made)])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_any_nan_of_an_exact_operator_that_computes_is_right(
    tmp_path: Path, dtype: torch.dtype
) -> None:
    model = OfNan()
    with torch.no_grad(), register_hook(model, DumpConfig(dump_path=tmp_path, operators=True)):
        model(torch.randn(4, 64).to(dtype))
    assert failed(opcheck(tmp_path / "ait_dump", jobs=1)) == []
