"""The first difference over all ranks, and when calls of several ranks happened."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from api_dumps import call, tensor, write_dump
from msprobe_samples import sample

from ait_llm.compare.api.difference_report import Analysis, analyze_differences
from ait_llm.compare.api.first_difference import first_differences
from ait_llm.compare.api.rank_order import Call, Communication, depths
from ait_llm.compare.api.settings import ApiOptions

REDUCE = Communication("all_reduce")


def compute(name: str, *, differs: bool = False) -> Call:
    return Call(name, differs)


def reduce(*, differs: bool = False, input_differs: bool = False) -> Call:
    return Call("all_reduce", differs, input_differs, REDUCE)


def named(ranks: dict[int, list[Call]]) -> list[tuple[int, str]]:
    return [(each.rank, each.name) for each in first_differences(ranks)]


def test_what_follows_a_collective_is_later_on_every_rank() -> None:
    found = depths({0: [compute("a"), reduce(), compute("b")], 1: [reduce(), compute("c")]})
    assert found == {0: [0, 1, 2], 1: [1, 2]}


def test_a_message_orders_its_receiver_after_its_sender() -> None:
    send = Call("send", False, False, Communication("send", (), (("send", 1),)))
    receive = Call("recv", False, False, Communication("recv", (), (("recv", 0),)))
    found = depths({0: [reduce(), send], 1: [receive, compute("b")], 2: [reduce()]})
    assert found[1][0] == found[0][1] == 3
    assert found[1][1] == 4


def test_a_difference_before_the_collective_beats_one_after_it_on_another_rank() -> None:
    ranks = {
        0: [compute("a"), reduce(differs=True), compute("b", differs=True)],
        1: [compute("c", differs=True), reduce(differs=True, input_differs=True), compute("d")],
    }
    assert named(ranks) == [(1, "c")]


def test_a_collective_is_blamed_if_its_inputs_are_right_on_all_ranks() -> None:
    ranks = {rank: [compute("a"), reduce(differs=True), compute("b")] for rank in range(2)}
    assert named(ranks) == [(0, "all_reduce"), (1, "all_reduce")]


def test_the_rank_that_brings_a_wrong_input_is_blamed_and_not_the_collective() -> None:
    ranks = {
        0: [reduce(differs=True)],
        1: [reduce(differs=True, input_differs=True)],
    }
    assert named(ranks) == [(1, "all_reduce")]


def test_nothing_is_found_where_nothing_differs() -> None:
    assert named({0: [compute("a"), reduce()], 1: [reduce()]}) == []


def test_groups_of_ranks_do_not_order_each_other() -> None:
    def group(*ranks: int) -> Call:
        return Call("all_reduce", False, False, Communication("all_reduce", ranks))

    found = depths({0: [group(0, 1)], 1: [group(0, 1), group(1, 2)], 2: [group(1, 2)]})
    assert found == {0: [1], 1: [1, 3], 2: [3]}


def analyzed(tmp_path: Path, golden: Path, mine: Path) -> Analysis:
    return analyze_differences(mine, golden, tmp_path / "out", "1", ApiOptions())


def test_the_files_are_those_of_the_real_tool(tmp_path: Path) -> None:
    root = sample("dist_stat")
    found = analyzed(tmp_path, root / "golden" / "step0", root / "target" / "step0")
    for rank, pair in enumerate(found.outcome.pairs):
        (theirs,) = (root / "compare" / "da_step0").glob(f"compare_result_rank{rank}_*.json")
        assert _json(pair.files[0]) == _json(theirs)
    (theirs,) = (root / "compare" / "da_step0").glob("diff_analyze_*.json")
    ours = _json(found.outcome.files[0])
    assert ours["rank_1"][0].pop("why")
    assert ours == _json(theirs)


def test_a_statistic_that_was_zero_is_measured_with_the_range_of_the_values(
    tmp_path: Path,
) -> None:
    zero_mean = tensor([-1.0, 1.0])
    golden, close, far = (
        write_dump(tmp_path / name, {"Torch.relu.0.forward": call([], [output])})
        for name, output in (
            ("golden", zero_mean),
            ("close", zero_mean | {"Mean": 1e-9}),
            ("far", zero_mean | {"Mean": 0.8}),
        )
    )
    assert analyzed(tmp_path, golden, close).first == []
    assert [each.name for each in analyzed(tmp_path, golden, far).first] == ["Torch.relu.0.forward"]


def of_three_steps(root: Path, *, wrong_from: int | None = None) -> Path:
    """A run of one rank; its output differs from the step on that is given."""
    for step in range(3):
        value = 1.0 if wrong_from is None or step < wrong_from else 7.0
        record = {"Torch.relu.0.forward": call([], [tensor([value, 2.0 + step])])}
        write_dump(root, record, step=step)
    return root


def test_the_first_step_that_differs_is_told_of_several(tmp_path: Path) -> None:
    golden = of_three_steps(tmp_path / "golden")
    found = analyzed(tmp_path, golden, of_three_steps(tmp_path / "mine", wrong_from=1))
    assert [each.name for each in found.first] == ["Torch.relu.0.forward"]
    assert found.step == 1
    assert found.looked_at == 1


def test_each_step_has_a_file_of_its_own(tmp_path: Path) -> None:
    golden = of_three_steps(tmp_path / "golden")
    found = analyzed(tmp_path, golden, of_three_steps(tmp_path / "mine", wrong_from=2))
    files = [pair.files[0] for pair in found.outcome.pairs]
    same = [_json(path)["Torch.relu.0.forward"]["is_same"] for path in files]
    assert same == [True, True, False]


def _json(path: Path) -> Any:
    with path.open(encoding="utf-8") as file:
        return json.load(file)
