"""Planted cases in dumps of each kind: where something odd is said to have begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from api_dumps import call, tensor, write_dump
from odd_dumps import half, write_operation
from torch import Tensor, nn

from ait_llm import DumpConfig, register_hook
from ait_llm.errcheck.check import check_dump
from ait_llm.errcheck.result import ErrcheckResult

NAN, INF = np.nan, np.inf
LINEAR, ADD, NORM = "LinearOperation", "ElewiseOperation", "RmsNormOperation"


def begun(result: ErrcheckResult) -> list[tuple[str, str, int]]:
    """Origin, operation and rank of each finding."""
    return [(each.origin, each.place.name, each.place.rank) for each in result.findings]


def indices(*numbers: int) -> np.ndarray[Any, Any]:
    return np.array(numbers, np.int32)


# ATB


def test_a_clean_run_has_no_findings_and_says_how_much_was_read(tmp_path: Path) -> None:
    write_operation(tmp_path, f"0_{LINEAR}", [half(3, 4), half(5, 4)], [half(3, 5)])
    write_operation(tmp_path, f"1_{NORM}", [half(3, 5)], [half(3, 5)], step=1)
    result = check_dump(tmp_path)
    assert not result.found
    assert result.findings == result.problems == ()
    checked = result.checked
    assert (checked.operations, checked.tensors, checked.elements) == (2, 5, 12 + 20 + 15 * 3)


@pytest.mark.parametrize("value", [NAN, INF, -INF, 65504.0])
def test_it_is_born_where_the_inputs_are_clean(tmp_path: Path, value: float) -> None:
    odd = half(3, 4, at_1_2=value)
    write_operation(tmp_path, f"0_{NORM}", [half(3, 4)], [half(3, 4)])
    write_operation(tmp_path, f"1_{LINEAR}", [half(3, 4)], [odd])
    write_operation(tmp_path, f"2_{ADD}", [odd, half(3, 4)], [odd])
    write_operation(tmp_path, f"3_{NORM}", [odd], [half(3, 4)])
    result = check_dump(tmp_path)
    assert begun(result) == [("born", f"{LINEAR}_1", 0)]
    (finding,) = result.harmful
    assert finding.tensors[0].first == (1, 2)
    assert [place.name for place in finding.flow.first] == [f"{ADD}_2"]
    assert not finding.flow.reached_end
    assert result.operators == {4242: (f"{LINEAR}_1", f"{ADD}_2")}


def test_two_births_keep_what_went_on_apart(tmp_path: Path) -> None:
    one, two = half(3, 4, at_1_2=INF), half(3, 4, at_0_0=NAN, at_2_2=NAN)
    for number, odd in ((0, one), (1, two)):
        write_operation(tmp_path, f"{number}_{LINEAR}", [half(3, 4)], [odd])
    write_operation(tmp_path, f"2_{ADD}", [one], [one])
    write_operation(tmp_path, f"3_{NORM}", [two], [two])
    first, second = check_dump(tmp_path).harmful
    assert [place.name for place in first.flow.first] == [f"{ADD}_2"]
    assert [place.name for place in second.flow.first] == [f"{NORM}_3"]


def test_a_weight_comes_in_and_is_no_birth(tmp_path: Path) -> None:
    odd = half(3, 4, at_1_2=NAN)
    for step in (0, 1):
        write_operation(
            tmp_path, f"0_{LINEAR}", [half(3, 4), half(4, 4, at_2_2=NAN)], [odd], step=step
        )
    result = check_dump(tmp_path)
    assert begun(result) == [("entered", f"{LINEAR}_0", 0)]
    assert result.findings[0].tensors[0].name == "intensor1"


def attention(query: Any, mask: Any, output: Any, lengths: Any) -> tuple[list[Any], list[Any]]:
    return [query, half(4, 2), half(4, 2), mask, lengths], [output]


def test_a_mask_of_infinities_is_no_finding_and_what_becomes_of_it_is(tmp_path: Path) -> None:
    mask = np.triu(np.full((4, 4), -INF, np.float16), 1)
    mask[np.isnan(mask)] = 0
    inputs, outputs = attention(half(4, 2), mask, half(4, 2), indices(4))
    write_operation(tmp_path / "a", "0_SelfAttentionOperation", inputs, outputs)
    assert check_dump(tmp_path / "a").findings == ()
    inputs, outputs = attention(half(4, 2), mask, half(4, 2, at_3_0=NAN), indices(4))
    write_operation(tmp_path / "b", "0_SelfAttentionOperation", inputs, outputs)
    result = check_dump(tmp_path / "b")
    assert begun(result) == [("born", "SelfAttentionOperation_0", 0)]
    assert result.findings[0].reason == "its inputs are clean but for what a mask hides"


def test_rows_behind_all_sequences_are_padding(tmp_path: Path) -> None:
    """Four rows, three tokens: the fourth is there for a fixed shape."""
    odd = half(4, 2, at_3_1=NAN)
    inputs, outputs = attention(odd, np.zeros((4, 4), np.float16), odd, indices(2, 1))
    write_operation(tmp_path, f"0_{NORM}", [half(4, 2)], [odd])
    write_operation(tmp_path, "1_SelfAttentionOperation", inputs, outputs)
    result = check_dump(tmp_path)
    assert begun(result) == [("padding", f"{NORM}_0", 0)]
    assert not result.found


def test_padding_that_gets_into_a_token_is_a_leak(tmp_path: Path) -> None:
    odd, leaked = half(4, 2, at_3_1=NAN), half(4, 2, at_3_1=NAN, at_0_0=NAN)
    inputs, outputs = attention(odd, np.zeros((4, 4), np.float16), leaked, indices(2, 1))
    write_operation(tmp_path, f"0_{NORM}", [half(4, 2)], [odd])
    write_operation(tmp_path, "1_SelfAttentionOperation", inputs, outputs)
    assert begun(check_dump(tmp_path)) == [
        ("leak", "SelfAttentionOperation_1", 0),
        ("padding", f"{NORM}_0", 0),
    ]


@pytest.mark.parametrize(
    ("place", "output", "expected"),
    [
        ("at_1_3_0_0", half(1, 1, 2), []),  # behind the sequence's end, in a block that it has
        ("at_0_0_0_0", half(1, 1, 2), []),  # in another block
        ("at_1_3_0_0", half(1, 1, 2, at_0_0_0=NAN), [("leak", "PagedAttentionOperation_0", 0)]),
        ("at_1_2_0_0", half(1, 1, 2, at_0_0_0=NAN), [("entered", "PagedAttentionOperation_0", 0)]),
    ],
)
def test_entries_of_a_paged_cache_count_if_a_sequence_has_them(
    tmp_path: Path, place: str, output: Any, expected: list[Any]
) -> None:
    """Two blocks of four entries; the sequence has the first three entries of block 1."""
    cache = half(2, 4, 1, 2, **{place: NAN})
    inputs = [half(1, 1, 2), cache, half(2, 4, 1, 2), np.array([[1]], np.int32), indices(3)]
    write_operation(tmp_path, "0_PagedAttentionOperation", inputs, [output])
    result = check_dump(tmp_path)
    assert [each for each in begun(result) if each[0] != "padding"] == expected
    assert result.found == bool(expected)


def ranks(tmp_path: Path, inputs: list[Any], outputs: list[Any], size: int = 2) -> ErrcheckResult:
    for rank, (given, left) in enumerate(zip(inputs, outputs, strict=True)):
        process, params = f"{rank}_{100 + rank}", {"rank": rank, "rankSize": size}
        write_operation(tmp_path, f"0_{LINEAR}", [half(3, 4)], [given], process=process)
        write_operation(
            tmp_path, "1_AllReduceOperation", [given], [left], process=process, params=params
        )
        write_operation(tmp_path, f"2_{NORM}", [left], [left], process=process)
    return check_dump(tmp_path)


def test_what_a_sum_over_the_ranks_spreads_began_on_one_of_them(tmp_path: Path) -> None:
    odd = half(3, 4, at_1_2=INF)
    result = ranks(tmp_path, [half(3, 4), odd], [odd, odd])
    assert begun(result) == [("born", f"{LINEAR}_0", 1)]
    assert result.findings[0].flow.ranks == (0, 1)
    assert result.findings[0].flow.operations == 4


def test_a_sum_of_clean_parts_that_overflows_is_one_finding(tmp_path: Path) -> None:
    odd = half(3, 4, at_1_2=INF)
    result = ranks(tmp_path, [half(3, 4), half(3, 4)], [odd, odd])
    assert begun(result) == [("born", "AllReduceOperation_1", 0)]
    assert result.findings[0].shared == (1,)


def test_without_the_other_ranks_a_sum_is_not_blamed(tmp_path: Path) -> None:
    odd = half(3, 4, at_1_2=INF)
    result = ranks(tmp_path, [half(3, 4)], [odd])
    assert begun(result) == [("received", "AllReduceOperation_1", 0)]


# PyTorch


class Attention(nn.Module):
    """Attention over padded rows; what it does wrong is told by ``fault``."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        self.fault = fault
        self.qkv = nn.Linear(8, 24)
        self.out = nn.Linear(8, 8)

    def forward(self, hidden: Tensor, *, attention_mask: Tensor) -> Tensor:
        q, k, v = self.qkv(hidden).chunk(3, -1)
        hidden_keys = attention_mask[:, None, :] == 0
        weights = torch.softmax((q @ k.transpose(-1, -2)).masked_fill(hidden_keys, -INF), -1)
        if self.fault == "own code":
            weights = weights / 0.0
        if self.fault != "leak":
            v = torch.where(attention_mask[..., None] == 0, 0.0, v)
        out: Tensor = self.out(weights @ v)
        return out


