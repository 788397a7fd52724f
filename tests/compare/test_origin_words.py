"""The sentences that say why an operation is the origin of an error."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from ait_llm import DumpConfig, open_dump, register_hook
from ait_llm.compare.origin_code_words import by_other_wiring
from ait_llm.compare.origin_places import element
from ait_llm.compare.origin_rewired import Rewired
from ait_llm.compare.origin_values import RunValues
from ait_llm.compare.origin_words import by_comparison, by_definition
from ait_llm.core import OpId
from ait_llm.dumps.model import Operation
from ait_llm.judge.definitions import differences


def values(operation: Operation, weights: int) -> RunValues:
    """A run of one operation that reads some weights."""
    use = SimpleNamespace(role="out", tensor=SimpleNamespace(name="outtensor0"), op=0)
    known: Any = SimpleNamespace(
        run=SimpleNamespace(operations=[operation]),
        flow=SimpleNamespace(values=[SimpleNamespace(uses=[use])]),
        inputs=lambda op: [SimpleNamespace(number=number) for number in range(weights)],
        is_weight=lambda number: True,
        trouble=lambda number: "",
    )
    return cast(RunValues, known)


@pytest.mark.parametrize(
    ("weights", "params", "said"),
    [
        (1, {"transposeB": True}, "with its own weights and parameters, so these are not those of"),
        (1, {}, "it computes rightly with its own weights, so these"),
        (0, {"dim": 1}, "it computes rightly with its own parameters, so these"),
        (0, {}, "it computes rightly what it was called for, and golden something else: its"),
    ],
)
def test_only_what_an_operation_has_is_said_to_differ(
    weights: int, params: dict[str, object], said: str
) -> None:
    operation = Operation("op", OpId((0,)), "aten.cat.default", params=params)
    text = by_definition(values(operation, weights), 0, 0, 0.001, 2.0, 1)
    assert said in text
    assert text.endswith("would be amplified 2 times, and outtensor0 of op is off")


def test_whole_numbers_are_said_with_all_of_their_digits() -> None:
    assert [element(each) for each in (1280091.0, 3.0, -2.0)] == ["1280091", "3", "-2"]
    assert [element(each) for each in (0.25, 1e30, float("inf"))] == ["0.25", "1e+30", "inf"]


def test_a_number_of_things_that_differs_is_said_as_a_whole_number(tmp_path: Path) -> None:
    operations = []
    for count in (2, 3):
        config = DumpConfig(dump_path=tmp_path / str(count), operators=True)
        model = nn.GroupNorm(count, 6)
        with torch.no_grad(), register_hook(model, config):
            model(torch.arange(24.0).view(2, 6, 2))
        dump = open_dump(tmp_path / str(count) / "ait_dump")
        operations += [one for one in dump.operations() if "group_norm" in one.type]
    (told,) = differences(*operations)
    assert told.text == "`group` of `root.aten.native_group_norm.default` is 3 instead of 2"


def test_inputs_that_differ_for_a_reason_are_not_said_to_agree() -> None:
    operation = Operation("op", OpId((0,)), "aten.cat.default", params={"dim": 1})
    text = by_definition(values(operation, 0), 0, 0, 0.71, 1.0, 1, explained=True)
    assert "agree" not in text
    assert "differ by no more than what came before explains (0.71 relative error" in text


@pytest.mark.parametrize(
    ("factor", "said"), [(1.0, "would not be amplified,"), (1.3, "would be amplified 1.3 times,")]
)
def test_what_is_not_amplified_is_not_said_to_be(factor: float, said: str) -> None:
    operation = Operation("op", OpId((0,)), "aten.cat.default", params={"dim": 1})
    assert said in by_definition(values(operation, 0), 0, 0, 0.001, factor, 1)


@pytest.mark.parametrize(
    ("agreeing", "said"),
    [
        ((), "it is the first, and outtensor0 of op does not agree with golden"),
        ((1,), "its compared input agrees and outtensor0 of op does not"),
        ((1, 2), "its 2 compared inputs agree and outtensor0 of op does not"),
    ],
)
def test_inputs_are_counted_as_people_do(agreeing: tuple[int, ...], said: str) -> None:
    known = values(Operation("op", OpId((0,)), "aten.cat.default", params={}), 0)
    known.error = lambda number: None  # type: ignore[method-assign]
    near = cast(Any, SimpleNamespace(agreeing=agreeing))
    assert by_comparison(known, 0, 0, near, []).startswith(said)


@pytest.mark.parametrize(
    ("module", "moves", "said"),
    [
        ("root.a", ("view",), "makes through `view` instead of nothing; "),
        ("root.b", (), "makes, and golden's reads what that of `root.b` makes; "),
    ],
)
def test_two_ways_are_told_apart_by_what_is_on_them_or_by_where_they_begin(
    module: str, moves: tuple[str, ...], said: str
) -> None:
    kind = "aten.mul.Tensor"
    own = [Operation(f"root.a.{name}", OpId((0,)), name) for name in ("aten.add.Tensor", kind)]
    use = SimpleNamespace(role="out", tensor=SimpleNamespace(name="outtensor0"), op=0)
    known: Any = SimpleNamespace(
        run=SimpleNamespace(operations=own),
        flow=SimpleNamespace(values=[SimpleNamespace(uses=[use])]),
        owner=lambda op: op,
        trouble=lambda number: "",
    )
    right = Operation(f"{module}.{kind}", OpId((0,)), kind)
    text = by_other_wiring(cast(RunValues, known), Rewired(0, 1, right, moves, ()), 0)
    assert said in text
