"""Values that were computed from coarser ones are judged by the coarser type."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from ait_llm import DumpConfig, register_hook
from ait_llm.compare import compare
from ait_llm.core import DType
from ait_llm.core.comparison import Report, Verdict
from ait_llm.dumps import open_dump
from ait_llm.program.flow import flow
from ait_llm.program.lineage import lineage
from ait_llm.program.passes import passes_of

SEED = 5


class Norm(nn.Module):
    """Computes in float32 whatever it is given, as most norms do, and returns that."""

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(SEED)
        self.embedding = nn.Embedding(40, 32)
        self.norm = Norm()
        self.first = nn.Linear(32, 64)
        self.second = nn.Linear(64, 32)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        wide = self.norm(x)
        y = self.second(torch.tanh(self.first(wide.to(x.dtype))))
        return torch.softmax(y.float(), -1)


def capture(folder: Path, dtype: torch.dtype, change: float = 1.0) -> Path:
    model = Net().to(dtype).eval()
    model.embedding.weight.data *= change
    config = DumpConfig(dump_path=folder, operators=True, weights=True)
    with torch.no_grad(), register_hook(model, config):
        model(torch.arange(24).view(2, 12))
    return folder / "ait_dump"


def counts(report: Report) -> Counter[Verdict]:
    return Counter(each.verdict for each in report.comparisons)


def test_a_16_bit_run_of_the_same_model_passes_against_float32(tmp_path: Path) -> None:
    golden = capture(tmp_path / "golden", torch.float32)
    for dtype in (torch.bfloat16, torch.float16):
        mine = capture(tmp_path / str(dtype), dtype)
        found = counts(compare(golden, mine))
        assert found[Verdict.FAIL] == found[Verdict.ERROR] == 0
        assert found[Verdict.PASS] > 20


def test_a_run_in_float32_alone_is_still_judged_by_float32(tmp_path: Path) -> None:
    golden = capture(tmp_path / "golden", torch.float32)
    mine = capture(tmp_path / "mine", torch.float32, change=1.001)
    assert counts(compare(golden, mine))[Verdict.FAIL] > 0


def test_what_float32_is_made_of_16_bits_has_their_lineage(tmp_path: Path) -> None:
    dump = open_dump(capture(tmp_path, torch.bfloat16))
    run = passes_of(dump, dump.processes[0])[0]
    found = flow(run)
    types = lineage(found)
    for value in found.values:
        dtype = value.uses[0].tensor.dtype
        assert types[value.number] == (DType.BFLOAT16 if dtype.is_floating else None, False)


class Masked(nn.Module):
    """Adds a mask that hides with the lowest number of its type, or with another one."""

    def __init__(self, hidden: int, lowest: float | None) -> None:
        super().__init__()
        torch.manual_seed(SEED)
        self.linear = nn.Linear(8, 8)
        self.hidden, self.lowest = hidden, lowest

    def forward(self, x: Tensor) -> Tensor:
        lowest = torch.finfo(x.dtype).min if self.lowest is None else self.lowest
        keep = torch.ones(8, 8, dtype=torch.bool).tril(self.hidden)
        number = torch.tensor(lowest, dtype=x.dtype)
        mask = torch.where(keep, torch.zeros((), dtype=x.dtype), number)
        return torch.softmax((self.linear(x) * 40 + mask).float(), -1)


def masked(folder: Path, dtype: torch.dtype, hidden: int = 0, lowest: float | None = None) -> Path:
    model = Masked(hidden, lowest).to(dtype).eval()
    with torch.no_grad(), register_hook(model, DumpConfig(dump_path=folder, operators=True)):
        model(torch.linspace(-1, 1, 64).view(8, 8).to(dtype))
    return folder / "ait_dump"


def test_masks_hide_with_the_lowest_number_of_their_own_type(tmp_path: Path) -> None:
    golden = masked(tmp_path / "golden", torch.float32)
    found = counts(compare(golden, masked(tmp_path / "mine", torch.float16)))
    assert found[Verdict.FAIL] == found[Verdict.ERROR] == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("lowest", [None, -torch.inf])
def test_masks_of_any_two_types_hide_alike_and_so_do_their_scores(
    tmp_path: Path, dtype: torch.dtype, lowest: float | None
) -> None:
    golden = masked(tmp_path / "golden", torch.float32, lowest=lowest)
    for name, other in (("lowest", None), ("infinite", -torch.inf)):
        found = counts(compare(golden, masked(tmp_path / name, dtype, lowest=other)))
        assert found[Verdict.FAIL] == found[Verdict.ERROR] == 0
        assert found[Verdict.PASS] > 8


def test_a_number_that_no_type_ends_with_hides_nothing(tmp_path: Path) -> None:
    golden = masked(tmp_path / "golden", torch.float32)
    found = counts(compare(golden, masked(tmp_path / "mine", torch.float32, lowest=-70000.0)))
    assert found[Verdict.FAIL] > 0


def test_a_mask_that_hides_other_places_fails_in_any_type(tmp_path: Path) -> None:
    golden = masked(tmp_path / "golden", torch.float32)
    found = counts(compare(golden, masked(tmp_path / "mine", torch.float16, hidden=1)))
    assert found[Verdict.FAIL] > 0


class Int8(nn.Module):
    """A projection whose weights are whole numbers with one scale for each row."""

    def __init__(self, linear: nn.Linear, scale_name: str = "weight_scale") -> None:
        super().__init__()
        scale = linear.weight.abs().amax(-1, keepdim=True) / 127
        self.register_buffer("weight", torch.round(linear.weight / scale).to(torch.int8))
        self.register_buffer(scale_name, scale)
        self.scale_name = scale_name
        self.bias = linear.bias

    def forward(self, x: Tensor) -> Tensor:
        scale = self.get_buffer(self.scale_name)
        return nn.functional.linear(x, self.weight.to(x.dtype) * scale, self.bias)


def test_what_is_computed_with_int8_weights_has_the_limits_of_quantisation(tmp_path: Path) -> None:
    golden = capture(tmp_path / "golden", torch.float32)
    model = Net().eval()
    model.first = Int8(model.first)  # type: ignore[assignment]
    config = DumpConfig(dump_path=tmp_path / "mine", operators=False, weights=True)
    with torch.no_grad(), register_hook(model, config):
        model(torch.arange(24).view(2, 12))
    found = compare(golden, tmp_path / "mine")
    limits = {
        each.mine.op: each.tolerance["relative_euclidean_distance"]
        for each in found.comparisons
        if each.mine is not None and each.mine.role == "out" and each.tolerance
    }
    assert found.counts[Verdict.FAIL] == 0
    assert limits["root.embedding"] < 1e-3 < limits["root.first"] == limits["root.second"]


def test_whole_numbers_without_a_known_scale_are_not_compared_with_the_real_ones(
    tmp_path: Path,
) -> None:
    sides = []
    for name in ("golden", "mine"):
        model = Net().eval()
        if name == "mine":
            model.first = Int8(model.first, "multiplier")  # type: ignore[assignment]
        config = DumpConfig(dump_path=tmp_path / name, operators=False, weights=True)
        with torch.no_grad(), register_hook(model, config):
            model(torch.arange(24).view(2, 12))
        sides.append(tmp_path / name)
    found = compare(*sides)
    assert found.counts[Verdict.FAIL] == 0
    assert found.exit_code() == 0
    [weight] = [
        each
        for each in found.comparisons
        if each.mine is not None and each.mine.dtype is DType.INT8
    ]
    assert (weight.verdict, weight.comparable) == (Verdict.SKIPPED, False)
    assert "a scale of a name that is not known" in weight.reason