class Model(nn.Module):
    """An embedding, attention and a head; two prompts, the first one shorter."""

    def __init__(self, fault: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fault = fault
        self.norm = nn.LayerNorm(8)
        self.attention = Attention(fault)
        self.head = nn.Linear(8, 10)
        if fault == "parameter":
            nn.init.constant_(self.attention.out.weight, NAN)
        if fault == "overflow":
            nn.init.constant_(self.attention.out.bias, 3e38)
            nn.init.constant_(self.head.weight, 1e4)

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        hidden = self.norm(x)
        if self.fault in ("padding", "leak"):
            hidden = hidden.masked_fill(attention_mask[..., None] == 0, NAN)
        hidden = hidden + self.attention(hidden, attention_mask=attention_mask)
        out: Tensor = self.head(hidden)
        return out


def run_model(fault: str, folder: Path, **options: Any) -> ErrcheckResult:
    model = Model(fault)
    with register_hook(model, DumpConfig(dump_path=str(folder), **options)), torch.no_grad():
        model(torch.ones(2, 4, 8), attention_mask=torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]]))
    return check_dump(folder)


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        ("clean", []),
        ("own code", [("own code", "root.attention", 0)]),
        ("overflow", [("born", "root.head", 0)]),
        ("parameter", [("entered", "root.attention.out", 0)]),
        ("padding", [("padding", "root.attention.qkv", 0)]),
        ("leak", [("leak", "root.attention", 0), ("padding", "root.attention.qkv", 0)]),
    ],
)
def test_modules_and_the_code_between_them_are_told_apart(
    tmp_path: Path, fault: str, expected: list[Any]
) -> None:
    assert begun(run_model(fault, tmp_path, weights=True)) == expected


# API calls, with statistics alone


def odd(value: float = NAN) -> dict[str, Any]:
    return tensor([[1.0, value]])


def test_statistics_of_api_calls_suffice_to_find_the_birth(tmp_path: Path) -> None:
    records = {
        "Functional.linear.0.forward": call([tensor()], [tensor()]),
        "Torch.div.0.forward": call([tensor()], [odd(INF)]),
        "Functional.linear.1.forward": call([odd(INF)], [odd()]),
    }
    result = check_dump(write_dump(tmp_path, records).parent.parent)
    assert begun(result) == [("born", "Torch.div.0.forward", 0)]
    (found,) = result.findings[0].tensors
    assert (found.kinds, found.first, found.where) == ("Inf", None, "unknown")


def test_api_calls_of_ranks_meet_in_their_collectives(tmp_path: Path) -> None:
    for rank, given in enumerate((tensor([[1.0, 2.0]]), odd(), tensor([[1.0, 2.0]]))):
        records = {
            "Tensor.mul.0.forward": call([tensor([[1.0, 2.0]])], [given]),
            "Distributed.all_reduce.0.forward": call([given], [odd()]),
        }
        write_dump(tmp_path, records, rank=rank)
    result = check_dump(tmp_path)
    assert begun(result) == [("born", "Tensor.mul.0.forward", 1)]
    assert result.findings[0].flow.ranks == (0, 1, 2)


def test_values_that_were_not_saved_are_a_problem_and_no_pass(tmp_path: Path) -> None:
    unknown = {"type": "torch.Tensor", "dtype": "torch.float32", "shape": [3]}
    records = {"Functional.gelu.0.forward": call([unknown], [unknown])}
    result = check_dump(write_dump(tmp_path, records).parent.parent)
    assert not result.complete
    assert "2 tensors could not be checked" in result.problems[0]
